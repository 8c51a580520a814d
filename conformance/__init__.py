"""PyTorch's own autograd tests, run on undertow.

``python -m conformance --tests PATH`` runs the five autograd test files of a PyTorch 2.13 checkout,
unchanged, with `shim/torch` answering ``import torch``. See docs/conformance.md.
"""
