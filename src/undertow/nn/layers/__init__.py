"""The classes of layers, losses and containers."""
