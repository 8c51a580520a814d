"""Sparse arrays: coordinates and compressed rows or columns."""
