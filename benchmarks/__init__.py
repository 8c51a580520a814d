"""undertow against PyTorch: `python -m benchmarks`. See docs/benchmarks.md."""
