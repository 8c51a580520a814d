"""Communication hooks of DistributedDataParallel: how the gradients of a bucket are averaged over the processes."""
