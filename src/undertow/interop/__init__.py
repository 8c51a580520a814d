"""Tensors among other libraries: NumPy's protocols, DLPack, pickling."""
