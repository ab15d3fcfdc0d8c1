"""Jobs under Darshan: under a stand-in that keeps its rules, and under the real libraries of DLIO_HPC_LIBDARSHAN."""

import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import Outcome, Run, runner
from tests.standins import libdarshan
from tests.standins.login import library as harmless_library

RANKS, EPOCHS, FILES, SAMPLES, SAMPLE_BYTES = 2, 2, 6, 30, 256 << 10
READ = SAMPLES * SAMPLE_BYTES * EPOCHS
WORKLOAD = """\
name: watched
dataset: {format: npz, files: 6, samples_per_file: 5, sample: {shape: [256, 256], dtype: float32}}
reader: {batch_size: 4, read_threads: 2, shuffle: {files: true, samples: true, seed: 7}}
compute: {time: 3 ms}
train: {epochs: 2}
"""

_WHY_NOT = "no libdarshan: name one built for the ranks' MPI in DLIO_HPC_LIBDARSHAN"
_FOUND = [Path(path) for path in os.environ.get("DLIO_HPC_LIBDARSHAN", "").split(os.pathsep) if path]
REAL = [
    pytest.param(path, id=str(path).strip("/").replace("/", "-"), marks=pytest.mark.darshan) for path in _FOUND
] or [pytest.param(None, id="real", marks=[pytest.mark.darshan, pytest.mark.skip(reason=_WHY_NOT)])]
STANDIN = pytest.param(None, id="stand-in")


class Darshan(NamedTuple):
    """A libdarshan, in a folder that has `workload` and its dataset."""

    library: Path
    is_real: bool
    folder: Path
    run: Run

    def submit(self, *options: object, faults: str = "", workload: str = WORKLOAD, **environment: str) -> Outcome:
        """A job of two ranks, waited for. faults: of the stand-in."""
        (self.folder / "workload.yaml").write_text(workload)
        path = f"{Path(libdarshan.__file__).parent}:{Path(__file__).parents[1]}"
        ranks = f"{{PYTHONPATH: '{path}', LIBDARSHAN_FAULTS: '{faults}'}}"
        standin = () if self.is_real else ("-S", f"site.rank_environment={ranks}")
        return self.run(
            "dlio-submit", "workload.yaml", "-s", "local", "--ppn", RANKS, "-d", "data", "--wait", "--json",
            "-S", f"site.darshan={self.library}", *standin, *options, **environment,
        )  # fmt: skip

    def generate(self, *options: object, workload: str = WORKLOAD) -> None:
        """The stand-in does not see what Python's own files write."""
        done = self.submit("--generate", "only", "--no-darshan", *options, workload=workload)
        assert done.code == 0, done.err

    def measure(self, *options: object, code: int = 0, **settings: str) -> Any:
        """A job's only run that measures."""
        done = self.submit(*options, **settings)
        assert done.code == code, done.err
        return done.job


def _darshan(library: Path | None, folder: Path) -> Darshan:
    if library is not None:
        return Darshan(library, True, folder, runner(folder))
    copy = folder / "lib" / "libdarshan.so"
    copy.parent.mkdir()
    shutil.copy(harmless_library(), copy)
    return Darshan(copy, False, folder, runner(folder))


@pytest.fixture(scope="module", params=[STANDIN, *REAL])
def darshan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Darshan:
    """Each, with its dataset."""
    found = _darshan(request.param, tmp_path_factory.mktemp("darshan"))
    found.generate()
    return found


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Darshan:
    found = _darshan(None, tmp_path_factory.mktemp("standin"))
    found.generate()
    return found


@pytest.fixture(scope="module")
def done(darshan: Darshan) -> Any:
    """A job that went well; nobody changes its folder."""
    return darshan.measure()


def _measured(job: Any) -> Any:
    return next(entry for entry in job["runs"] if entry["kind"] == "measure")


def _folder(job: Any, name: str = "01-measure") -> Path:
    return Path(job["directory"]) / "runs" / name / "darshan"


def _log(folder: Path) -> Path:
    (found,) = folder.glob("*.darshan")
    return found


def _line(text: str) -> str:
    """What the table says of the measured run's log."""
    return re.findall(r"^Darshan +(.*(?:\n .*)*)", text, re.MULTILINE)[-1]


def test_darshan_the_core_and_the_plan_count_the_same_bytes(darshan: Darshan, done: Any) -> None:
    verdict = _measured(done)["darshan"]
    assert (verdict["faults"], verdict["differences"], verdict["why_not"]) == ([], [], None)
    assert verdict["bytes"] == {"darshan": READ, "core": READ, "planned": READ}
    assert 0 < verdict["clock_error_s"] < (5e-6 if darshan.is_real else 50e-6)
    assert verdict["log"] == _log(_folder(done)).name
    text = darshan.run("dlio-hpc", "report", done["directory"]).out
    assert re.fullmatch(r"15 MiB, as the core and the plan; clocks within [0-9.]+ [nu]s", _line(text))
    assert not list((_folder(done) / "live").iterdir()), "whoever ends well leaves no live record"


def test_the_trace_tells_of_the_same_time_as_the_core(darshan: Darshan, done: Any) -> None:
    run = _measured(darshan.run("dlio-hpc", "report", done["directory"], "--json").job)
    analysis, summary = run["analysis"], run["result"]["summary"]
    assert (analysis["ranks"], analysis["traced"], analysis["bytes_read"]) == (RANKS, True, READ)
    assert analysis["read"]["requests"] == summary["reads"] == SAMPLES * EPOCHS
    assert 0.5 * summary["io_time_s"] < analysis["io_s"] < 1.01 * summary["io_time_s"], "calls lie within ours"
    assert analysis["hidden_share"] == pytest.approx(summary["io_hidden_fraction"], abs=0.2)
    assert [rank["bytes_read"] for rank in analysis["by_rank"]] == [READ // RANKS] * RANKS
    assert len(analysis["files"]) == FILES, "neither the clocks' marker nor the dataset's description"


def test_the_archive_alone_tells_the_same_as_the_directory(darshan: Darshan, done: Any, tmp_path: Path) -> None:
    shown = []
    for name, where in (("directory", done["directory"]), ("archive", done["archive"])):
        trace = tmp_path / f"{name}.json.gz"
        found = darshan.run("dlio-hpc", "report", where, "--json", "--perfetto", trace)
        assert found.code == 0, found.err
        shown.append((found.job["runs"], json.loads(gzip.decompress(trace.read_bytes()))))
    assert shown[0] == shown[1]
    assert "analysis" in shown[1][0][-1]
    elsewhere = tmp_path / "alone.tar.zst"
    shutil.copy(done["archive"], elsewhere)
    assert _line(runner(tmp_path)("dlio-hpc", "report", elsewhere).out).startswith("15 MiB, as the core and the plan")


def test_a_second_run_by_hand_has_a_log_of_its_own(darshan: Darshan) -> None:
    job = darshan.measure()
    first = _log(_folder(job)).name
    subprocess.run(["bash", Path(job["directory"]) / "job.sh"], capture_output=True, check=True)
    second = _log(_folder(job)).name
    assert second != first
    run = _measured(darshan.run("dlio-hpc", "report", job["directory"], "--json").job)
    assert (run["darshan"]["log"], run["darshan"]["faults"]) == (second, [])
