"""Files of the dataset of a recorded program, and the shape of their samples."""

import math
import os
import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlio_hpc.programs.files import file_roles
from dlio_hpc.programs.recordings import tensorflow_pipelines
from dlio_hpc.programs.recordings.recorded_program import RankRecording, stages_of
from dlio_hpc.programs.recordings.recording_files import Event, ProcessRecording

# An array that has fewer bytes than the others of its file by this factor is a label.
LABEL = 64
# Formats by the library that reads, and by the ending of files that Python itself opens.
_LIBRARIES = {
    "h5py": "hdf5", "numpy.npz": "npz", "numpy.load": "raw", "numpy.fromfile": "raw", "pandas.read_csv": "csv",
    "pandas.read_table": "csv", "numpy.loadtxt": "csv", "numpy.genfromtxt": "csv", "pandas.read_parquet": "parquet",
    "pyarrow.parquet": "parquet", "pyarrow.row_group": "parquet", "TFRecordDatasetV2": "tfrecord",
    "pandas.read_hdf": "hdf5",
}  # fmt: skip
_ENDINGS = {"h5": "hdf5", "hdf5": "hdf5", "npz": "npz", "csv": "csv", "parquet": "parquet", "tfrecord": "tfrecord"}
# Libraries that read through memory maps, and files that are of no format of a workload, by library or ending.
_MAPS = ("numpy map", "lmdb map")
_FOREIGN = {"lmdb map": "an LMDB environment", "numpy map": "files that are mapped into memory"}
# Number of times that a copy of a dataset is read.
_AGAIN = 3
_TEMPORARY = ("/tmp/pymp-", "/tmp/tmp")


class Read(NamedTuple):
    """A read, or an open if the reads could not be recorded. library: library that reads; empty for an open by Python.
    size: bytes of the result in memory; None for an open. rows: length of the first axis. place: array, first row,
    number of rows. process: file of the recording of the process. is_first: whether the file was opened since its
    previous read. member: position of an array in an archive of NumPy; None if it is unknown.
    """

    time: float
    seconds: float
    library: str
    path: str
    size: int | None
    rows: int | None
    place: list[Any] | None
    process: Path
    is_first: bool = False
    member: int | None = None


class Arrays(NamedTuple):
    """HDF5 arrays of the same shape and type. shapes: shapes of the arrays in all files. per_file: number of such
    arrays in a file. These arrays hold parts of the same samples. itemsize: bytes of a value. chunks, compression: None
    if there are none.
    """

    shapes: list[list[int]]
    per_file: int
    itemsize: int
    chunks: list[int] | None
    compression: str | None


class OtherReads(NamedTuple):
    """Reads in the training passes that are not reads of the dataset. reads: number of reads and opens. bytes: known
    bytes of their results. of_data: number of reads and opens of the dataset. bytes_of_data: bytes of the results of
    the reads of the dataset. path: the most frequently read file outside the dataset.
    """

    reads: int
    bytes: int
    of_data: int
    bytes_of_data: int
    path: str


class RecordedData(NamedTuple):
    """Dataset of a program. library: library that makes most of the reads; empty if Python itself makes them. format:
    value of `dataset.format`. files: size of each file by path; None if it is unknown. reads: reads of all ranks, in
    the order of time. is_memory: whether the dataset was read before the first pass. arrays: arrays of the kind from
    which most bytes were read, if h5py reads. rows: number of rows by path, for files that state it. made: number of
    files that the program wrote before the first pass. is_mapped: whether the files were read through memory maps.
    form: description of the files if no format of a workload is similar; otherwise empty. other_reads: reads of other
    data in the passes; None if there are none.
    """

    library: str
    format: str
    files: dict[str, int | None]
    reads: list[Read]
    is_memory: bool
    arrays: Arrays | None
    rows: dict[str, int]
    made: int = 0
    is_mapped: bool = False
    form: str = ""
    other_reads: OtherReads | None = None

    @property
    def sizes(self) -> list[int]:
        return [size for size in self.files.values() if size is not None]

    @property
    def usual(self) -> int:
        """Mean size of a file. The recorder stores only the sizes of the first files. The other files are assumed to be
        similar.
        """
        return round(statistics.mean(self.sizes)) if self.sizes else 0


def of_pipeline(ranks: Sequence[RankRecording], name: str) -> RecordedData | None:
    """Return the dataset of a tf.data pipeline from the file names in the pipeline. Return None if the pipeline has
    none.
    """
    pipelines = [tensorflow_pipelines.of(stages_of(rank.main), name) for rank in ranks]
    sizes = _sizes([rank.main for rank in ranks])
    paths = sorted({path for pipeline in pipelines if pipeline is not None for path in pipeline.files})
    kind = next((pipeline.format for pipeline in pipelines if pipeline is not None and pipeline.format), "")
    if not paths:
        return None
    files = {path: sizes.get(path) for path in paths}
    return RecordedData("tf.data", kind or _ENDINGS.get(_ending(paths[0]), "raw"), files, [], False, None, {})


def of(ranks: Sequence[RankRecording], spans: Sequence[tuple[float, float]]) -> RecordedData | None:
    """Return the dataset: the files that are read during the passes of the training loader or, if there are none,
    before these passes. spans: begin and end of the passes. Return None if no read of a file was recorded.
    """
    processes = [process for rank in ranks for process in rank.processes]
    first = min((begin for begin, _ in spans), default=math.inf)
    made, written = _written(processes, first)
    sizes = _sizes(processes)
    reads = sorted(
        (read for process in processes for read in _reads(process) if read.path not in written and _is_data(read.path)),
        key=lambda read: read.time,
    )
    # Passes say what they read, but a map is made before them.
    timed = [] if math.isinf(first) else [read for read in reads if read.library not in _MAPS]
    reads = [*timed, *_without_evaluation([read for read in reads if not timed or read.library in _MAPS])]
    last = max((end for _, end in spans), default=-math.inf)
    parts = merged(spans)
    inside = [read for read in reads if (read.library in _MAPS and read.time <= last) or is_in(read.time, parts)]
    is_memory = not inside
    kept = _largest(inside or [read for read in reads if read.time <= first], sizes)
    if not kept:
        return None
    library = Counter(read.library for read in kept).most_common(1)[0][0]
    paths = {read.path: sizes.get(read.path) for read in kept}
    kind = _LIBRARIES.get(library) or _ENDINGS.get(next(iter(paths)).rsplit(".", 1)[-1].lower(), "raw")
    array = _busiest(kept) if library == "h5py" else None
    if array is not None:
        kept = [read for read in kept if read.place and _form(read) == array]
        paths = {read.path: sizes.get(read.path) for read in kept}
    return RecordedData(
        library, kind, paths, kept, is_memory, _arrays(processes, kept, array), _rows(processes, paths),
        len(made & set(paths)), library in _MAPS, _foreign(library, next(iter(paths)), processes),
        _other_reads(inside, kept),
    )  # fmt: skip


def _other_reads(reads: Sequence[Read], kept: Sequence[Read]) -> OtherReads | None:
    """Return the reads that are not of the dataset. If an array of the same file is far smaller than the others, it is
    a label, and its reads are left out. kept: reads of the dataset.
    """
    chosen, paths = {id(read) for read in kept}, {read.path for read in kept}
    of_data = sum(read.size or 0 for read in kept)
    others = [read for read in reads if id(read) not in chosen and read.library != "zarr"]  # its chunks are files
    labels = [read for read in others if read.path in paths]
    if sum(read.size or 0 for read in labels) * LABEL < of_data:
        others = [read for read in others if read.path not in paths]
    if not others:
        return None
    usual = Counter(read.path for read in others).most_common(1)[0][0]
    return OtherReads(len(others), sum(read.size or 0 for read in others), len(kept), of_data, usual)


def merged(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the spans in the order of time, with overlapping spans merged."""
    made: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if made and begin <= made[-1][1]:
            made[-1] = made[-1][0], max(made[-1][1], end)
        else:
            made.append((begin, end))
    return made


def is_in(time: float, parts: Sequence[tuple[float, float]]) -> bool:
    """Return whether a time is in one of the spans `parts`, as returned by merged()."""
    place = bisect_right(parts, (time, math.inf)) - 1
    return place >= 0 and time <= parts[place][1]


def _foreign(library: str, path: str, processes: Sequence[ProcessRecording]) -> str:
    """Return a description of a file if no format of a workload is similar to the file. Otherwise, return an empty
    string.
    """
    if any(
        event.kind == "read" and event.values[0] == "zarr" and path.startswith(process.files[event.values[2]] + "/")
        for process in processes for event in process.events
    ):  # fmt: skip
        return "chunks of a Zarr array, each treated as a file of one sample"
    return _FOREIGN.get(library) or _FOREIGN.get(_ending(path), "")


def _written(processes: Sequence[ProcessRecording], first: float) -> tuple[set[str], set[str]]:
    """Return two sets of files that the program wrote. Files of the first set may be the dataset, because they were
    written before the first pass. Files of the second set were written later and cannot be the dataset. first: begin of
    the first pass; infinite without a loader. Without a loader, files that are read several times after they were
    written, such as copies on a local disk, also belong to the first set.
    """
    made: set[str] = set()
    later: set[str] = set()
    reads: Counter[str] = Counter()
    for event, path in sorted(
        ((event, process.files[event.values[0]]) for process in processes for event in process.events
         if event.kind == "open"), key=lambda pair: pair[0].time,
    ):  # fmt: skip
        if not event.values[1]:
            reads[path] += 1
            continue
        reads[path] = 0
        (made if event.time < first else later).add(path)
    copies = {path for path in later if math.isinf(first) and reads[path] >= _AGAIN}
    names = {os.path.basename(path) for path in copies}
    originals = {path for path in reads if path not in copies and os.path.basename(path) in names}
    return (made - later) | copies, (later | originals) - copies


def _without_evaluation(reads: list[Read]) -> list[Read]:
    """Return the reads without files that are for evaluation according to the names of the files or folders. If only
    such files were read, return all reads.
    """
    kept = [read for read in reads if not file_roles.is_evaluation(read.path)]
    return kept or reads


def _is_data(path: str) -> bool:
    return not path.startswith(_TEMPORARY) or "." in path.rsplit("/", 1)[-1]


def _reads(process: ProcessRecording) -> Iterable[Read]:
    """Yield the reads of a process. If a library reads a file after the file was opened, the open is attributed to the
    library.
    """
    named = {event.values[2] for event in process.events if event.kind == "read"}
    named |= {event.values[1] for event in process.events if event.kind == "map"}
    names = _array_names(process)
    opened: set[int] = set()
    for event in process.events:
        if event.kind in ("open", "table"):
            opened.add(event.values[0])
        if event.kind == "read" and event.values[2] is not None:
            library, seconds, number, size, rows, place = event.values
            member = None
            if place and library == "h5py":
                place = [names.get(place[0], ""), *place[1:]]
            elif place and library == "numpy.npz":
                member, place = place[0], None
            kind = "PIL" if library.startswith("PIL.") else library
            path, is_first = process.files[number], number in opened
            opened.discard(number)
            yield Read(event.time, seconds, kind, path, size, rows, place, process.path, is_first, member)
        elif event.kind == "map" and event.values[1] is not None:
            kind, path = f"{event.values[0]} map", process.files[event.values[1]]
            yield Read(event.time, 0.0, kind, path, event.values[2], None, None, process.path, True)
        elif event.kind == "open" and not event.values[1] and event.values[0] not in named:
            yield Read(event.time, 0.0, "", process.files[event.values[0]], None, None, None, process.path, True)


def _array_names(process: ProcessRecording) -> dict[int, str]:
    """Return a name for each array of a process. It consists of the shape and type of the array, and its position among
    the similar arrays of its file. Arrays of other files may have the same name.
    """
    places: Counter[tuple[int, str]] = Counter()
    names = {}
    for event in process.events:
        if event.kind == "array":
            form = _array_name(event)
            names[event.values[0]] = f"{form}#{places[event.values[1], form]}"
            places[event.values[1], form] += 1
    return names


def _array_name(event: Event) -> str:
    _, _, shape, itemsize, chunks, compression, dtype, *_ = event.values
    return repr((shape[1:], itemsize, chunks and chunks[1:], compression, dtype))


def _form(read: Read) -> str:
    return str(read.place[0]).rpartition("#")[0] if read.place else ""


def _busiest(reads: Sequence[Read]) -> str:
    """Return the kind of array that accounts for the most bytes read."""
    totals: Counter[str] = Counter()
    for read in reads:
        if read.place:
            totals[_form(read)] += read.size or 0
    return totals.most_common(1)[0][0] if totals else ""


def _largest(reads: Sequence[Read], sizes: Mapping[str, int]) -> list[Read]:
    """Return the reads of the library and file extension with the most bytes or, if these are equal, the most reads.
    sizes: sizes of files, by path.
    """
    groups: dict[tuple[str, str], list[Read]] = defaultdict(list)
    for read in reads:
        groups[read.library, _ending(read.path)].append(read)

    def weight(members: list[Read]) -> tuple[float, int]:
        amounts = (sizes.get(read.path) or 0 if read.size is None else read.size for read in members)
        return sum(amounts), len(members)

    return max(groups.values(), key=weight, default=[])


def _ending(path: str) -> str:
    name = path.rsplit("/", 1)[-1]
    return name.rsplit(".", 1)[-1].lower() if "." in name else ""


def _sizes(processes: Sequence[ProcessRecording]) -> dict[str, int]:
    made = {}
    for process in processes:
        for event in process.events:
            if event.kind == "file" and event.values[2] is not None:
                made[event.values[1]] = event.values[2]
            elif event.kind == "written":
                made[process.files[event.values[0]]] = event.values[1]
    return made


def _arrays(processes: Sequence[ProcessRecording], reads: Sequence[Read], form: str | None) -> Arrays | None:
    """Return the arrays of one kind in the files that were read. Arrays that were not read are left out."""
    if not form:
        return None
    used = {(read.path, read.place[0]) for read in reads if read.place}
    shapes: dict[tuple[str, str], list[int]] = {}
    facts: list[Any] = []
    for process in processes:
        names = _array_names(process)
        for event in process.events:
            if event.kind == "array" and (process.files[event.values[1]], names[event.values[0]]) in used:
                _, path, shape, *facts = event.values
                shapes[process.files[path], names[event.values[0]]] = shape
    per_file = max(Counter(path for path, _ in shapes).values(), default=1)
    return Arrays(list(shapes.values()), per_file, facts[0], facts[1], facts[2]) if facts else None


def _rows(processes: Sequence[ProcessRecording], paths: dict[str, int | None]) -> dict[str, int]:
    return {
        process.files[event.values[0]]: event.values[1]
        for process in processes for event in process.events
        if event.kind == "table" and event.values[1] is not None and process.files.get(event.values[0]) in paths
    }  # fmt: skip
