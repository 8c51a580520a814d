"""The same elements in new memory: joining, padding, repeating."""
