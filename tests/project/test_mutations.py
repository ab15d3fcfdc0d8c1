"""Damaged files of jobs, studies and baselines give exit code 3 and the file's name, no traceback and no hang."""

import random
import select
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from dlio_hpc.base.errors import DlioError
from dlio_hpc.files import archive
from tests.conftest import Run, runner
from tests.support import mutations, studies
from tests.support.faults.ground import Done, end_session, environment, taken
from tests.support.faults.nursery import Nursery

_FILES = (
    "plan.json", "job.json", "environment.json", "exit_status", "job.err", "manifest.json", "layout/after.yaml",
    "runs/00-generate/result.json", "runs/01-measure/result.json", "runs/01-measure/result.json",
    "runs/01-measure/result.json", "runs/01-measure/timeline.h5", "runs/01-measure/timeline.h5",
    "runs/01-measure/timeline.h5", "runs/01-measure/timeline.h5", "runs/01-measure/error.json",
)  # fmt: skip
# Most characters that a command prints for damaged files. The JSON document of the sound study has 61,000.
_MOST_LETTERS = 90_000
_PATIENCE_S = 60.0
_SEEDS = range(40)
# 0: not read, or no harm; 2: nothing has that name any more; 6, 7: the job's state, or a history that is damaged.
_CODES = {0, 1, 2, 3, 4, 5, 6, 7}
_STUDY_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("report", "tune"), ("report", "tune", "--json"), ("report", "tune-1"), ("status", "tune"), ("status",),
    ("collect", "tune"), ("wait", "tune"), ("cancel", "tune"), ("compare", "tune-1"), ("compare", "tune-1", "--json"),
    ("baseline", "list"), ("baseline", "show", "tune-1"), ("baseline", "accept", "tune-2", "--message", "new"),
    ("baseline", "retire", "tune-1", "--message", "old"), ("history",), ("history", "--rebuild"),
    ("similarity", "tune-1", "tune-2"),
)  # fmt: skip


class _Job(NamedTuple):
    directory: Path
    archives: Path


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> _Job:
    """A job of two ranks with its archive, and one beside it that is never damaged."""
    folder = tmp_path_factory.mktemp("mutations")
    run: Run = runner(folder)
    (folder / "small.yaml").write_text(
        "name: small\ndataset: {format: npz, files: 2, samples_per_file: 4, sample: {bytes: 1000}}\n"
        "compute: {time: 1 ms}\n"
    )
    for _ in range(2):
        assert run("dlio-submit", "small.yaml", "-s", "local", "--ppn", 2, "--wait").code == 0
    first = min((folder / "dlio-runs").glob("small-*"))
    (first / "runs" / "01-measure" / "error.json").write_text(
        '{"rank": 0, "host": "node", "kind": "OSError", "message": "no", "exit_code": 6}'
    )
    return _Job(first, folder / "dlio-runs" / "archive")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two jobs with their archives, a baseline of its points, and its history."""
    folder = tmp_path_factory.mktemp("study") / "runs"
    made = studies.make(folder, studies.asked("demo", "reader.batch_size=4,8", ranks_per_node=(1, 2)))
    studies.write(made, lambda point, repeat: 100.0 + 10 * point + repeat)
    for directory in sorted(folder.glob("tune-*")):
        archive.create(directory, folder / "archive" / f"{directory.name}.tar.zst")
    accepted = runner(folder.parent)(
        "dlio-hpc", "baseline", "accept", "tune-1", "--message", "quiet", "-o", folder, "--archive", folder / "archive"
    )
    assert accepted.code == 0, accepted.err
    return folder


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    opened = Nursery()
    yield opened
    opened.close()


def _done(nursery: Nursery, folder: Path, command: Sequence[str | Path]) -> Done:
    log = folder / ".output"
    arguments = list(map(str, command))
    pid = nursery.start("dlio-hpc", arguments, folder, environment({}), log)
    if not select.select([nursery.descriptor], [], [], _PATIENCE_S)[0]:
        end_session(pid)
        nursery.code()
        return Done(("dlio-hpc", *arguments), None, taken(log))
    return Done(("dlio-hpc", *arguments), nursery.code(), taken(log))


def _check(done: Done, damaged: str, names: Iterable[str]) -> None:
    """names: the damaged file, and what holds a copy of it."""
    context = f"{damaged}: {' '.join(done.command)}: {done.code}\n{done.out[-1500:]}"
    assert done.code in _CODES, context
    assert "Traceback" not in done.out, context
    assert "a bug in dlio-hpc" not in done.out, context
    assert len(done.out) < _MOST_LETTERS, context
    if done.code == 3:
        assert any(name in "".join(done.out.split()) for name in names), context


def _commands(directory: Path, target: Path, sound: Path) -> list[tuple[str | Path, ...]]:
    return [
        ("report", directory), ("report", directory, "--json"), ("report", directory, "--html", "page.html"),
        ("report", directory, "--csv"), ("report", directory, "--perfetto", "trace.json.gz"), ("report", target),
        ("status", "-o", directory.parent), ("status", directory), ("history", "--archive", target.parent),
        ("compare", target, sound), ("compare", directory), ("similarity", target, sound), ("accept", directory),
        ("baseline", "set", target), ("archive", "verify", target), ("archive", "list", target),
        ("collect", directory), ("report", directory, "--figures", "figures"), ("compare", target, "--html", "c.html"),
    ]  # fmt: skip


@pytest.mark.job
@pytest.mark.parametrize("seed", _SEEDS)
def test_damaged_files_of_jobs(job: _Job, nursery: Nursery, tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    directory = tmp_path / "runs" / job.directory.name
    shutil.copytree(job.directory, directory)
    target, sound = tmp_path / "archive" / f"{directory.name}.tar.zst", tmp_path / "archive" / "sound.tar.zst"
    target.parent.mkdir()
    shutil.copy(next(path for path in job.archives.glob("*.zst") if job.directory.name not in path.name), sound)
    name = random_.choice(_FILES)
    if name != "runs/01-measure/error.json":
        (directory / "runs/01-measure/error.json").unlink()
    how = mutations.damage(directory / name, random_)
    try:
        archive.create(directory, target)
    except DlioError:
        shutil.copy(sound, target)
    for command in random_.sample(_commands(directory, target, sound), 4):
        _check(_done(nursery, tmp_path, command), f"{name}: {how}", (Path(name).name, target.name))


@pytest.mark.parametrize("seed", _SEEDS)
def test_damaged_files_of_studies_and_baselines(study: Path, nursery: Nursery, tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    runs = tmp_path / "runs"
    shutil.copytree(study, runs)
    path = random_.choice(sorted(
        [*runs.glob("tune*/*.json"), *runs.glob("tune/study.json"), *runs.glob("archive/baselines/*"),
         *runs.glob("archive/history.db"), *runs.glob("tune-1/runs/01-*/result.json")]
    ))  # fmt: skip
    how = mutations.damage(path, random_)
    for command in random_.sample(_STUDY_COMMANDS, 4):
        done = _done(nursery, tmp_path, (*command, "-o", runs))
        _check(done, f"{path.relative_to(runs)}: {how}", (path.name, path.parent.name))
