"""Programs whose truth is known, and what `characterize` derives from their logs. The programs of tests/apps were at
hand when the derivation was written. Those of tests/unseen, tests/strangers and tests/newcomers were written apart, and
first looked at when it was finished; faults that they showed were mended before the next ones were written.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dlio_hpc.darshan import log_reader
from dlio_hpc.programs.characterize import characterize
from dlio_hpc.programs.characterize.characterize import Character
from tests.newcomers.truth import PROGRAMS as NEWCOMERS
from tests.strangers.truth import PROGRAMS as STRANGERS
from tests.support import fidelity
from tests.support.places import LOGS
from tests.support.programs import PROGRAMS
from tests.unseen.truth import PROGRAMS as UNSEEN

Half = Literal["known", "unseen", "strangers", "newcomers", "visitors", "outsiders"]
# Keys that no log shows, or that are not derived.
_NOT_DERIVED = {"reader.loader", "reader.preprocess_time", "reader.drop_last"}
# Sections of a workload that a program may lack.
_SECTIONS = ("checkpoint.", "evaluation.")
# A size counts as right within 2 % and the 4 KiB of a header, a time within half.
_SIZES = {"dataset.sample.bytes", "dataset.sample.stdev", "dataset.samples_per_file", "checkpoint.transfer_size"}


class Case(NamedTuple):
    """A program with its truth. logs, again: logs of two runs. truth: values by key. is_training: whether it trains."""

    name: str
    half: Half
    logs: list[Path]
    again: list[Path]
    truth: dict[str, Any]
    is_training: bool

    def has_none(self, key: str) -> bool:
        """Return whether the program has nothing that this key of a section describes: the truth says null for the
        section, or has no key of it.
        """
        section = key.partition(".")[0]
        return self.truth.get(section) is None and not any(name.startswith(f"{section}.") for name in self.truth)


class Judgement(NamedTuple):
    """A derived value and the truth."""

    key: str
    value: Any
    truth: Any
    confidence: str
    is_right: bool


def cases() -> Iterator[Case]:
    for name, program in PROGRAMS.items():
        times = {} if program.step_s is None else {"compute.time": program.step_s}
        again = fidelity.logs(name, again=True)
        yield Case(name, "known", fidelity.logs(name), again, program.truth | times, program.training)
    yield from _recorded("unseen", UNSEEN)
    yield from _recorded("strangers", STRANGERS)
    yield from _recorded("newcomers", NEWCOMERS)


def _recorded(half: Half, programs: Any) -> Iterator[Case]:
    for name, (_, _, truth, step_s, is_training) in programs.items():
        times = {} if step_s is None else {"compute.time": step_s}
        first, again = (sorted((LOGS / half / name / run).glob("*.darshan")) for run in ("first", "again"))
        yield Case(name, half, first, again, truth | times, is_training)


def character(case: Case, again: bool = False) -> Character:
    return characterize.load(case.again if again else case.logs, None, False)


def from_counters(case: Case) -> Character:
    """Return what is derived from the logs without their traces."""
    logs = [log_reader.load(path)._replace(traced={}) for path in case.logs]
    return characterize.of_logs(logs, case.logs, None, False)


def judged(case: Case, made: Character) -> list[Judgement]:
    """Compare the derived values with the truth. Keys that were not derived are left out. A key of a section that the
    program does not have is wrong.
    """
    keys = made.derived.keys
    compared = [
        Judgement(key, keys[key].value, truth, keys[key].confidence, is_right(key, keys[key].value, truth))
        for key, truth in case.truth.items()
        if key in keys and key not in _NOT_DERIVED
    ]
    return compared + [
        Judgement(key, value.value, None, value.confidence, is_right=False)
        for key, value in keys.items()
        if key.startswith(_SECTIONS) and case.has_none(key)
    ]


def is_right(key: str, value: Any, truth: Any) -> bool:
    if key == "reader.interleave":
        return bool((value or 1) == (truth or 1))
    if value is None or truth is None or isinstance(truth, bool):
        return bool(value == truth)
    if key == "compute.time":
        return bool(0.5 * truth <= value <= 1.5 * truth)
    if key in _SIZES:
        return bool(abs(value - truth) <= 0.02 * truth + (4096 if key.endswith("bytes") else 0))
    if isinstance(truth, list | tuple):
        pairs = zip(sorted(value), sorted(truth), strict=False)
        return len(value) == len(truth) and all(abs(a - b) <= 0.02 * max(a, b) for a, b in pairs)
    return bool(value == truth)
