"""Parquet files as workloads. A row group is treated as a sample, because a log shows the bytes of a row group, but
neither its rows nor its columns.
"""

import numpy as np

from dlio_hpc.base.units import format_size
from dlio_hpc.programs.characterize.evidence import DerivedValue, weaker
from dlio_hpc.programs.files import extents
from dlio_hpc.programs.files.extents import Reads

# Bytes of the end of a file that pyarrow reads when it opens the file.
_FOOTER = 64 << 10
# Limit on the bytes of a column of a row group, which dlio-hpc makes as a single column.
_LARGEST = 1 << 30
_UNSEEN = "a row group is treated as a sample; a log shows neither its rows nor its columns"


def without_footers(reads: Reads) -> Reads:
    """Return the reads of row groups. Reads of footers, at the end of a file when it is opened, are left out."""
    size = reads.sizes[reads.file]
    is_footer = (reads.offset + reads.length == size) & (reads.length == _FOOTER) & (size > _FOOTER)
    return reads if is_footer.all() else extents.chosen(reads, ~is_footer)


def share_read(reads: Reads) -> float:
    """Return the share of the bytes of the files that was read. reads: all reads of the files, including the reads of
    footers.
    """
    sizes = reads.sizes[np.unique(reads.file)]
    return min(1.0, float(extents.distinct(reads).sum()) / max(float(sizes.sum()), 1.0))


def geometry(keys: dict[str, DerivedValue]) -> dict[str, DerivedValue]:
    """Return the keys of the samples of Parquet files, if each row group is treated as a sample. Return an empty dict
    for files of other formats.
    """
    if keys["dataset.format"].value != "parquet":
        return {}
    parts = -(-keys["dataset.sample.bytes"].value // _LARGEST)
    made = {
        name: _unsure(keys[name], max(1, keys[name].value // parts if divides else keys[name].value * parts), parts)
        for name, divides in (
            ("dataset.sample.bytes", True), ("dataset.samples_per_file", False), ("reader.batch_size", False),
        )
    }  # fmt: skip
    return made | {"dataset.row_group": DerivedValue(1, "unknown", _UNSEEN)}


def _unsure(value: DerivedValue, number: int, parts: int) -> DerivedValue:
    evidence = f"{value.evidence}; {_UNSEEN}"
    if parts > 1:
        evidence += f"; divided by {parts}, because a column of a row group has at most {format_size(_LARGEST)}"
    return DerivedValue(number, weaker(value.confidence, "low"), evidence)
