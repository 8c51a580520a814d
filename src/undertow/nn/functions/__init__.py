"""What `nn.functional` lists beyond the operations of `ops`."""
