"""Tensors in memory that several processes see: `share_memory_`, and tensors sent through multiprocessing's queues.

blocks.py   the memory: files without a name, which vanish with the last process that has them
moving.py   moving tensors there, with every tensor that shows the same memory
sending.py  how multiprocessing writes a tensor: where it lies, and not what is in it

All of it is loaded when a program first shares something (interop/tensor_methods.py).
"""
