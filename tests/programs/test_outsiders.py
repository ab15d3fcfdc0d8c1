"""Programs of the newer formats, which somebody wrote who knew neither the recorder nor the derivation: the logs of a
run of each. They were looked at once before anything was mended (docs/explanation/fidelity.md).
"""

from collections import Counter

import pytest

from dlio_hpc.programs.characterize import characterize
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.reports import accepted_workload
from tests.outsiders.truth import PROGRAMS
from tests.support import characters
from tests.support.characters import Case, Judgement
from tests.support.places import LOGS

# Programs whose logs do not show that they train: aerosol_rows reads through a memory map, and diatom_png reads its
# files only twice, without workers, and saves its model once.
_NOT_SHOWN = {"aerosol_rows", "diatom_png"}
_MOST = 60_000


def _case(name: str) -> Case:
    _, _, truth, step_s, is_training = PROGRAMS[name]
    times = {} if step_s is None else {"compute.time": step_s}
    return Case(
        name, "outsiders", sorted((LOGS / "outsiders" / name).glob("*.darshan")), [], truth | times, is_training
    )


def _judged(name: str, made: Character) -> list[Judgement]:
    """Compare all values but the time of a step, which the arithmetic of the program is added to."""
    return [one for one in characters.judged(CASES[name], made) if one.key != "compute.time"]


CASES = {name: _case(name) for name in PROGRAMS}
SHOWN = [name for name in PROGRAMS if name not in _NOT_SHOWN]


@pytest.mark.parametrize("name", PROGRAMS)
def test_logs_are_small_and_show_whether_a_program_trains(name: str) -> None:
    logs = CASES[name].logs
    assert logs
    assert all(path.stat().st_size < _MOST for path in logs)
    made = characterize.load(logs, None, False)
    assert made.log.job.program.endswith(f"python -m tests.outsiders.{name} train /scratch/data/{name}")
    assert bool(made.derived.keys) == (name in SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_the_format_is_right_and_the_workload_is_accepted(name: str) -> None:
    made = characterize.load(CASES[name].logs, None, False)
    assert made.derived.keys["dataset.format"].value == CASES[name].truth["dataset.format"]
    accepted_workload.write(made, name)


def test_confidence_in_values_is_calibrated() -> None:
    tally: Counter[tuple[str, bool]] = Counter()
    for name in SHOWN:
        made = characterize.load(CASES[name].logs, None, False)
        tally.update((one.confidence, one.is_right) for one in _judged(name, made))
    shares = {level: tally[level, True] / (tally[level, True] + tally[level, False]) for level in ("high", "medium")}
    assert tally["high", True] > 25
    assert shares["high"] >= 0.95
    assert shares["medium"] >= 0.75
