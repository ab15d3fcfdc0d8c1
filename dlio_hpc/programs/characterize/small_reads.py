"""Small reads of dataset files that do not read samples. For example, they read labels from a second array. The
workload emulates them as reads of auxiliary files. The library of a format makes some reads by itself, such as reads of
HDF5's headers and indexes. These are left out, because the emulation uses the same library.
"""

from typing import Any

import numpy as np

from dlio_hpc.base.units import counted, format_size
from dlio_hpc.programs.files import extents
from dlio_hpc.programs.files.auxiliary_files import AuxiliaryGroup
from dlio_hpc.programs.files.extents import Integers, Reads

# Sizes in bytes of HDF5's reads of its superblock, object headers, symbol tables and heaps.
_HDF5 = (8, 40, 48, 80, 88, 96, 120, 136, 256, 272, 328, 384, 512, 544, 1024)
# Smallest share of a program's reads that are worth an auxiliary file, and largest number of auxiliary files.
_SHARE, _MOST = 0.01, 3
# Reads that are spread over more than this share of the time between the first read and the last happen in every step.
_SPREAD = 0.6


def groups(reads: Reads, name: str, steps: int | None, epochs: int) -> list[AuxiliaryGroup]:
    """Return auxiliary files for the small reads of a dataset: one for each request size, the most frequent size first.
    reads: all reads of the dataset. name: format of the dataset. steps: number of steps of a rank in the whole run;
    None if it is unknown. epochs: number of epochs.
    """
    if name != "hdf5":
        return []
    small = ~extents.of_samples(reads, True) & ~np.isin(reads.length, _HDF5) & ~extents.is_index_read(reads.length)
    sizes, counts = np.unique(reads.length[small], return_counts=True)
    chosen = np.argsort(-counts, kind="stable")[:_MOST]
    return [
        _group(reads, np.flatnonzero(small & (reads.length == sizes[at])), f"array-{number}", steps, epochs)
        for number, at in enumerate(chosen.tolist(), 1)
        if counts[at] >= _SHARE * len(reads.rank)
    ]


def _group(reads: Reads, at: Integers, name: str, steps: int | None, epochs: int) -> AuxiliaryGroup:
    """Return the auxiliary file for the reads with the indices `at`, which all have the same size."""
    size, ranks = int(reads.length[at[0]]), len(np.unique(reads.rank))
    per_rank = len(at) / ranks
    start = reads.start[at]
    covered = len(np.unique(np.floor(40 * (start - reads.start.min()) / max(np.ptp(reads.start), 1e-9)))) / 40
    by_step = steps is not None and per_rank >= 0.9 * steps and covered > _SPREAD
    when, times = ("step", steps or 1) if by_step else ("epoch", epochs) if per_rank >= epochs else ("start", 1)
    distinct = len(np.unique(reads.offset[at]))
    keys: dict[str, Any] = {"name": name, "bytes": size, "count": max(1, round(per_rank / times)), "access": "read"}
    keys |= {"when": when, "by": "all", "size": size * distinct, "random": True}
    evidence = f"{len(at):,} reads of {format_size(size)} in the dataset's files, at "
    f"{counted(distinct, 'place')}, read no samples"
    return AuxiliaryGroup(keys, evidence)
