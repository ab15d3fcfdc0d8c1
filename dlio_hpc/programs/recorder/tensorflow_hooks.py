"""Hooks for tf.data: the stages of a pipeline, passes and batches, saved states, gradients."""

from __future__ import annotations

import glob
import itertools
import os
import weakref
from types import ModuleType
from typing import Any

from .hooks import Context, recorded, wrap, wrap_next

_numbers = itertools.count()
# Number of files of a stage that are named.
_MOST = 100_000
_stages: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
# Methods of a dataset that make another one.
_METHODS = (
    "batch", "padded_batch", "ragged_batch", "unbatch", "shuffle", "map", "prefetch", "cache", "interleave", "flat_map",
    "repeat", "shard", "take", "skip", "filter", "with_options", "zip", "concatenate", "window", "apply",
)  # fmt: skip
# Functions whose arguments are data.
_CONTENT = ("from_tensor_slices", "from_tensors")
# Functions that make a dataset from no other one.
_SOURCES = ("list_files", "from_tensor_slices", "from_tensors", "from_generator", "range", "sample_from_datasets")


def datasets(context: Context, module: ModuleType) -> None:
    """Record each stage of a pipeline with its settings and the stage before it."""
    for name in _METHODS:
        wrap(context, module.DatasetV2, name, _noted(context, name, False))
    for name in _SOURCES:
        function = getattr(module.DatasetV2, name, None)
        if function is not None:
            setattr(module.DatasetV2, name, staticmethod(recorded(context, function, _noted(context, name, True))))


def _noted(context: Context, name: str, is_source: bool) -> Any:
    def made(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        first = arguments[0] if arguments else None
        while isinstance(first, (tuple, list)) and first:  # zip() takes a tuple of datasets
            first = first[0]
        before = None if is_source or first is None or isinstance(first, dict) else _stages.get(first)
        given = arguments[0 if is_source else 1 :]
        settings = ([], {}) if name in _CONTENT else (given, keys)
        number = _stage(context, result, before, name, *settings)
        if is_source and given:
            _name_files(context, number, given[0])

    return made


def _stage(context: Context, dataset: Any, before: int | None, name: str, given: Any, keys: Any) -> int:
    number = _stages[dataset] = next(_numbers)
    settings = {key: _value(value) for key, value in keys.items()}
    context.recording.add("stage", number, before, name, list(map(_value, given)), settings)
    return number


def _value(value: Any) -> Any:
    """Return a setting in its recorded form: whole numbers and truth values as they are, and only the size of other
    values.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if callable(value):
        return "function"
    numpy = getattr(value, "numpy", None)
    if numpy is not None and getattr(value, "shape", None) == ():
        number = numpy()
        return int(number) if getattr(number, "dtype", None) is not None and number.dtype.kind in "biu" else None
    shape = getattr(value, "shape", None)
    if shape is not None:
        return {"shape": [None if extent is None else int(extent) for extent in shape]}
    if type(value).__name__ == "Options":
        return {
            "deterministic": value.deterministic,
            "threads": getattr(value.threading, "private_threadpool_size", None),
        }
    return {"length": len(value)} if isinstance(value, (list, tuple, dict)) else type(value).__name__


def readers(context: Context, module: ModuleType) -> None:
    """Record the datasets that read files, with the sizes of their buffers."""
    for name in ("TFRecordDatasetV2", "FixedLengthRecordDatasetV2", "TextLineDatasetV2"):
        kind = getattr(module, name, None)
        if kind is not None:
            wrap(context, kind, "__init__", _reader(context, name))


def _reader(context: Context, name: str) -> Any:
    def made(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        number = _stage(context, arguments[0], None, name, arguments[1:], keys)
        _name_files(context, number, keys.get("filenames", arguments[1] if len(arguments) > 1 else None))

    return made


def _name_files(context: Context, number: int, names: Any) -> None:
    """Record the files that a stage names by a pattern, a path, a list or an array of paths. Numbers, and names that
    are known only when the pipeline runs, are left out.
    """
    if hasattr(names, "numpy"):
        names = names.numpy()
    elif type(names).__module__.startswith("tensorflow"):  # a tensor of a graph has no value yet
        return
    if isinstance(names, (str, bytes, os.PathLike)):
        text = os.fsdecode(names)
        names = sorted(glob.glob(text))[:_MOST] if glob.has_magic(text) else [text]
    elif isinstance(names, tuple) and names:
        names = names[0]
    if isinstance(names, dict) or not hasattr(names, "__len__") or not hasattr(names, "__getitem__"):
        return
    first = names[0] if len(names) else None
    if isinstance(first, (str, bytes, os.PathLike)) and os.path.isfile(first):
        folders = {os.path.dirname(first)}
        context.recording.add(
            "source", number, [context.file(name) for name in names[:_MOST] if _is_file(name, folders)]
        )


def _is_file(name: Any, folders: set[Any]) -> bool:
    """Return whether a name is the name of a file: the file exists, or another file in the same folder was found to
    exist. folders: folders in which a file was found; if the file exists, its folder is added.
    """
    if not isinstance(name, (str, bytes, os.PathLike)):
        return False
    folder = os.path.dirname(name)
    if folder not in folders and os.path.isfile(name):
        folders.add(folder)
    return bool(folder) and folder in folders


def iterators(context: Context, module: ModuleType) -> None:
    """Record passes and batches of pipelines that the program iterates itself."""
    owner, recording = module.OwnedIterator, context.recording

    def begun(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        dataset = keys.get("dataset", arguments[1] if len(arguments) > 1 else None)
        number = _stages.get(dataset) if dataset is not None else None
        arguments[0]._dlio_stage = number
        recording.add("pass", ["tf.data", number], round(seconds, 6), None)

    wrap(context, owner, "__init__", begun)
    wrap_next(context, owner, lambda iterator: ["tf.data", getattr(iterator, "_dlio_stage", None)], lambda _: None)


def checkpoints(context: Context, module: ModuleType) -> None:
    """Record states that tf.train.Checkpoint saves and restores."""

    def noted(kind: str) -> Any:
        def transferred(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
            path = result if isinstance(result, (str, bytes)) else arguments[1] if len(arguments) > 1 else None
            number = None if path is None else context.file(path)
            context.recording.add(kind, "tf.train.Checkpoint", round(seconds, 6), number, None)

        return transferred

    for name, kind in (("save", "save"), ("write", "save"), ("restore", "restore"), ("read", "restore")):
        wrap(context, module.Checkpoint, name, noted(kind), is_outermost=True)


def gradients(context: Context, module: ModuleType) -> None:
    """Record that a program computes gradients, which is a sign of training."""

    def differentiated(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        context.recording.add("gradient", round(seconds, 6))

    wrap(context, module.GradientTape, "gradient", differentiated)
