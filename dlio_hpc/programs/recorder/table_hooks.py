"""Hooks for tables and stores of records: pandas, pyarrow, LMDB, WebDataset."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from .hooks import Context, argument, wrap

# Functions of pandas that read a file, and the name of their first argument.
_PANDAS = {
    "read_csv": "filepath_or_buffer", "read_table": "filepath_or_buffer", "read_parquet": "path",
    "read_hdf": "path_or_buf", "read_feather": "path", "read_pickle": "filepath_or_buffer",
    "read_json": "path_or_buf", "read_orc": "path",
}  # fmt: skip

# Classes of pandas that read a file in pieces.
_PIECES = ("TextFileReader", "TableIterator")


def pandas(context: Context, module: ModuleType) -> None:
    """Record tables that are read, whole or in pieces."""

    def noted(name: str, key: str) -> Any:
        def called(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
            source = argument(arguments, keys, 0, key)
            number = None if name == "read_json" and _is_text(source) else context.file(source)
            if type(result).__module__.startswith("pandas.") and type(result).__name__ in _PIECES:
                result._dlio_file = number
                return
            size, rows = _table(result)
            context.recording.add("read", "pandas." + name, round(seconds, 7), number, size, rows, None)

        return called

    for name, key in _PANDAS.items():
        wrap(context, module, name, noted(name, key), is_outermost=True)

    def piece(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        number = getattr(arguments[0], "_dlio_file", None)
        if number is not None:
            context.recording.add("read", "pandas.read_csv", round(seconds, 7), number, *_table(result), None)

    wrap(context, module.io.parsers.TextFileReader, "read", piece, is_outermost=True)
    for function in (*(getattr(module, name, None) for name in _PANDAS), module.io.parsers.TextFileReader.read):
        if hasattr(function, "_is_recorded"):
            _seem_of(module, function)


def _seem_of(module: ModuleType, function: Any) -> None:
    """Make frames of a wrapper look like frames of pandas. When pandas warns, it looks for the first frame that is not
    its own.
    """
    name = os.path.join(os.path.dirname(str(module.__file__)), "dlio_recorder.py")
    function.__code__ = function.__code__.replace(co_filename=name)


def _is_text(source: Any) -> bool:
    """Return whether a string is text that pandas parses, and not a path or URL. Older versions of pandas accept such
    text.
    """
    return isinstance(source, str) and source.lstrip()[:1] in ("{", "[") and not os.path.exists(source)


def _table(table: Any) -> tuple[int | None, int | None]:
    """Return the bytes of a table, assuming eight per value, and its number of rows. Objects that a program has
    unpickled are not examined.
    """
    is_table = any(kind.__module__.startswith("pandas.") for kind in type(table).__mro__)
    shape = getattr(table, "shape", None) if is_table else None
    if not shape:
        return None, None
    return 8 * int(shape[0]) * (int(shape[1]) if len(shape) > 1 else 1), int(shape[0])


def parquet(context: Context, module: ModuleType) -> None:
    """Record what is read from Parquet files: tables, row groups, batches of rows."""

    def read(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        number = context.file(argument(arguments, keys, 0, "source"))
        rows = getattr(result, "num_rows", None)
        context.recording.add("read", "pyarrow.parquet", round(seconds, 7), number, result.nbytes, rows, None)

    wrap(context, module, "read_table", read, is_outermost=True)

    def opened(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        own = arguments[0]
        own._dlio_file = context.file(argument(arguments, keys, 1, "source"))
        facts = own.metadata
        context.recording.add("table", own._dlio_file, facts.num_rows, facts.num_row_groups, facts.num_columns)

    def group(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        number, which = getattr(arguments[0], "_dlio_file", None), argument(arguments, keys, 1, "i")
        place = which if isinstance(which, int) else None
        context.recording.add(
            "read", "pyarrow.row_group", round(seconds, 7), number, result.nbytes, result.num_rows, [0, place, 1]
        )

    wrap(context, module.ParquetFile, "__init__", opened)
    for name in ("read", "read_row_group", "read_row_groups"):
        wrap(context, module.ParquetFile, name, group, is_outermost=True)


def arrow_datasets(context: Context, module: ModuleType) -> None:
    """Record datasets of pyarrow. pyarrow's own threads make the reads, which are not recorded."""

    def made(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        for path in list(getattr(result, "files", []))[:100_000]:
            context.recording.add("open", context.file(path), 0)
        context.recording.add("unseen", "pyarrow.dataset", "reads of pyarrow.dataset are made by threads in C++")

    wrap(context, module, "dataset", made, is_outermost=True)


def lmdb(context: Context, module: ModuleType) -> None:
    """Record LMDB environments. Values are read through a memory map, so these reads are not calls and cannot be
    recorded.
    """

    def opened(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        path = argument(arguments, keys, 0, "path")
        number = context.file(path)
        facts = result.stat()
        context.recording.add("map", "lmdb", number, facts.get("psize", 0) * result.info().get("last_pgno", 0))
        context.recording.add("table", number, facts.get("entries"), None, None)

    wrap(context, module, "open", opened, is_outermost=True)


def webdataset(context: Context, module: ModuleType) -> None:
    """Record the settings of WebDataset pipelines. The archives are recorded as files, because Python itself opens
    them.
    """

    def made(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        settings = {key: value for key, value in keys.items() if isinstance(value, (bool, int, float))}
        context.recording.add("stage", None, None, "WebDataset", [], settings)

    wrap(context, module.WebDataset, "__init__", made)
