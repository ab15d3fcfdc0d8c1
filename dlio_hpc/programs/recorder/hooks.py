"""Functions of libraries that are recorded. A function is wrapped when its module is imported, never earlier."""

from __future__ import annotations

import functools
import importlib
import itertools
import operator
import os
import re
import sys
import threading
from collections import OrderedDict, defaultdict
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from os.path import getsize, isfile
from types import ModuleType
from typing import Any, Callable, NamedTuple, Sequence

from .recording import EventWriter, clock, is_of_program, say

# Modules of the recorder, by the module of a library that they wrap when it is imported.
TABLE = {
    "torch.utils.data.dataloader": ("torch_hooks", "loader"),
    "torch.utils.data._utils.worker": ("torch_hooks", "worker"),
    "torch.utils.data._utils.fetch": ("torch_hooks", "fetchers"),
    "torch.optim.optimizer": ("torch_hooks", "optimizer"),
    "torch.serialization": ("torch_hooks", "serialization"),
    "torch.distributed.distributed_c10d": ("torch_hooks", "process_groups"),
    "torch.distributed.checkpoint.state_dict_saver": ("torch_hooks", "distributed_checkpoints"),
    "torch.distributed.checkpoint.state_dict_loader": ("torch_hooks", "distributed_checkpoints"),
    "tensorflow.python.data.ops.dataset_ops": ("tensorflow_hooks", "datasets"),
    "tensorflow.python.data.ops.readers": ("tensorflow_hooks", "readers"),
    "tensorflow.python.data.ops.iterator_ops": ("tensorflow_hooks", "iterators"),
    "tensorflow.python.checkpoint.checkpoint": ("tensorflow_hooks", "checkpoints"),
    "tensorflow.python.eager.backprop": ("tensorflow_hooks", "gradients"),
    "keras.src.callbacks.callback_list": ("keras_hooks", "callbacks"),
    "keras.src.models.model": ("keras_hooks", "models"),
    "keras.src.backend.tensorflow.trainer": ("keras_hooks", "trainer"),
    "keras.src.backend.torch.trainer": ("keras_hooks", "trainer"),
    "keras.src.backend.jax.trainer": ("keras_hooks", "trainer"),
    "keras.src.optimizers.base_optimizer": ("keras_hooks", "optimizers"),
    "numpy": ("array_hooks", "numpy"),
    "h5py._hl.dataset": ("array_hooks", "hdf5"),
    "zarr": ("array_hooks", "zarr"),
    "PIL.Image": ("array_hooks", "images"),
    "pandas": ("table_hooks", "pandas"),
    "pyarrow.parquet": ("table_hooks", "parquet"),
    "pyarrow.dataset": ("table_hooks", "arrow_datasets"),
    "lmdb": ("table_hooks", "lmdb"),
    "webdataset": ("table_hooks", "webdataset"),
    "orbax.checkpoint": ("orbax_hooks", "checkpointers"),
    "mpi4py.MPI": ("rank_hooks", "mpi"),
    "horovod.torch": ("rank_hooks", "horovod"),
    "horovod.tensorflow": ("rank_hooks", "horovod"),
}


class Context(NamedTuple):
    """Context of a hook. recording: recording of this process. name: function that returns a path in its recorded form.
    label: function that returns the name of a class or function in its recorded form.
    """

    recording: EventWriter
    name: Callable[[Any], str]
    label: Callable[[str], str]

    def file(self, path: Any) -> int | None:
        """Return the number of the file that a path or a stream refers to, or None for other objects."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            path = getattr(_innermost(path), "name", None)
        if not isinstance(path, (str, bytes, os.PathLike)):
            return None
        text = os.fsdecode(path)
        if ADDRESS.match(text):  # may hold a password or a signature
            return self.recording.file("", self.name("/" + text.partition("://")[0]))
        text = os.path.abspath(text)
        return self.recording.file(text, self.name(text))


# Attribute of a stream that has the stream of which it reads, by the type of the first.
_WITHIN = {
    ("_io", "TextIOWrapper"): "buffer", ("_io", "BufferedReader"): "raw", ("_io", "BufferedWriter"): "raw",
    ("_io", "BufferedRandom"): "raw", ("tempfile", "_TemporaryFileWrapper"): "file", ("gzip", "GzipFile"): "fileobj",
    ("fsspec.implementations.local", "LocalFileOpener"): "f",
}  # fmt: skip


def _innermost(stream: Any) -> Any:
    """Return the file that a stream leads to, or None. The name of a stream does not suffice, because a member of an
    archive also has the name of a file.
    """
    while (type(stream).__module__, type(stream).__name__) in _WITHIN:
        stream = getattr(stream, _WITHIN[type(stream).__module__, type(stream).__name__])
    return stream if (type(stream).__module__, type(stream).__name__) == ("_io", "FileIO") else None


_IN_THREAD = "the computation between batches, because a thread of the program asks for them"
# Makes the name of a file one that the module warnings takes for a part of importlib.
_SKIPPED = " (importlib._bootstrap)"
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_actions: dict[str, list[Callable[[ModuleType], None]]] = {}
# Depth of recorded calls in this thread: only the outermost one is recorded, because it calls the others.
_calls = threading.local()


def install(context: Context) -> None:
    """Wrap the functions of each library of TABLE as soon as it is imported."""
    for name, (module, function) in TABLE.items():
        after_import(name, functools.partial(_hook, context, module, function))
    sys.meta_path.insert(0, _Finder())


def _hook(context: Context, module: str, function: str, library: ModuleType) -> None:
    version = getattr(sys.modules.get(library.__name__.split(".")[0]), "__version__", None)
    context.recording.add("library", library.__name__, version)
    getattr(importlib.import_module("." + module, __package__), function)(context, library)


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call `action` with the module `name` after the module is imported. Call it immediately if the module is already
    imported.
    """
    module = sys.modules.get(name)
    if module is not None:
        action(module)
    else:
        _actions.setdefault(name, []).append(action)


class _Finder(MetaPathFinder):
    """Import finder that finds no module itself. After the loader of another finder has run, it calls the actions for
    the module.
    """

    def __init__(self) -> None:
        self._names = threading.local()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _actions or getattr(self._names, "current", None) == name:
            return None
        self._names.current = name
        try:
            spec = _found(name, path, target, self)
        finally:
            self._names.current = None
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            _act_after(spec, name)
        return spec


def _found(name: str, path: Sequence[str] | None, target: ModuleType | None, own: MetaPathFinder) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if finder is own or find is None else find(name, path, target)
        if spec is not None:
            return spec
    return None


def _act_after(spec: ModuleSpec, name: str) -> None:
    """Make the loader of a module call the module's actions after the module's code has run."""
    loader: Any = spec.loader
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        spec.loader = module.__loader__ = loader
        for action in _actions.pop(name, []):
            try:
                action(module)
            except Exception as fault:  # a library of a version that the recorder does not know
                if is_of_program(fault):
                    raise
                say(f"{name} is not recorded: {fault!r}")

    spec.loader = _Wrapped(loader, exec_module)


class _Wrapped(Loader):
    """Loader with another exec_module. It has all other attributes of the original loader."""

    def __init__(self, loader: Any, exec_module: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._run = exec_module

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._run(module)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self._loader, name)


Noted = Callable[[float, Any, Any, Any], None]


def wrap(context: Context, owner: Any, name: str, note: Noted, is_outermost: bool = False) -> None:
    """Replace a function of a module or class by its recorded() version. Also replace the function in the module that
    defines it, because pickle looks it up there. Do nothing if the owner has no such function.
    """
    function = getattr(owner, name, None)
    if function is None or hasattr(function, "_is_recorded"):
        return
    made = recorded(context, function, note, is_outermost)
    setattr(owner, name, made)
    home = sys.modules.get(getattr(function, "__module__", None) or "")
    if home is not None and getattr(home, name, None) is function:
        setattr(home, name, made)


def recorded(context: Context, function: Any, note: Noted, is_outermost: bool = False) -> Any:
    """Return a function that calls `function`, and then `note` with the seconds of the call, its positional and keyword
    arguments, and its result. If the call raises an exception, `note` is not called, and the exception is passed on
    unchanged. is_outermost: True to record only calls that are not made within another such call.
    """

    @functools.wraps(function)
    def called(*arguments: Any, **keys: Any) -> Any:
        depth: int = getattr(_calls, "depth", 0)
        if is_outermost and depth:
            return function(*arguments, **keys)
        begin = clock()
        try:
            _calls.depth = depth + is_outermost
            result = function(*arguments, **keys)
        finally:
            _calls.depth = depth
        seconds = clock() - begin
        try:
            note(seconds, arguments, keys, result)
        except Exception as fault:
            context.recording.fault(getattr(function, "__qualname__", ""), fault)
        return result

    called._is_recorded = True  # type: ignore[attr-defined]
    _sign(called)
    return unseen_by_warnings(called)


def _sign(function: Any) -> None:
    """Give a wrapper the signature of the wrapped function. inspect.getfullargspec() does not follow __wrapped__."""
    if "inspect" in sys.modules:  # which takes some time to import
        try:
            function.__signature__ = sys.modules["inspect"].signature(function)
        except (TypeError, ValueError):  # of a function in C
            return


def unseen_by_warnings(function: Any) -> Any:
    """Return a function whose frames Python skips when it looks for the caller that a warning refers to. Python skips
    frames of files with certain names.
    """
    function.__code__ = function.__code__.replace(co_filename=function.__code__.co_filename + _SKIPPED)
    return function


def wrap_next(context: Context, owner: Any, number: Callable[[Any], Any], order: Callable[[Any], Any]) -> None:
    """Wrap the __next__ of a loader's iterator. It records each batch, the time that the program waited for the batch,
    and the end of the pass. number: function that returns the number of an iterator's loader, or None if it is unknown.
    order: function that returns the order of the samples in the pass, or None.
    """
    following, recording = owner.__next__, context.recording

    @functools.wraps(following)
    def recorded_next(iterator: Any) -> Any:
        begin = clock()
        try:
            batch = following(iterator)
        except StopIteration:
            if number(iterator) is not None:
                recording.add("end_of_pass", number(iterator), round(clock() - begin, 7), order(iterator))
            raise
        seconds = clock() - begin
        try:
            if number(iterator) is None:
                raise LookupError("a batch of a loader that was not iterated")
            size, length = amount(batch)
            recording.add("batch", number(iterator), round(seconds, 7), length, size)
            if threading.current_thread() is not threading.main_thread():
                recording.add_once("unseen", "thread", _IN_THREAD)
        except Exception as fault:
            recording.fault("batch", fault)
        return batch

    owner.__next__ = unseen_by_warnings(recorded_next)


def argument(arguments: tuple[Any, ...], keys: dict[str, Any], place: int, name: str, default: Any = None) -> Any:
    """Return an argument of a call, which may be positional or a keyword argument."""
    return arguments[place] if len(arguments) > place else keys.get(name, default)


def transfer(context: Context, library: str, kind: str, place: int, key: str) -> Noted:
    """Return a function that records a state that is saved or restored. Argument `place` is the path or the stream of
    the state.
    """

    def noted(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        target = argument(arguments, keys, place, key)
        size = None
        if type(target).__module__ == "_io":  # others, such as that of gzip, tell what they were given
            size = None if target.closed else target.tell()
        elif isinstance(target, (str, bytes, os.PathLike)) and isfile(target):
            size = getsize(target)
        context.recording.add(kind, library, round(seconds, 6), context.file(target), size)

    return noted


# Types whose parts are looked at, and libraries whose arrays may be asked for their size without a side effect.
_LISTS, _DICTS = (list, tuple), (dict, OrderedDict, defaultdict)
_LIBRARIES = frozenset({"numpy", "torch", "tensorflow", "jax", "jaxlib", "cupy", "pandas", "pyarrow"})
_ARRAYS = frozenset({"ndarray", "Tensor"})


def amount(value: Any, room: int = 64) -> tuple[int, int | None]:
    """Return the bytes of all arrays in `value`, and the length of the first axis of the first array; None if there is
    no array. Lists, tuples, dicts and the attributes of objects are searched, up to `room` values. No function of the
    program's own objects is called, because a call may change the objects.
    """
    total, length, rest = 0, None, [value]
    while rest and room:
        room -= 1
        part = rest.pop()
        size, shape = _nbytes(part)
        if size is not None:
            total += size
            if length is None and shape and shape[0] is not None:
                length = int(shape[0])
        elif type(part) in _DICTS:
            rest.extend(reversed(list(dict.values(part))[:room]))
        elif type(part) in _LISTS or (issubclass(type(part), tuple) and hasattr(type(part), "_fields")):
            parts = tuple.__iter__(part) if issubclass(type(part), tuple) else list.__iter__(part)
            rest.extend(reversed(list(itertools.islice(parts, room))))
        elif not issubclass(type(part), type) and not callable(part):  # isinstance() asks an object for its class
            rest.extend(reversed(list(attributes(part).values())[:room]))
    return total, length


def attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object without calling any of its functions."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def _nbytes(value: Any) -> tuple[int | None, Any]:
    """Return the size in bytes and the shape of an array, a tensor or a bytes object; None for other values."""
    if type(value) in (bytes, bytearray):
        return len(value), None
    kinds = type(value).__mro__
    if kinds[0].__module__.partition(".")[0] not in _LIBRARIES and not any(kind.__name__ in _ARRAYS for kind in kinds):
        return None, None
    shape, size = asked(value, "shape"), asked(value, "nbytes")
    if isinstance(size, int):
        return size, shape
    dtype = asked(value, "dtype")
    width = asked(dtype, "size") or asked(dtype, "itemsize")
    if shape is None or not isinstance(width, int):
        return None, None
    # Of a sparse or ragged array, the shape does not tell the bytes.
    is_full = None not in tuple(shape) and "parse" not in type(value).__name__ + str(asked(value, "layout"))
    return functools.reduce(operator.mul, map(int, shape), width) if is_full else 0, shape


def asked(value: Any, name: str) -> Any:
    """Return an attribute of an object of the program or of a library. Return None if the object has no such attribute,
    or if reading it raises an exception.
    """
    try:
        return getattr(value, name, None)
    except Exception as fault:
        if is_of_program(fault):
            raise
        return None
