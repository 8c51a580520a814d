"""What launchers tell a process of itself, in its environment."""

from __future__ import annotations

import os

#: our name, which is also PyTorch's; and MPICH's, Open MPI's and Slurm's
NAMES = {
    "RANK": ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"),
    "WORLD_SIZE": ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"),
    "LOCAL_RANK": ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "LOCAL_WORLD_SIZE": ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"),
}
#: by which processes are told how many threads to take
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def told(name: str) -> str | None:
    """What the environment says, by our name or by a launcher's. Slurm's are for those that it has started."""
    is_started_by_slurm = "SLURM_STEP_NUM_TASKS" in os.environ
    names = [name, *NAMES[name]] if is_started_by_slurm else [name, *NAMES[name][:-1]]
    return next((os.environ[n] for n in names if n in os.environ), None)
