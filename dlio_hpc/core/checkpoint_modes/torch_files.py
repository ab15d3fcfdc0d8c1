"""Checkpoints through torch.save and torch.load. Each file of the checkpoint is one file of PyTorch."""

from typing import TYPE_CHECKING, Any

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.checkpoint_keys import Checkpoint
from dlio_hpc.core.checkpoint_modes.framework import Calls, SingleFiles, Tensors
from dlio_hpc.plan.packages import advice

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def start(comm: "Intracomm | None", keys: Checkpoint) -> Calls:
    """Import PyTorch before anything is timed, and return its calls. Raise ConfigError if PyTorch cannot be
    imported.
    """
    torch = imported()

    def tensors(state: dict[str, Any]) -> Tensors:
        return {name: tensor.numpy() for name, tensor in state.items()}

    return Calls(
        prepare=lambda rows: {name: torch.from_numpy(row) for name, row in rows.items()},
        save=torch.save,
        blank=lambda sizes: None,
        load=lambda _, path: torch.load(path, map_location="cpu", weights_only=True),
        tensors=tensors,
    )


def imported() -> Any:
    """Return the module torch. Raise ConfigError if it cannot be imported."""
    try:
        import torch
    except ImportError as fault:
        raise ConfigError(f"torch cannot be imported: {fault}; {advice('torch')}") from fault
    return torch


MODE = SingleFiles(".pt", start)
