"""Files of the dataset of a recorded program, and the form of their samples."""

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
_FOREIGN = {
    "numpy.load": "NumPy's .npy files",
    "lmdb map": "an LMDB environment",
    "tar": "tar archives",
    "numpy map": "files that are mapped into memory",
    "npy": "NumPy's .npy files",
}
# Number of times that a copy of a dataset is read.
_AGAIN = 3
_TEMPORARY = ("/tmp/pymp-", "/tmp/tmp")


class Read(NamedTuple):
    """A read, or an open without a read that could be recorded. library: empty for an open by Python. size: bytes of
    the result in memory; None for an open. rows: length of the first axis. place: array, first row, number of rows.
    process: file of the recording of the process. is_first: whether the file was opened since its last read. member:
    position of an array in an archive of NumPy; None if it is unknown.
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
    """Arrays of HDF5 with one form. shapes: of all files. per_file: number of such arrays in a file, which hold parts
    of the same samples. itemsize: bytes of a value. chunks, compression: None if there are none.
    """

    shapes: list[list[int]]
    per_file: int
    itemsize: int
    chunks: list[int] | None
    compression: str | None


class OtherReads(NamedTuple):
    """Reads in the passes of the training that are none of its dataset. reads: number of reads and opens. bytes: of
    their results, as far as they are known. of_data: the same number of the dataset. bytes_of_data: bytes of its
    results. path: file that was read most often.
    """

    reads: int
    bytes: int
    of_data: int
    bytes_of_data: int
    path: str


class RecordedData(NamedTuple):
    """Dataset of a program. library: that reads most of it; empty: Python. format: value of `dataset.format`. files:
    size by path; None if unknown. reads: of the dataset in the order of time, of all ranks. is_memory: whether it was
    read before the first pass. arrays: of the array from which most was read, if h5py reads. rows: number of rows by
    file, where the file itself says so. made: number of files that the program wrote before the first pass. is_mapped:
    whether the files were read through memory maps. form: what the files are if no format of a workload is like them.
    other_reads: reads of other data in the passes; None if there are none.
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
        """Mean size of a file. The recorder looks at the sizes of the first files only; others are like them."""
        return round(statistics.mean(self.sizes)) if self.sizes else 0


def of_pipeline(ranks: Sequence[RankRecording], name: str) -> RecordedData | None:
    """Return the dataset of a pipeline of tf.data, which names its files. Return None if it names none."""
    pipelines = [tensorflow_pipelines.of(stages_of(rank.main), name) for rank in ranks]
    sizes = _sizes([rank.main for rank in ranks])
    paths = sorted({path for pipeline in pipelines if pipeline is not None for path in pipeline.files})
    kind = next((pipeline.format for pipeline in pipelines if pipeline is not None and pipeline.format), "")
    if not paths:
        return None
    files = {path: sizes.get(path) for path in paths}
    return RecordedData("tf.data", kind or _ENDINGS.get(_ending(paths[0]), "raw"), files, [], False, None, {})


def of(ranks: Sequence[RankRecording], spans: Sequence[tuple[float, float]]) -> RecordedData | None:
    """Return the dataset: what is read during the passes of the training loader, or, if nothing is, before them. spans:
    begin and end of these passes. Return None if no read of a file was recorded.
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
    """Return what was read besides the dataset. An array of the same file that is far smaller than the others is a
    label. kept: reads of the dataset.
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
    """Return spans in the order of time; those that overlap are one."""
    made: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if made and begin <= made[-1][1]:
            made[-1] = made[-1][0], max(made[-1][1], end)
        else:
            made.append((begin, end))
    return made


def is_in(time: float, parts: Sequence[tuple[float, float]]) -> bool:
    """Return whether a time is in one of the parts, which merged() returned."""
    place = bisect_right(parts, (time, math.inf)) - 1
    return place >= 0 and time <= parts[place][1]


def _foreign(library: str, path: str, processes: Sequence[ProcessRecording]) -> str:
    """Return what a file is if no format of a workload is like it, otherwise an empty string."""
    if any(
        event.kind == "read" and event.values[0] == "zarr" and path.startswith(process.files[event.values[2]] + "/")
        for process in processes for event in process.events
    ):  # fmt: skip
        return "chunks of a Zarr array, each taken for a file of one sample"
    return _FOREIGN.get(library) or _FOREIGN.get(_ending(path), "")


def _written(processes: Sequence[ProcessRecording], first: float) -> tuple[set[str], set[str]]:
    """Return the files that the program wrote before the first pass, which may be its dataset, and those that it wrote
    later, which are not. first: begin of the first pass; minus infinity without a loader. Without one, files that are
    read several times after they were written, such as copies on a local disk, may be the dataset as well.
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
    """Leave out files whose names, or whose folders' names, say that they are for evaluation, if others do not."""
    kept = [read for read in reads if not file_roles.is_evaluation(read.path)]
    return kept or reads


def _is_data(path: str) -> bool:
    return not path.startswith(_TEMPORARY) or "." in path.rsplit("/", 1)[-1]


def _reads(process: ProcessRecording) -> Iterable[Read]:
    """Yield the reads of a process. An open that a library's read follows is the library's."""
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
    """Return a name for each array of a process: its form, and its place among the arrays of this form in its file. The
    arrays of other files share it.
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
    """Return the array from which most bytes were read."""
    totals: Counter[str] = Counter()
    for read in reads:
        if read.place:
            totals[_form(read)] += read.size or 0
    return totals.most_common(1)[0][0] if totals else ""


def _largest(reads: Sequence[Read], sizes: Mapping[str, int]) -> list[Read]:
    """Return the reads of the library and ending with most bytes, or else with most reads. sizes: of files, by path."""
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
    """Return the arrays of a form in the files that were read; of several in a file, those that were read."""
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
