"""Checkpoints through Keras: a file .weights.h5 for each file of the checkpoint. The file has the weights of a model
with a layer for each tensor.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.checkpoint_keys import Checkpoint
from dlio_hpc.core.checkpoint_modes.framework import Calls, SingleFiles, Tensors
from dlio_hpc.plan.packages import advice

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def start(comm: "Intracomm | None", keys: Checkpoint) -> Calls:
    """Import Keras and its backend, before anything is timed. Raise ConfigError if they cannot be imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import keras
    except ImportError as fault:
        raise ConfigError(f"keras cannot be imported: {fault}; {advice('keras')}") from fault

    def save(model: Any, path: str) -> None:
        with _errors_of_closing() as errors:
            model.save_weights(path)
        if errors:
            raise errors[0]

    def load(model: Any, path: str) -> Any:
        model.load_weights(path)
        return model

    return Calls(
        prepare=lambda rows: _assigned(_model(keras, {name: len(row) for name, row in rows.items()}), rows),
        save=save,
        blank=lambda sizes: _model(keras, sizes),
        load=load,
        tensors=lambda model: {layer.name: np.asarray(layer.weights[0].numpy()) for layer in model.layers},
    )


@contextmanager
def _errors_of_closing() -> Iterator[list[BaseException]]:
    """Collect the exceptions that occur when HDF5 files are released in the `with` block and are thereby closed. Python
    cannot raise these exceptions, and would print them with a traceback. Cython and Python call different hooks for
    these exceptions, and both hooks are replaced. If the block fails, its remaining files are released later, and their
    exceptions are not printed either.
    """
    before = sys.excepthook, sys.unraisablehook
    errors: list[BaseException] = []

    def collect(unraisable: Any) -> None:
        if unraisable.exc_value is not None:
            errors.append(unraisable.exc_value)

    sys.excepthook, sys.unraisablehook = lambda *_: None, collect
    yield errors
    sys.excepthook, sys.unraisablehook = before


def _model(keras: Any, sizes: dict[str, int]) -> Any:
    """Return a model with a layer for each tensor. A layer has a single weight, a vector of bytes."""

    def layer(name: str, size: int) -> Any:
        made = keras.layers.Layer(name=name, trainable=False)
        made.add_weight(shape=(size,), dtype="uint8", initializer="zeros", trainable=False, name="bytes")
        made.built = True
        return made

    model = keras.Sequential([layer(name, size) for name, size in sizes.items()])
    model.built = True
    return model


def _assigned(model: Any, rows: Tensors) -> Any:
    for layer in model.layers:
        layer.weights[0].assign(rows[layer.name])
    return model


MODE = SingleFiles(".weights.h5", start)
