"""Reading and writing at places that data names."""
