"""The parts of the simulated backend; `backend/simulated.py` is its public face."""
