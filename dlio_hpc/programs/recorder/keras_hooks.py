"""Hooks for Keras: epochs, steps and evaluations of fit, steps of optimizers, saved models and weights."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from .hooks import Context, amount, argument, transfer, wrap

# Batch size of fit for arrays, unless it is given.
_BATCH = 32
# Methods of CallbackList, which Keras calls around each epoch and step.
_EVENTS = {
    "on_train_begin": "train_begin", "on_train_end": "train_end",
    "on_epoch_begin": "epoch_begin", "on_epoch_end": "epoch_end",
    "on_train_batch_begin": "train_batch_begin", "on_train_batch_end": "train_batch", "on_test_begin": "test_begin",
    "on_test_end": "test_end", "on_test_batch_end": "test_batch",
}  # fmt: skip


def callbacks(context: Context, module: ModuleType) -> None:
    """Record the calls that Keras makes to its callbacks."""
    for name, kind in _EVENTS.items():
        wrap(context, module.CallbackList, name, _noted(context, kind))


def _noted(context: Context, kind: str) -> Any:
    def noted(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        number = arguments[1] if len(arguments) > 1 and isinstance(arguments[1], int) else None
        context.recording.add(kind, number)

    return noted


def trainer(context: Context, module: ModuleType) -> None:
    """Record the arguments of fit before it runs."""
    for name in ("TensorFlowTrainer", "TorchTrainer", "JAXTrainer"):
        owner = getattr(module, name, None)
        if owner is not None:
            owner.fit = _fit(context, owner.fit)


def _fit(context: Context, function: Any) -> Any:
    @functools.wraps(function)
    def fit(*arguments: Any, **keys: Any) -> Any:
        try:
            data = argument(arguments, keys, 1, "x")
            is_array = hasattr(data, "shape") or isinstance(data, (list, tuple, dict))
            size = argument(arguments, keys, 3, "batch_size")
            settings = {
                "library": "keras", "dataset": "arrays" if is_array else context.label(type(data).__name__),
                "batch_size": (size or _BATCH) if is_array else None, "epochs": keys.get("epochs", 1),
                "steps_per_epoch": keys.get("steps_per_epoch"), "shuffle": bool(keys.get("shuffle", True)),
                "samples": amount(data)[1] if is_array else None, "is_iterable": not is_array,
            }  # fmt: skip
            context.recording.add("fit", settings)
        except Exception as fault:
            context.recording.fault("fit", fault)
        return function(*arguments, **keys)

    return fit


def optimizers(context: Context, module: ModuleType) -> None:
    """Record the steps that a program makes without fit. Inside fit, Keras compiles the steps into a function, where
    they cannot be recorded.
    """

    def stepped(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        context.recording.add("step", context.label(type(arguments[0]).__name__))

    wrap(context, module.BaseOptimizer, "apply_gradients", stepped, is_outermost=True)
    wrap(context, module.BaseOptimizer, "apply", stepped, is_outermost=True)


def models(context: Context, module: ModuleType) -> None:
    """Record models and weights that are saved and loaded."""
    for name, kind in (("save", "save"), ("save_weights", "save"), ("load_weights", "restore")):
        wrap(context, module.Model, name, transfer(context, "keras", kind, 1, "filepath"), is_outermost=True)
