"""The jobs that are judged together, and the measurements that they lack."""

import shutil
from pathlib import Path

from dlio_hpc.verdict import acceptance, judged_jobs
from tests.support import studies


def test_a_part_of_each_of_two_studies_is_not_all(tmp_path: Path) -> None:
    """A good job of one study does not stand for a missing job of another."""
    folders = []
    for number, jobs in enumerate((2, 3)):
        part = studies.asked("demo", nodes=tuple(range(1, jobs + 1)), ranks_per_node=(2,))
        made = studies.make(tmp_path / f"{number}", part, name=f"tune{number}")
        studies.write(made, lambda *_: 100.0)
        folders.append(sorted((tmp_path / f"{number}").glob(f"tune{number}-*")))
    assert list(map(len, folders)) == [2, 3]
    study = tmp_path / "0" / "tune0"
    for given in ([study, folders[0][0]], [study, *folders[1]]):
        assert judged_jobs.judged(given).absent == [], "a job of a folder that is given counts once"
    shutil.copytree(folders[0][1], tmp_path / "moved" / folders[0][1].name)
    shutil.rmtree(folders[0][1])
    folders[0][1] = tmp_path / "moved" / folders[0][1].name
    assert len(judged_jobs.judged([study]).absent) == 3
    assert judged_jobs.judged([study, folders[0][1]]).absent == [], "together they are the whole study"
    whole = judged_jobs.judged([*folders[0], *folders[1]])
    assert (len(whole.studies), whole.jobs, whole.absent) == (2, [], [])
    for given, missing in (
        ([folders[0][0], folders[1][0]], 3 + 6),
        ([*folders[0], folders[1][2]], 6),
        ([folders[0][0]], 3),
        ([folders[0][1], *folders[1]], 3),
    ):
        part_of = judged_jobs.judged(given)
        assert len(part_of.all_jobs) == len(given)
        assert len(part_of.absent) == missing
        accepted = acceptance.of(part_of, "acceptance", lambda _: None)
        assert {check.outcome for check in accepted.of("") if check.title == "completeness"} == {"incomplete"}
        assert accepted.exit_code == 7
