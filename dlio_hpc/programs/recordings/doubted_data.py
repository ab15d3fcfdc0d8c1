"""Check whether the recorded reads can account for the batches of a program. A program may read data by calls that are
not recorded, or through memory maps, which need no calls. These may be other data, or the same data at other times.
"""

from dlio_hpc.base.units import counted, format_size
from dlio_hpc.programs.characterize.evidence import DerivedValue
from dlio_hpc.programs.recordings import read_counts
from dlio_hpc.programs.recordings.recorded_files import RecordedData
from dlio_hpc.programs.recordings.recorded_program import RecordedProgram
from dlio_hpc.programs.recordings.recorded_training import RecordedTraining

# Share of the bytes of a step, and least bytes of a step, that are data. Messages and notes have fewer.
_SHARE, _LEAST_OF_STEP = 0.25, 512
# Least bytes of a program with a single pass, in which it loads modules, too.
_LEAST = 1 << 20
# Share of the dataset that a program reads before its first pass if it keeps the data in memory.
_READ = 0.5
# Share of the reads, and of their bytes, that a workload may lack.
_FEW, _SMALL = 0.1, 0.01
# Most bytes in memory for a byte of a file: a pixel of one byte becomes three numbers of four bytes. Images that are
# decoded for each batch have many pixels in a byte.
_WIDEST, _MOST_DECODED = 12, 256


def load(program: RecordedProgram, made: RecordedTraining, data: RecordedData, derived: DerivedValue) -> DerivedValue:
    """Return `reader.load`. If the passes read data, or if nothing was read before the passes, the data are not in
    memory.
    """
    if not data.is_memory or data.is_mapped or derived.value != "memory":
        return derived
    counted = notable_reads(program, made, data)
    if counted:
        evidence = f"the kernel counted {format_size(counted)} in the passes, in which no read of a file was recorded"
        return DerivedValue("on_demand", "low", evidence)
    unread = _unread(program, made, data)
    return DerivedValue("on_demand", "low", unread) if unread else derived


def doubt(program: RecordedProgram, made: RecordedTraining, data: RecordedData) -> str:
    """Return the reason why the dataset of a program is in doubt, or an empty string."""
    counted = notable_reads(program, made, data)
    if data.is_mapped:
        more = f"the kernel counted {format_size(counted)} in the passes, besides the files that are mapped into memory"
        return more if counted else ""
    small = _too_small(made, data)
    if small or counted or not data.is_memory:
        return small
    return _unread(program, made, data) or _single_pass(program, made, data)


def missing(made: RecordedTraining, data: RecordedData) -> str:
    """Return a sentence on data of the program that are missing from the workload, or an empty string."""
    others = len(made.other_loaders) + len(made.beside_it)
    if others:
        return f"{counted(others, 'other loader')} of training are not in the workload"
    other = data.other_reads
    if other is None or (other.reads <= _FEW * other.of_data and other.bytes <= _SMALL * max(other.bytes_of_data, 1)):
        return ""
    return f"{other.reads:,} reads and opens of other data in the passes, such as {other.path}, are not in the workload"


def notable_reads(program: RecordedProgram, made: RecordedTraining, data: RecordedData) -> int:
    """Return the bytes that the kernel counted in the passes, or 0 if they are too few to be data. If there are several
    passes, the first one is ignored, because it may load modules and fill a cache.
    """
    for first in (1, 0):
        counted = read_counts.of_passes(program.ranks, made.passes, first)
        if counted is not None:
            size, steps = counted
            least = max(_LEAST_OF_STEP * steps if first else _LEAST, _SHARE * _of_data(made, data, first))
            return size if size >= least else 0
    return 0


def _of_data(made: RecordedTraining, data: RecordedData, first: int) -> int:
    """Return the smaller of two numbers: the bytes of the batches in memory from pass `first` on, and the bytes of the
    dataset. Data grow when they are decoded, so the batches may be larger than the files. The size of a mapped dataset
    is not used, because a map may be read in parts.
    """
    held = sum(batch.bytes for passes in made.passes for one in passes[first:] for batch in one.batches)
    whole = _whole(data) * max(1, max(map(len, made.passes)) - first)
    if data.is_mapped:
        return held or 4 * _LEAST
    return min(held, whole) if held and whole else held or whole


def _whole(data: RecordedData) -> int:
    """Return the size of the dataset in bytes."""
    return data.usual * len(data.files)


def _unread(program: RecordedProgram, made: RecordedTraining, data: RecordedData) -> str:
    """Return the reason why the dataset may not have been read before the first pass, or an empty string if the dataset
    was read before this pass. Only files that Python opened are checked. For libraries, the reads themselves are
    recorded.
    """
    if data.library or not data.reads:
        return ""
    opened = min(read.time for read in data.reads)
    begin = min(one.begin for passes in made.passes for one in passes)
    counts = [read_counts.of_process(process) for rank in program.ranks for process in rank.processes]
    before = [count for count in counts if count.times and count.begun < begin]
    if not before:
        return "files were opened before the first pass; the kernel did not count what was read of them"
    if not _whole(data):
        return "files of unknown size were opened before the first pass, and none was read in the passes"
    size, whole = sum(count.most_between(opened, begin) for count in before), _whole(data)
    if size >= _READ * whole:
        return ""
    return (
        f"at most {format_size(size)} of the {format_size(whole)} of the files were read before the first pass, and "
        "none in the passes: the program may have mapped them into memory"
    )


def _single_pass(program: RecordedProgram, made: RecordedTraining, data: RecordedData) -> str:
    """Return the reason why the few bytes of the only pass may be data. Return an empty string if there is no such
    reason, or if there are several passes.
    """
    counted = read_counts.of_passes(program.ranks, made.passes)
    if counted is None or read_counts.of_passes(program.ranks, made.passes, 1) is not None:
        return ""
    size, steps = counted
    if size < max(_LEAST_OF_STEP * steps, _SHARE * _of_data(made, data, 0)):
        return ""
    return f"the kernel counted {format_size(size)} in the only pass, which may be data, or modules of the program"


def _too_small(made: RecordedTraining, data: RecordedData) -> str:
    """Return a message if the batches of a pass hold far more bytes than the dataset can provide, otherwise an empty
    string.
    """
    held = max((sum(batch.bytes for batch in one.batches) for passes in made.passes for one in passes), default=0)
    whole = max(_whole(data), sum(read.size or 0 for read in data.reads))
    if not whole or held <= (_WIDEST if data.is_memory else _MOST_DECODED) * whole:
        return ""
    return (
        f"the batches of a pass hold {format_size(held)} in memory, far more than the {format_size(whole)} of the "
        "files that were read: it may use data that were not recorded"
    )
