"""PyTorch's `torch.multiprocessing`, which undertow does not have."""

from undertow.torch_names.missing import refuse

refuse(__name__)
