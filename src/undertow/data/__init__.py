"""Examples in batches: datasets, samplers, and a loader with threads and a progress bar."""

from typing import TYPE_CHECKING

from undertow.data.collate import default_collate, default_convert
from undertow.data.datapipes import IterDataPipe, MapDataPipe, functional_datapipe
from undertow.data.datasets import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from undertow.data.loader import DataLoader
from undertow.data.progress import Progress
from undertow.data.samplers import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from undertow.data.workers import WorkerInfo, get_worker_info
from undertow.torch_names import missing as _absent

__all__ = [
    # where examples come from
    "Dataset", "IterableDataset", "TensorDataset", "Subset", "ConcatDataset", "ChainDataset",
    "StackDataset", "random_split", "IterDataPipe", "MapDataPipe", "functional_datapipe",
    # in which order
    "Sampler", "SequentialSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler", "BatchSampler",
    "DistributedSampler",
    # in batches
    "DataLoader", "default_collate", "default_convert", "get_worker_info", "WorkerInfo", "Progress",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__ = _absent.getter("data")
