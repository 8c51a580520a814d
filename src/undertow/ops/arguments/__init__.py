"""What a user may pass, turned into what a forward takes: operands, dims, sizes, nested data, half precision."""
