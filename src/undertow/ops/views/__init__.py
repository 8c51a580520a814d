"""The same memory, looked at in another way."""
