"""What is known of a DistributedDataParallel and of its passes, by the names under which PyTorch logs it.

Times are in nanoseconds. They are noted in the first ten passes, and then in every `sample_rate`-th.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    from undertow.distributed.data_parallel.ddp import DistributedDataParallel

#: PyTorch's names of dtypes, in C++
DTYPES = {"float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16"}
ENVIRONMENT = ("MASTER_ADDR", "MASTER_PORT", "TORCH_DISTRIBUTED_DEBUG", "CUDA_VISIBLE_DEVICES")
#: what else a program may be told by whoever starts it; the rest are settings of MPI and of the ways below it
OURS = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "OMP_NUM_THREADS",
    "UNDERTOW_DISTRIBUTED_TIMEOUT", "UNDERTOW_DISTRIBUTED_DEBUG",
)  # fmt: skip
OF_MPI = ("MPICH_", "MPIR_CVAR_", "OMPI_MCA_", "PRTE_MCA_", "FI_", "UCX_")
#: settings for PyTorch's backends that programs bring along; exchanges over MPI do not ask for them
OF_OTHERS = (
    "GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT", "NCCL_SOCKET_IFNAME", "NCCL_DEBUG", "NCCL_IB_DISABLE",
    "NCCL_TOPO_DUMP_FILE", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
)  # fmt: skip
#: of an exchange: the thread that starts it, and the one that waits for those under way (see work.py)
THREADS = 2
#: passes that are noted in any case
FIRST = 10


class LoggingData:
    """The facts of one model."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self._model, self.sample_rate, self.error = ref(model), 100, ""
        self.iteration, self.noted_passes = 0, 0
        self.forward: tuple[int, int] = (0, 0)
        self.last: dict[str, float] = {}
        self.sums: dict[str, float] = {}

    @property
    def model(self) -> DistributedDataParallel:
        """Known weakly, as the parameters let a model go that is dropped."""
        found = self._model()
        assert found is not None
        return found

    def forward_took(self, started: int, ended: int) -> None:
        self.forward = started, ended

    def noted(self, error: Exception) -> Exception:
        self.error = str(error)
        return error

    def facts(self) -> dict[str, Any]:
        """Everything; the times of the last pass are looked at now."""
        self.sample()
        model, reducer = self.model, self.model._reducer
        tensors, buckets = reducer.tensors, reducer.buckets
        sizes = [sum([reducer.tensors[n]._array.nbytes for n in b.parameters]) for b in buckets]
        found: dict[str, Any] = {
            "world_size": reducer.group.size(),
            "rank": reducer.group.rank(),
            "module_name": type(model.module).__name__,
            "device_ids": "",
            "output_device": -1,
            "backend_name": reducer.group.name(),
            "broadcast_buffers": int(model.broadcast_buffers),
            "find_unused_parameters": int(reducer.find_unused),
            "gradient_as_bucket_view": int(reducer.as_view),
            "static_graph": int(reducer.static_graph),
            "bucket_cap_bytes": int(max(model._caps) * 2**20),
            "dtypes": ", ".join(dict.fromkeys([DTYPES.get(n, n) for n in [str(t._array.dtype) for t in tensors]])),
            "num_parameter_tensors": len(tensors),
            "total_parameter_size_bytes": sum([t._array.nbytes for t in tensors]),
            "bucket_sizes": ", ".join(map(str, sizes)),
            "has_rebuilt_buckets": int(reducer.is_rebuilt),
            "rebuilt_bucket_sizes": ", ".join(map(str, sizes)),
            "rebuilt_per_bucket_param_indices": ", ".join([" ".join(map(str, b.parameters)) for b in buckets]),
            "prev_iteration_grad_ready_order_indices": ", ".join(map(str, reducer.order)),
            "iteration": self.iteration,
            "has_error": int(bool(self.error)),
            "error": self.error,
            **{name.lower(): os.environ.get(name, "N/A") for name in ENVIRONMENT},
            **(self.as_gloo() if reducer.group.name() == "gloo" else {}),
            **self.last,
        }
        return found | {f"avg_{name}": total / self.noted_passes for name, total in self.sums.items()}

    def as_gloo(self) -> dict[str, Any]:
        """What PyTorch logs of gloo, where a program calls MPI by that name."""
        settings = {name.lower(): os.environ.get(name, "N/A") for name in OF_OTHERS if name.startswith("GLOO")}
        return {**settings, "gloo_num_threads": THREADS}

    def sample(self) -> None:
        """Note the times of the last pass, if it is one whose turn it is."""
        number, times = self.model._reducer.passes - 1, self.model._reducer.times
        is_its_turn = number < FIRST or number % self.sample_rate == 0
        if not is_its_turn or number <= self.iteration or "backward_comm_time_end" not in times:
            return
        self.iteration = number
        starts = times["backward_compute_time_start"], times["backward_comm_time_start"]
        ends = times["backward_compute_time_end"], times["backward_comm_time_end"]
        took = {
            "forward_compute_time": self.forward[1] - self.forward[0],
            "backward_compute_time": ends[0] - starts[0],
            "backward_comm_time": ends[1] - starts[1],
            "backward_compute_comm_overlap_time": max(ends[0] - starts[1], 0),
        }
        self.last = {**times, "forward_compute_time_start": self.forward[0], **took}
        self.noted_passes += 1
        self.sums = {name: self.sums.get(name, 0) + value for name, value in took.items()}


def dump_environment() -> None:
    """Print the variables of the environment that bear on exchanges; PyTorch's `_dump_DDP_relevant_env_vars`."""
    found = sorted([name for name in os.environ if name.startswith(OF_MPI)])
    for name in (*ENVIRONMENT, *OURS, *OF_OTHERS, *found):
        print(f"env:{name}={os.environ.get(name, 'N/A')}")
