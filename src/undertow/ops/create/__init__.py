"""New tensors, from data and from nothing."""
