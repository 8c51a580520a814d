"""PyTorch's `torch.utils.tensorboard`."""

from undertow.instrument.event_files.writer import SummaryWriter as SummaryWriter
