"""Programs that neither the recorder nor the derivation was written for: their recordings, and the logs of the same
runs. A program of this kind is looked at once before anything is mended (docs/explanation/fidelity.md).
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dlio_hpc.programs.characterize import characterize
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.recordings import recorded_character, with_log
from dlio_hpc.programs.reports import accepted_workload, program_profiles
from tests.support import characters
from tests.support.characters import Case, Judgement
from tests.support.places import LOGS
from tests.visitors.truth import PROGRAMS

_RUNS = LOGS / "visitors"
# Programs whose logs do not show that they train: memory maps, and data that are read once.
_NOT_SHOWN = {"herbarium_sheets", "ledger_pretrain", "papers_sage", "ecg_stream"}
# Trainings that read in a loop of their own, of which nothing but their arithmetic says that they train.
_NOT_RECORDED = {"galaxy_stamps", "taxi_lines"}
# Formats that no workload has. The nearest one has medium confidence at most.
_FOREIGN = {"lmdb"}


def _case(name: str) -> Case:
    _, _, truth, step_s, is_training = PROGRAMS[name]
    times = {} if step_s is None else {"compute.time": step_s}
    return Case(name, "visitors", sorted((_RUNS / name).glob("*.darshan")), [], truth | times, is_training)


def _recording(name: str) -> Path:
    return _RUNS / name / "recording"


def _judged(case: Case, made: Character) -> list[Judgement]:
    """Compare all values but the time of a step, which the arithmetic of the program is added to, and formats that no
    workload has.
    """
    return [
        one for one in characters.judged(case, made)
        if one.key != "compute.time" and not (one.key == "dataset.format" and one.truth in _FOREIGN)
    ]  # fmt: skip


CASES = {name: _case(name) for name in PROGRAMS}
TRAINING = [name for name in PROGRAMS if CASES[name].is_training]


@pytest.mark.parametrize("name", PROGRAMS)
def test_recorded_values_are_right(name: str) -> None:
    made = recorded_character.load(_recording(name))
    assert bool(made.derived.keys) is (CASES[name].is_training and name not in _NOT_RECORDED)
    wrong = [one for one in _judged(CASES[name], made) if one.confidence == "recorded" and not one.is_right]
    assert wrong == []
    if made.derived.keys:
        keys = made.derived.keys
        assert keys["compute.time"].confidence != "recorded" or (
            keys["compute.time"].value >= 0.9 * CASES[name].truth["compute.time"]
        )
        assert keys["dataset.format"].confidence != "recorded" or CASES[name].truth["dataset.format"] not in _FOREIGN
        accepted_workload.write(made, name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_log_shows_whether_a_program_trains(name: str) -> None:
    made = characterize.load(CASES[name].logs, None, False)
    assert bool(made.derived.keys) == (CASES[name].is_training and name not in _NOT_SHOWN)


def test_confidence_in_values_of_logs_is_calibrated() -> None:
    tally: Counter[tuple[str, bool]] = Counter()
    for name in TRAINING:
        made = characterize.load(CASES[name].logs, None, False)
        tally.update((one.confidence, one.is_right) for one in _judged(CASES[name], made))
    shares = {level: tally[level, True] / (tally[level, True] + tally[level, False]) for level in ("high", "medium")}
    assert tally["high", True] > 70
    assert shares["high"] >= 0.98
    assert shares["medium"] >= 0.75


@pytest.mark.parametrize("name", [name for name in TRAINING if name not in _NOT_RECORDED])
def test_a_log_does_not_spoil_a_recording(name: str) -> None:
    """Values that the recording has right, and is sure of, stay right with the log."""
    recorded = recorded_character.load(_recording(name))
    both = with_log.combine(recorded, characterize.load(CASES[name].logs, None, True))
    right = {one.key for one in _judged(CASES[name], recorded) if one.is_right and one.confidence == "recorded"}
    spoilt = [one for one in _judged(CASES[name], both) if one.key in right and not one.is_right]
    assert spoilt == []
    accepted_workload.write(both, name)


def test_reads_that_darshan_counts_for_saved_files_are_not_compared() -> None:
    """libdarshan misses that PyTorch closes a checkpoint, and counts reads of pipes as reads of it."""
    made = characterize.load(CASES["gait_windows"].logs, None, True)
    saved = {role.file.path for role in made.derived.roles if role.role == "checkpoint"}
    records = made.log.counted["POSIX"]
    is_saved = np.array([made.log.names[number] in saved for number in records["id"].tolist()])
    assert records["CONSEC_READS"][is_saved].sum() > 250
    analysis = program_profiles.examined(made, "gait_windows").analysis
    assert analysis is not None
    assert analysis.read is not None
    assert (analysis.read.consecutive, analysis.read.requests) == (0.0, records["READS"][~is_saved].sum())
    assert records["CONSEC_READS"][is_saved].sum() > 250, "the log itself stays as it is"


def test_row_groups_in_random_order_are_blocks() -> None:
    keys = with_log.combine(
        recorded_character.load(_recording("substation_load")),
        characterize.load(CASES["substation_load"].logs, None, True),
    ).derived.keys
    assert (keys["reader.shuffle.samples"].value, keys["reader.shuffle.block"].value) == (True, 1024)
    assert keys["reader.read_threads"].value == 1


def test_files_that_are_opened_for_each_sample_are_opened_again() -> None:
    opened = {
        name: made.derived.keys["reader.reopen"]
        for name in TRAINING
        if "reader.reopen" in (made := characterize.load(CASES[name].logs, None, False)).derived.keys
    }
    assert list(opened) == ["gait_windows"]
    assert (opened["gait_windows"].value, opened["gait_windows"].confidence) == (True, "high")


@pytest.mark.parametrize(("name", "is_reopened"), [("gait_windows", True), ("herbarium_sheets", False)])
def test_opens_of_other_samples_than_those_of_the_recording_do_not_count(name: str, is_reopened: bool) -> None:
    """The log of herbarium_sheets has the headers of memory maps alone, one for each open of a file."""
    log = characterize.load(CASES[name].logs, None, True)
    assert "reader.reopen" in log.derived.keys
    both = with_log.combine(recorded_character.load(_recording(name)), log)
    assert ("reader.reopen" in both.derived.keys) is is_reopened


def test_arrays_of_a_log_are_kept_if_a_recording_is_as_unsure() -> None:
    """The program reads in a loop of its own; each file has scans and their grades."""
    both = with_log.combine(
        recorded_character.load(_recording("retina_staged")), characterize.load(CASES["retina_staged"].logs, None, True)
    )
    assert len(both.derived.keys["dataset.arrays"].value) == 2
