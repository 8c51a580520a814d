"""Modules that exist because programs written for PyTorch ask for them: they know the house, nothing knows them."""
