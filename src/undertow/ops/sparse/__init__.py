"""Only what is not zero: sparse tensors, their layouts and products."""
