"""Forward mode: levels, and tangents that travel with tensors."""
