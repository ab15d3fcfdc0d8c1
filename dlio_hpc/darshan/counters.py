"""Types of the records in a Darshan log, by module and record version. Counters have the names of Darshan's headers."""

import numpy as np

_BINS = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS")
_TIMES = """F_OPEN_START_TIMESTAMP F_READ_START_TIMESTAMP F_WRITE_START_TIMESTAMP F_CLOSE_START_TIMESTAMP
    F_OPEN_END_TIMESTAMP F_READ_END_TIMESTAMP F_WRITE_END_TIMESTAMP F_CLOSE_END_TIMESTAMP F_READ_TIME F_WRITE_TIME
    F_META_TIME F_MAX_READ_TIME F_MAX_WRITE_TIME"""
_RANKS = "FASTEST_RANK FASTEST_RANK_BYTES SLOWEST_RANK SLOWEST_RANK_BYTES"
_SPREAD = "F_FASTEST_RANK_TIME F_SLOWEST_RANK_TIME F_VARIANCE_RANK_TIME F_VARIANCE_RANK_BYTES"

_HYPERSLAB = " ".join(
    ["ACCESS#_ACCESS", *(f"ACCESS#_{part}_D{axis}" for part in ("LENGTH", "STRIDE") for axis in range(1, 6))]
)


def _four(text: str) -> str:
    return " ".join(text.replace("#", str(number)) for number in range(1, 5))


def _sizes(name: str) -> str:
    return " ".join(f"{name}_{size}" for size in _BINS)


_POSIX = f"""OPENS FILENOS DUPS READS WRITES SEEKS STATS MMAPS FSYNCS FDSYNCS RENAME_SOURCES RENAME_TARGETS RENAMED_FROM
    MODE BYTES_READ BYTES_WRITTEN MAX_BYTE_READ MAX_BYTE_WRITTEN CONSEC_READS CONSEC_WRITES SEQ_READS SEQ_WRITES
    RW_SWITCHES MEM_NOT_ALIGNED MEM_ALIGNMENT FILE_NOT_ALIGNED FILE_ALIGNMENT MAX_READ_TIME_SIZE MAX_WRITE_TIME_SIZE
    {_sizes("SIZE_READ")} {_sizes("SIZE_WRITE")} {_four("STRIDE#_STRIDE")} {_four("STRIDE#_COUNT")}
    {_four("ACCESS#_ACCESS")} {_four("ACCESS#_COUNT")} {_RANKS} {_TIMES} {_SPREAD}"""
_MPIIO = f"""INDEP_OPENS COLL_OPENS INDEP_READS INDEP_WRITES COLL_READS COLL_WRITES SPLIT_READS SPLIT_WRITES NB_READS
    NB_WRITES SYNCS HINTS VIEWS MODE BYTES_READ BYTES_WRITTEN RW_SWITCHES MAX_READ_TIME_SIZE MAX_WRITE_TIME_SIZE
    {_sizes("SIZE_READ_AGG")} {_sizes("SIZE_WRITE_AGG")} {_four("ACCESS#_ACCESS")} {_four("ACCESS#_COUNT")} {_RANKS}
    {_TIMES} {_SPREAD}"""
_STDIO = f"""OPENS FDOPENS READS WRITES SEEKS FLUSHES BYTES_WRITTEN BYTES_READ MAX_BYTE_READ MAX_BYTE_WRITTEN {_RANKS}
    F_META_TIME F_WRITE_TIME F_READ_TIME F_OPEN_START_TIMESTAMP F_CLOSE_START_TIMESTAMP F_WRITE_START_TIMESTAMP
    F_READ_START_TIMESTAMP F_OPEN_END_TIMESTAMP F_CLOSE_END_TIMESTAMP F_WRITE_END_TIMESTAMP F_READ_END_TIMESTAMP
    {_SPREAD}"""
_H5F = """OPENS FLUSHES USE_MPIIO F_OPEN_START_TIMESTAMP F_CLOSE_START_TIMESTAMP F_OPEN_END_TIMESTAMP
    F_CLOSE_END_TIMESTAMP F_META_TIME"""
_H5D = f"""OPENS READS WRITES FLUSHES BYTES_READ BYTES_WRITTEN RW_SWITCHES REGULAR_HYPERSLAB_SELECTS
    IRREGULAR_HYPERSLAB_SELECTS POINT_SELECTS MAX_READ_TIME_SIZE MAX_WRITE_TIME_SIZE {_sizes("SIZE_READ_AGG")}
    {_sizes("SIZE_WRITE_AGG")} {_four(_HYPERSLAB)} {_four("ACCESS#_COUNT")} DATASPACE_NDIMS DATASPACE_NPOINTS
    DATATYPE_SIZE {" ".join(f"CHUNK_SIZE_D{axis}" for axis in range(1, 6))} USE_MPIIO_COLLECTIVE USE_DEPRECATED {_RANKS}
    {_TIMES} {_SPREAD}"""

# Counters by module and record version.
_RECORDS = {
    ("POSIX", 4): _POSIX,
    ("MPI-IO", 3): _MPIIO,
    ("STDIO", 2): _STDIO,
    ("H5F", 3): _H5F,
    ("H5D", 1): _H5D,
    ("H5D", 2): _H5D,
}
_SEGMENT = [("offset", "<i8"), ("length", "<i8"), ("start", "<f8"), ("end", "<f8")]
_WITH_THREAD = [*_SEGMENT, ("thread", "<u8")]
_SEGMENTS = {
    ("DXT_POSIX", 1): _SEGMENT, ("DXT_POSIX", 2): _WITH_THREAD,
    ("DXT_MPIIO", 2): _SEGMENT, ("DXT_MPIIO", 3): _WITH_THREAD,
}  # fmt: skip

# Header in front of the segments that belong to a file and a rank. Segments of writes come before those of reads.
TRACED = np.dtype([
    ("id", "<u8"), ("rank", "<i8"), ("shared", "<i8"), ("host", "S64"), ("writes", "<i8"), ("reads", "<i8"),
])  # fmt: skip

# Names of modules, in the order of their numbers in the log header.
MODULES = (
    "NULL", "POSIX", "MPI-IO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "BG/Q", "LUSTRE", "STDIO", "DXT_POSIX",
    "DXT_MPIIO", "MDHIM", "APXC", "APMPI", "HEATMAP", "DFS", "DAOS",
)  # fmt: skip


def record_type(module: str, version: int) -> np.dtype[np.void] | None:
    """Return the record type of a counting module, or None if the version is unknown."""
    names = _RECORDS.get((module, version))
    if names is None:
        return None
    fields = [(name, "<f8" if name.startswith("F_") else "<i8") for name in names.split()]
    # since version 2, a record of a dataset has the id of its file
    of_file = [("file_id", "<u8")] if (module, version) == ("H5D", 2) else []
    return np.dtype([("id", "<u8"), ("rank", "<i8"), *of_file, *fields])


def segment_type(module: str, version: int) -> np.dtype[np.void] | None:
    """Return the segment type of a tracing module, or None if the version is unknown."""
    fields = _SEGMENTS.get((module, version))
    return None if fields is None else np.dtype(fields)
