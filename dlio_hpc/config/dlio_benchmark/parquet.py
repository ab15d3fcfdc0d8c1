"""The columns and row groups of a workload of dlio_benchmark with Parquet files."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dlio_hpc.config.dataset_keys import COLUMN_BYTES, ColumnType
from dlio_hpc.config.dlio_benchmark.fact import Fact
from dlio_hpc.config.dlio_benchmark.source import SourceWorkload

_COLUMNS = "dataset.parquet.columns"


class SourceColumn(NamedTuple):
    """A column of the workload. is_read: whether its key `read` is true."""

    name: str
    dtype: ColumnType
    size: int
    is_read: bool

    @property
    def target(self) -> dict[str, Any]:
        """The column in the form of the key dataset.columns of dlio-hpc."""
        size = {} if self.size == 1 else {"size": self.size}
        return {"name": self.name, "dtype": self.dtype, **size}


def columns(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about the columns. Raise ConfigError for types of columns that dlio-hpc does not support."""
    listed = _listed(source)
    total = sum(column.size * COLUMN_BYTES[column.dtype] for column in listed)
    text = f"{len(listed)} columns, {total} bytes"
    yield Fact(_COLUMNS, "mapped", text, "dataset.columns", [column.target for column in listed])
    yield Fact("dataset.record_length_bytes", "ignored", "the size of a sample follows from the columns")
    options = source["storage.storage_options"]
    chosen = options.get("columns") if isinstance(options, dict) else None
    if chosen:
        names = [str(name) for name in chosen]
        yield Fact("storage.storage_options", "mapped", f"{len(names)} columns are read", "reader.columns", names)
        return
    read = [column.name for column in listed if column.is_read]
    if 0 < len(read) < len(listed):
        yield Fact(_COLUMNS, "mapped", f"{len(read)} columns have read: true", "reader.columns", read)


def _listed(source: SourceWorkload) -> list[SourceColumn]:
    value = source[_COLUMNS]
    if not isinstance(value, list):
        raise source.refused(_COLUMNS, "expected a list of columns, such as [{name: label, dtype: float32}]")
    return [_column(source, item) for item in value]


def _column(source: SourceWorkload, item: object) -> SourceColumn:
    given = item if isinstance(item, dict) else {"name": item}
    name, dtype, size = str(given.get("name", "data")), given.get("dtype", "float32"), given.get("size", 1)
    dtype = "float32" if dtype == "list" else dtype
    if dtype not in COLUMN_BYTES:
        raise source.refused(
            f"{_COLUMNS}", f"column {name}: dlio-hpc does not support columns of type {dtype}; use one of: "
            f"{', '.join(COLUMN_BYTES)}"
        )  # fmt: skip
    if type(size) is not int or size < 1:
        raise source.refused(_COLUMNS, f"column {name}: expected a size from 1, not {size}")
    return SourceColumn(name, dtype, size, bool(given.get("read", True)))


def row_groups(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about row groups. The generator of dlio_benchmark begins a row group with each batch that it
    writes.
    """
    samples, batch = source["dataset.parquet.row_group_size"], source["dataset.parquet.generation_batch_size"]
    key, batch_key = "dataset.parquet.row_group_size", "dataset.parquet.generation_batch_size"
    if not 0 < batch < samples:
        yield Fact(key, "mapped", "", "dataset.row_group", samples)
        if batch > samples and batch % samples:
            yield Fact(
                batch_key, "approximated", "in dlio-hpc, the last row group of a batch is as large as the others"
            )
    else:
        yield Fact(batch_key, "mapped", "a row group is no larger than a batch", "dataset.row_group", batch)
        yield Fact(key, "ignored", f"see {batch_key}")
