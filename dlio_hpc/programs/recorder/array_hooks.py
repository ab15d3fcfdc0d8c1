"""Hooks for arrays and images: numpy.load, memory maps, h5py, Zarr, PIL."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

from .hooks import Context, amount, argument, recorded, wrap


def numpy(context: Context, module: ModuleType) -> None:
    """Record files of arrays that are read and mapped. Functions that write are not wrapped, because array classes may
    register their own versions of them (NEP 18). Python's open() shows the files that they write.
    """

    def noted(name: str, key: str) -> Any:
        def called(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
            number = context.file(argument(arguments, keys, 0, key))
            if type(result).__name__ == "NpzFile":
                result._dlio_file = number
            elif type(result).__name__ == "memmap":
                context.recording.add("map", "numpy", number, amount(result)[0])
            else:
                size, length = amount(result)
                context.recording.add("read", "numpy." + name, round(seconds, 7), number, size, length, None)

        return called

    for name, key in (("load", "file"), ("fromfile", "file"), ("loadtxt", "fname"), ("genfromtxt", "fname")):
        wrap(context, module, name, noted(name, key), is_outermost=True)
    _archives(context, module)
    _maps(context, module)


def _archives(context: Context, module: ModuleType) -> None:
    """Record the arrays of .npz files. NumPy reads an array when the program asks for it."""

    def taken(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        size, length = amount(result)
        number = getattr(arguments[0], "_dlio_file", None)
        member = position(arguments[0], argument(arguments, keys, 1, "key"))
        context.recording.add("read", "numpy.npz", round(seconds, 7), number, size, length, member)

    def position(archive: Any, name: Any) -> "list[Any] | None":
        """Return the position of an array in its archive, in the form that the recording uses for the place of a
        read.
        """
        names = getattr(archive, "files", None)
        if type(name) is not str or type(names) is not list:
            return None
        short = name[:-4] if name.endswith(".npy") and name not in names else name
        return [names.index(short), None, None] if short in names else None

    wrap(context, module.lib.npyio.NpzFile, "__getitem__", taken)


def _maps(context: Context, module: ModuleType) -> None:
    """Record memory maps. Reads through a map are not calls, so they cannot be recorded."""

    def mapped(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        target = argument(arguments, keys, 1, "filename")
        context.recording.add("map", "numpy", context.file(target), amount(result)[0])

    module.memmap.__new__ = staticmethod(recorded(context, module.memmap.__new__, mapped, is_outermost=True))


def hdf5(context: Context, module: ModuleType) -> None:
    """Record the parts of HDF5 datasets that are read and written. The layout of each dataset is recorded once."""
    known: dict[int, tuple[Any, int | None, int]] = {}
    arrays: dict[tuple[str, str], int] = {}

    def of(dataset: Any) -> tuple[int | None, int]:
        """Return the numbers of the file and of the array. Names are looked up once for each object of h5py."""
        entry = known.get(id(dataset))
        if entry is not None and entry[0]() is dataset:
            return entry[1], entry[2]
        path, name = dataset.file.filename, dataset.name
        number = context.file(path)
        if (path, name) not in arrays:
            arrays[path, name] = len(arrays)
            shape, chunks = list(dataset.shape or ()), dataset.chunks and list(dataset.chunks)
            context.recording.add(
                "array",
                arrays[path, name],
                number,
                shape,
                dataset.dtype.itemsize,
                chunks,
                dataset.compression,
                str(dataset.dtype) if dataset.dtype.base.names is None else "compound",  # its fields have names
            )
        if len(known) > 4096:
            known.clear()
        known[id(dataset)] = weakref.ref(dataset), number, arrays[path, name]
        return number, arrays[path, name]

    def noted(kind: str) -> Any:
        def called(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
            number, array = of(arguments[0])
            size, length = amount(result if kind == "read" else arguments[2])
            context.recording.add(kind, "h5py", round(seconds, 7), number, size, length, [array, *_first(arguments[1])])

        return called

    wrap(context, module.Dataset, "__getitem__", noted("read"), is_outermost=True)
    wrap(context, module.Dataset, "__setitem__", noted("write"), is_outermost=True)

    def placed(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        number, array = of(arguments[0])
        size, length = amount(argument(arguments, keys, 1, "dest"))
        selection = argument(arguments, keys, 2, "source_sel")
        context.recording.add("read", "h5py", round(seconds, 7), number, size, length, [array, *_first(selection)])

    wrap(context, module.Dataset, "read_direct", placed, is_outermost=True)


def _first(selection: Any) -> list[int | None]:
    """Return the index of the first selected row and the number of rows, if the selection shows them without access to
    the data.
    """
    part = selection[0] if isinstance(selection, tuple) and selection else selection
    if isinstance(part, slice):
        return [part.start, None if part.start is None or part.stop is None else part.stop - part.start]
    if hasattr(part, "__len__") and not isinstance(part, (str, bytes)):
        return [int(part[0]) if len(part) and not isinstance(part[0], str) else None, len(part)]
    return [int(part), 1] if hasattr(part, "__index__") else [None, None]


def zarr(context: Context, module: ModuleType) -> None:
    """Record the parts of Zarr arrays that are read and written."""

    def noted(kind: str) -> Any:
        def called(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
            array = arguments[0]
            size, length = amount(result if kind == "read" else arguments[2])
            number = context.file(_zarr_path(array))
            context.recording.add(kind, "zarr", round(seconds, 7), number, size, length, [0, *_first(arguments[1])])

        return called

    wrap(context, module.Array, "__getitem__", noted("read"), is_outermost=True)
    wrap(context, module.Array, "__setitem__", noted("write"), is_outermost=True)


def _zarr_path(array: Any) -> str:
    store = array.store
    root = getattr(store, "root", None) or getattr(store, "path", None) or type(store).__name__
    return f"{root}/{getattr(array, 'path', '')}"


def images(context: Context, module: ModuleType) -> None:
    """Record images that are opened, with their format and size in pixels."""

    def opened(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        number = context.file(argument(arguments, keys, 0, "fp"))
        width, height = result.size
        pixels = width * height * len(result.getbands())
        context.recording.add("read", "PIL." + str(result.format), round(seconds, 7), number, pixels, 1, None)

    wrap(context, module, "open", opened, is_outermost=True)
