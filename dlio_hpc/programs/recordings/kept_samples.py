"""Samples that a program keeps in memory after the first pass, so that later passes read nothing, or far less."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlio_hpc.base.units import format_size
from dlio_hpc.programs.characterize.evidence import DerivedValue
from dlio_hpc.programs.recordings import read_counts
from dlio_hpc.programs.recordings.recorded_files import RecordedData, is_in, merged
from dlio_hpc.programs.recordings.recorded_program import RecordedProgram
from dlio_hpc.programs.recordings.recorded_training import RecordedTraining
from dlio_hpc.programs.step_check import KeptBytes

# Share of the dataset that the first pass reads. Share of the bytes and of the reads of its steps up to which later
# steps read far less, and nothing.
_WHOLE, _FAR_LESS, _NOTHING = 0.5, 0.5, 0.01
# Bytes of a step that are messages and small files.
_MESSAGES = 512
_LOAD = "reader.load=memory reads the dataset once, before the first step"
_EPOCHS = "train.epochs=1 reads as much as the program"


class KeptSamples(NamedTuple):
    """Reads of a program that keeps samples in memory. read: bytes of the dataset that the first pass read. later:
    bytes that all later passes read. bytes: bytes of a step in the first pass and in the later passes. has_all: whether
    later passes read nothing.
    """

    read: int
    later: int
    bytes: KeptBytes
    has_all: bool

    @property
    def fact(self) -> str:
        """What the program does."""
        little = "nothing" if self.has_all else f"{format_size(self.later)} altogether"
        return f"the first pass read {format_size(self.read)}, the later passes read {little}"

    @property
    def note(self) -> str:
        """What the program does, why the workload differs, and which values fit."""
        fit = (
            f"{_EPOCHS}, and {_LOAD}"
            if self.has_all
            else "no value fits; train.epochs=1 has the reads of the first pass"
        )
        return (
            f"{self.fact}: the program keeps samples in memory, but the workload reads all samples in each epoch, more "
            f"than the program; {fit}"
        )

    def keys(self, keys: Mapping[str, DerivedValue]) -> dict[str, DerivedValue]:
        """Return the keys that determine how often samples are read, with low confidence."""
        epochs, load = (keys[name] for name in ("train.epochs", "reader.load"))
        fit = _LOAD if self.has_all else "later passes keep a part in memory"
        return {
            "train.epochs": epochs.at_most("low", f"{self.fact}; {_EPOCHS if self.has_all else 'no value fits'}"),
            "reader.load": load.at_most("low", f"{self.fact}; {fit}"),
        }


def of(program: RecordedProgram, made: RecordedTraining, data: RecordedData) -> KeptSamples | None:
    """Return the reads of a program that reads its dataset in the first pass and far less in the later passes. Return
    None for other programs, and if the kernel did not count. A pass that opens no file may read from files that are
    open, so both the bytes and the recorded reads must be few. The bytes of the first pass may include modules.
    """
    if data.is_memory or data.is_mapped or made.pipeline is not None:
        return None
    all_passes = read_counts.of_passes(program.ranks, made.passes, 0, made.evaluation)
    later_passes = read_counts.of_passes(program.ranks, made.passes, 1, made.evaluation)
    if all_passes is None or later_passes is None or all_passes[1] == later_passes[1]:
        return None
    later, steps = later_passes
    first, first_steps = all_passes[0] - later, all_passes[1] - steps
    whole = data.usual * len(data.files)
    read = min(first, whole) if whole else first
    bytes_of_step = KeptBytes(first / first_steps, later / steps)
    if first < _WHOLE * whole or later / steps > _FAR_LESS * read / first_steps:
        return None
    reads = [_reads(made, data, slice(1)), _reads(made, data, slice(1, None))]
    if reads[1] / steps > _FAR_LESS * reads[0] / first_steps:
        return None
    has_all = later / steps <= max(_MESSAGES, _NOTHING * read / first_steps)
    return KeptSamples(read, later, bytes_of_step, has_all)


def _reads(made: RecordedTraining, data: RecordedData, part: slice) -> int:
    """Return the number of recorded reads in a part of the passes of each rank."""
    spans: Sequence[tuple[float, float]] = [(one.begin, one.end) for mine in made.passes for one in mine[part]]
    parts = merged(spans)
    return sum(is_in(read.time, parts) for read in data.reads)
