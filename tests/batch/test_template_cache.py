"""Compiled templates are kept in the user's cache directory, and a damaged or unsafe cache changes nothing."""

from pathlib import Path

import pytest

from dlio_hpc.batch import jobscript, template_cache
from dlio_hpc.config import site, workload
from dlio_hpc.plan.plan import Plan
from tests.support import planning


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dlio-hpc"


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    return planning.make(workload.load("demo"), site.load("local"), planning.Request(runs=tmp_path))


def test_a_template_is_compiled_once(made: Plan, cache: Path) -> None:
    first = jobscript.render(made)
    files = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert len(files) == 2, "local.sh.j2 and job.sh.j2"
    assert jobscript.render(made) == first
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == files


@pytest.mark.parametrize("content", [b"", b"rubbish", None], ids=["empty", "rubbish", "cut"])
def test_a_damaged_cache_is_replaced(made: Plan, cache: Path, content: bytes | None) -> None:
    first = jobscript.render(made)
    sizes = {path.name: path.stat().st_size for path in cache.iterdir()}
    for path in cache.iterdir():
        path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    assert jobscript.render(made) == first
    assert {path.name: path.stat().st_size for path in cache.iterdir()} == sizes


def test_a_directory_that_others_can_write_to_is_not_used(made: Plan, cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert template_cache.of_user() is None
    assert jobscript.render(made)
    assert not list(cache.iterdir())


def test_a_relative_directory_is_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert template_cache.of_user() is None
    assert not list(tmp_path.iterdir())


def test_a_file_instead_of_a_directory_is_no_fault(made: Plan, cache: Path) -> None:
    cache.parent.write_text("")
    assert template_cache.of_user() is None
    assert jobscript.render(made)


def test_a_cache_that_cannot_be_written_is_no_fault(made: Plan, cache: Path) -> None:
    first = jobscript.render(made)
    for path in cache.iterdir():
        path.unlink()
        path.mkdir()  # where the file should be
    assert jobscript.render(made) == first
