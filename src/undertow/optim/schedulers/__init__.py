"""Schedulers: how the learning rate goes; `optim.lr_scheduler` is PyTorch's list of them."""
