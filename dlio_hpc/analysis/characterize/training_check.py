"""Check whether the I/O of a program looks like training. By default, no workload is derived for other programs."""

from collections.abc import Sequence

from dlio_hpc.analysis.log import file_roles
from dlio_hpc.analysis.log.file_roles import Role
from dlio_hpc.units import format_size

# Smallest number of data files, and smallest number of times that they are read, by which training data are
# distinguished from other input.
_MANY_FILES, _AGAIN = 8, 1.5


def against(roles: Sequence[Role]) -> list[str]:
    """Return the reasons why the program's I/O does not look like training. Return an empty list if there are none."""
    data = file_roles.of(roles, "dataset")
    written = [*file_roles.of(roles, "output"), *file_roles.of(roles, "checkpoint")]
    size, out = sum(file.bytes_read for file in data), sum(file.bytes_written for file in written)
    if not size:
        return [f"it wrote {format_size(out)}, and read no data except programs and libraries"]
    times = size / max(sum(file.size * max(file.ranks, 1) for file in data), 1)  # per rank that opened a file
    if times > _AGAIN:
        return []
    once = f"its {len(data):,} data file(s) were not read repeatedly ({times:.2g} times per rank)"
    if (collective := sum(file.collective for file in written)) and out > size:
        return [once, f"{format_size(out)} were written, with {collective:,} collective MPI-IO calls"]
    is_known = len(data) >= _MANY_FILES and all(file_roles.is_known(file.path) for file in data)
    if out >= 0.5 * size and not is_known:
        return [once, f"{format_size(out)} were written, {format_size(size)} read"]
    return []
