"""The table of programs agrees with their text, and their logs with the table."""

import functools
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from dlio_hpc.analysis.log import merged_program
from dlio_hpc.base import serialization
from dlio_hpc.config import workload
from dlio_hpc.darshan import log_faults, log_reader
from dlio_hpc.darshan.log import Log
from dlio_hpc.programs.files import file_stats
from dlio_hpc.programs.files.file_stats import FileStats
from tests.support import fidelity, record_logs
from tests.support.places import LOGS, TESTS
from tests.support.programs import OTHERS, PROGRAMS, TRAINING

_APPS = TESTS / "apps"
_RUNS = [(name, again) for name in PROGRAMS for again in (False, True)]
# Most bytes of all logs in the repository.
_MOST = 2_500_000
_MOST_UNSEEN = 1_500_000
_MOST_RECORDED = 4_000_000


@functools.cache
def _logs(name: str, again: bool) -> list[Log]:
    return [log_reader.load(path) for path in fidelity.logs(name, again)]


@functools.cache
def _dataset(name: str, again: bool) -> list[FileStats]:
    return [file for file in file_stats.take(merged_program.merge(_logs(name, again)))
            if fnmatchcase(file.path, f"{record_logs.SCRATCH}/{name}/{PROGRAMS[name].data}")]  # fmt: skip


def test_the_table_has_all_programs() -> None:
    assert {path.stem for path in _APPS.glob("[!_]*.py")} == set(PROGRAMS)
    assert (len(TRAINING), len(OTHERS)) == (12, 4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_small_and_has_two_commands(name: str) -> None:
    text = (_APPS / f"{name}.py").read_text()
    assert 20 <= len(text.splitlines()) <= 75
    for command in ("prepare", "train"):
        assert re.search(rf"^def {command}\(", text, re.MULTILINE)
        assert f"tests.apps.{name} {command} DIR" in text or not PROGRAMS[name].training
    assert ("mpi4py" in text) == (PROGRAMS[name].ranks > 0)
    imported = set(re.findall(r"^\s*(?:from|import) (pandas|tensorflow|torch|PIL)\b", text, re.MULTILINE))
    assert imported == set(PROGRAMS[name].needs)
    if PROGRAMS[name].step_s is not None:
        assert re.search(rf"STEP_S\b.*\b{PROGRAMS[name].step_s}$", text, re.MULTILINE)


@pytest.mark.parametrize("name", TRAINING)
def test_the_truth_is_a_valid_workload(name: str, tmp_path: Path) -> None:
    truth = dict(PROGRAMS[name].truth)
    assert {"dataset.format", "dataset.files", "reader.batch_size", "train.epochs"} <= set(truth)
    assert ("checkpoint" in truth) != any(key.startswith("checkpoint.") for key in truth)
    path = tmp_path / "truth.yaml"
    path.write_text("name: truth\ndataset: {}\n")
    made = workload.draft(str(path)).with_settings(truth)
    assert made.dataset.files == truth["dataset.files"]
    assert serialization.encode(made)


@pytest.mark.parametrize(("name", "again"), _RUNS)
def test_logs_are_whole(name: str, again: bool) -> None:
    logs = _logs(name, again)
    assert logs
    assert all(path.stat().st_size <= record_logs.MOST for path in fidelity.logs(name, again))
    for log in logs:
        assert not log_faults.judge(log), log.path
        assert log.job.program == f"python -m tests.apps.{name} train {record_logs.SCRATCH}/{name}"
        assert log.job.ranks == (PROGRAMS[name].ranks or 1)
        assert len(log.traced["DXT_POSIX"].segments) > 0


@pytest.mark.parametrize(("name", "again"), [(name, again) for name in TRAINING for again in (False, True)])
def test_logs_have_the_files_and_bytes_of_the_truth(name: str, again: bool) -> None:
    program = PROGRAMS[name]
    truth, files = program.truth, _dataset(name, again)
    assert len(files) == truth["dataset.files"]
    size = truth.get("dataset.sample.bytes") or 10 * truth["dataset.sample.shape"][0]
    passes = 1 if truth["reader.load"] == "memory" else truth["train.epochs"]
    readers = 1 if truth.get("reader.shard", True) else program.ranks
    whole = truth["dataset.files"] * truth["dataset.samples_per_file"] * size * passes * readers
    assert sum(file.bytes_read for file in files) == pytest.approx(whole, rel=0.1)


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_runs_read_the_same(name: str) -> None:
    """In npy_map, Darshan counts a few requests to pipes as requests to files: logs/apps/README.md."""
    first, again = ([(file.path, file.bytes_read) for file in _dataset(name, run)] for run in (False, True))
    assert first
    if name == "npy_map":
        assert sum(size for _, size in first) == pytest.approx(sum(size for _, size in again), rel=1e-3)
    else:
        assert first == again


def test_logs_are_small_in_all() -> None:
    """The logs of the programs that were set aside are not among them, nor those that have recordings beside them."""
    logs = LOGS
    assert _size(logs / "visitors") < _MOST_RECORDED
    apart = [_size(logs / part) for part in ("unseen", "strangers", "newcomers", "outsiders")]
    assert max(apart) < _MOST_UNSEEN
    assert _size(logs) - sum(apart) - _size(logs / "visitors") < _MOST


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
