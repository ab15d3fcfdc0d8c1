"""Does a program read as one that learns from data does? A log that holds something else is not forced into a
workload.
"""

from collections.abc import Sequence

from dlio_hpc.analysis.log import file_roles
from dlio_hpc.analysis.log.file_roles import Role
from dlio_hpc.units import format_size

# As many files of data, or read so often, that it is no program's input.
_MANY_FILES, _AGAIN = 8, 1.5


def against(found: Sequence[Role]) -> list[str]:
    """What speaks against it, in words; empty where nothing does."""
    data = file_roles.of(found, "dataset")
    written = [*file_roles.of(found, "output"), *file_roles.of(found, "checkpoint")]
    size, out = sum(file.bytes_read for file in data), sum(file.bytes_written for file in written)
    if not size:
        return [f"it read no data: {format_size(out)} were written, the rest are programs and libraries"]
    times = size / max(sum(file.size * max(file.ranks, 1) for file in data), 1)  # by each of the ranks that opened it
    if times > _AGAIN:
        return []
    once = f"its {len(data):,} data file(s) were read once ({times:.2g} times by a rank)"
    if (collective := sum(file.collective for file in written)) and out > size:
        return [once, f"{format_size(out)} were written, with {collective:,} collective MPI-IO calls"]
    is_known = len(data) >= _MANY_FILES and all(file_roles.is_known(file.path) for file in data)
    if out >= 0.5 * size and not is_known:
        return [once, f"{format_size(out)} were written, {format_size(size)} read"]
    return []
