"""PyTorch's `torch.utils.tensorboard.writer`."""

from undertow.instrument.event_files.writer import SummaryWriter as SummaryWriter
