"""The parts of the simulated backend; `backend/simulated.py` is its public face.

operations  what a stream is given        threads  what runs it
clocks      what happened before what     plans    what a kernel will give, before it has run
faults      memory, failures              arrays   SimArray, and how NumPy's functions become operations
streams     streams and events
"""
