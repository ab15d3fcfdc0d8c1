"""Jobs run under a stand-in that keeps Darshan's rules, and under the real libraries of DLIO_HPC_LIBDARSHAN."""

import gzip
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlio_hpc.config import site, workload
from dlio_hpc.darshan import log_reader, run_check, setup
from dlio_hpc.plan import darshan_needs, plan
from tests.conftest import BIN, Outcome, Run, runner
from tests.support import planning
from tests.support.standins import darshanlog, libdarshan
from tests.support.standins.darshanlog import Traced
from tests.support.standins.libdarshan.settings import Expression
from tests.support.standins.login import library as harmless

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
REAL = [pytest.param(path, id=str(path).strip("/").replace("/", "-")) for path in _FOUND] or [
    pytest.param(None, id="real", marks=pytest.mark.skip(reason=_WHY_NOT))
]
STANDIN = pytest.param(None, id="stand-in")


class Darshan(NamedTuple):
    """A libdarshan, in a folder that has `workload` and its dataset."""

    library: Path
    is_real: bool
    folder: Path
    run: Run

    def site(self, faults: str = "") -> list[str]:
        """Return the options of a command. faults: those of the stand-in."""
        standin = () if self.is_real else ("-S", libdarshan.rank_environment(faults))
        return ["-s", "local", "-S", f"site.darshan={self.library}", *standin]

    def submit(
        self, *options: object, faults: str = "", workload: str = WORKLOAD, environment: dict[str, str] | None = None
    ) -> Outcome:
        """Run a job of two ranks to its end. faults: those of the stand-in. environment: that of the user's shell."""
        (self.folder / "workload.yaml").write_text(workload)
        return self.run(
            "dlio-submit", "workload.yaml", *self.site(faults), "--ppn", RANKS, "-d", "data", "--wait", "--json",
            *options, **(environment or {}),
        )  # fmt: skip

    def generate(self, *options: object, workload: str = WORKLOAD) -> None:
        """The stand-in does not see what Python's own files write."""
        done = self.submit("--generate", "only", "--no-darshan", *options, workload=workload)
        assert done.code == 0, done.err

    def measure(self, *options: object, code: int = 0, faults: str = "", workload: str = WORKLOAD) -> Any:
        """Run a job that ends with exit code `code`."""
        done = self.submit(*options, faults=faults, workload=workload)
        assert done.code == code, done.err
        return done.job


def _darshan(library: Path | None, folder: Path) -> Darshan:
    if library is not None:
        return Darshan(library, True, folder, runner(folder))
    return Darshan(libdarshan.install(folder / "lib"), False, folder, runner(folder))


@pytest.fixture(scope="module", params=[STANDIN, *REAL])
def darshan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Darshan:
    """Every library, with its dataset."""
    made = _darshan(request.param, tmp_path_factory.mktemp("darshan"))
    made.generate()
    return made


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Darshan:
    made = _darshan(None, tmp_path_factory.mktemp("standin"))
    made.generate()
    return made


@pytest.fixture(scope="module")
def done(darshan: Darshan) -> Any:
    """A job that went well; nobody changes its folder."""
    return darshan.measure()


def _measured(job: Any) -> Any:
    return next(entry for entry in job["runs"] if entry["kind"] == "measure")


def _folder(job: Any, name: str = "01-measure") -> Path:
    return Path(job["directory"]) / "runs" / name / "darshan"


def _log(folder: Path) -> Path:
    (path,) = folder.glob("*.darshan")
    return path


def _line(text: str) -> str:
    """Return the first row of the table on the measured run's log, without its line breaks."""
    return " ".join(re.findall(r"^Darshan   (.*(?:\n {10}.*)*)", text, re.MULTILINE)[-1].split())


def test_darshan_the_core_and_the_plan_count_the_same_bytes(darshan: Darshan, done: Any) -> None:
    verdict = _measured(done)["darshan"]
    assert (verdict["faults"], verdict["differences"], verdict["why_not"]) == ([], [], None)
    assert verdict["bytes"] == {"darshan": READ, "core": READ, "planned": READ}
    assert 0 < verdict["clock_error_s"] < (5e-6 if darshan.is_real else 50e-6)
    assert verdict["log"] == _log(_folder(done)).name
    text = darshan.run("dlio-hpc", "report", done["directory"]).out
    assert re.fullmatch(r"15 MiB, in agreement with dlio-hpc and the plan; clocks within [0-9.]+ [nu]s", _line(text))
    assert not list((_folder(done) / "live").iterdir()), "whoever ends well leaves no live record"


def test_the_trace_tells_of_the_same_time_as_the_core(darshan: Darshan, done: Any) -> None:
    run = _measured(darshan.run("dlio-hpc", "report", done["directory"], "--json").job)
    analysis, summary = run["analysis"], run["result"]["summary"]
    assert (analysis["ranks"], analysis["traced"], analysis["bytes_read"]) == (RANKS, True, READ)
    assert analysis["read"]["requests"] == summary["reads"] == SAMPLES * EPOCHS
    assert 0.5 * summary["io_time_s"] < analysis["io_s"] < 1.05 * summary["io_time_s"], "calls lie within ours"
    assert analysis["hidden_share"] == pytest.approx(summary["io_hidden_fraction"], abs=0.2)
    assert [rank["bytes_read"] for rank in analysis["by_rank"]] == [READ // RANKS] * RANKS
    assert len(analysis["files"]) == FILES, "neither the clocks' marker nor the dataset's description"


def test_the_archive_alone_tells_the_same_as_the_directory(darshan: Darshan, done: Any, tmp_path: Path) -> None:
    shown = []
    for name, where in (("directory", done["directory"]), ("archive", done["archive"])):
        trace = tmp_path / f"{name}.json.gz"
        report = darshan.run("dlio-hpc", "report", where, "--json", "--perfetto", trace)
        assert report.code == 0, report.err
        shown.append((report.job["runs"], json.loads(gzip.decompress(trace.read_bytes()))))
    assert shown[0] == shown[1]
    assert "analysis" in shown[1][0][-1]
    elsewhere = tmp_path / "alone.tar.zst"
    shutil.copy(done["archive"], elsewhere)
    assert _line(runner(tmp_path)("dlio-hpc", "report", elsewhere).out).startswith(
        "15 MiB, in agreement with dlio-hpc and the plan"
    )


def test_a_second_run_by_hand_has_a_log_of_its_own(darshan: Darshan) -> None:
    job = darshan.measure()
    first = _log(_folder(job)).name
    subprocess.run(["bash", Path(job["directory"]) / "job.sh"], capture_output=True, check=True)
    second = _log(_folder(job)).name
    assert second != first
    run = _measured(darshan.run("dlio-hpc", "report", job["directory"], "--json").job)
    assert (run["darshan"]["log"], run["darshan"]["faults"]) == (second, [])


def _said(done: Outcome) -> str:
    """Return the output without the line breaks made for a terminal."""
    return " ".join((done.out + done.err).split())


def test_reads_that_one_rank_hides_make_the_run_invalid(standin: Darshan, tmp_path: Path) -> None:
    """The error need not be Darshan's: bytes that the core counted may have come from elsewhere."""
    options = ("-S", "reader.shuffle={}")
    done = standin.submit(*options, faults="hide=1:00000004.npz")
    assert done.code == 3
    assert done.job["state"] == "failed"
    hidden = 5 * SAMPLE_BYTES * EPOCHS
    message = (
        f"01-measure is invalid: rank 1: Darshan recorded {READ // 2 - hidden} bytes, but the rank counted "
        f"{READ // 2}; "
        f"Darshan recorded 0 bytes of 00000004.npz, but {hidden} were planned"
    )
    assert message in _said(done)
    alone = shutil.copy(done.job["archive"], tmp_path / "alone.tar.zst")
    report = runner(tmp_path)("dlio-hpc", "report", alone)
    assert report.code == 3
    assert message in _said(report)
    assert "in agreement with dlio-hpc" not in report.out


@pytest.fixture
def copy(done: Any, tmp_path: Path) -> Path:
    """A copy of the good job's folder that a test may damage."""
    return Path(shutil.copytree(done["directory"], tmp_path / "copy"))


def _judged(directory: Path) -> Outcome:
    """Repeat the step in which the script judges the log, as before the job is collected, and return the report."""
    (directory / "manifest.json").unlink(missing_ok=True)
    command: list[str | Path] = [BIN / "python", "-m", "dlio_hpc.darshan", "judge", directory / "plan.json"]
    judged = subprocess.run([*command, "--run", "1"], capture_output=True, text=True, check=False)
    assert "Traceback" not in judged.stderr
    report = runner(directory)("dlio-hpc", "report", directory)
    assert judged.returncode == report.code
    return report


def _rewritten(path: Path, keep: Callable[[Traced], Traced | None] = lambda record: record, **changes: Any) -> None:
    """Write the log again with some traces changed or left out; counters are those of all traces that are kept."""
    log = log_reader.load(path)
    trace, traces = log.traced["DXT_POSIX"], []
    for file, first in zip(trace.files, trace.first.tolist(), strict=True):
        writes, reads = int(file["writes"]), int(file["reads"])
        rows = [list(row)[:4] for row in trace.segments[first : first + writes + reads].tolist()]
        traces.append(Traced(log.names[int(file["id"])], int(file["rank"]), rows[writes:], rows[:writes]))
    kept = [record for record in traces if keep(record) is not None]
    facts = {"ranks": RANKS, "started": log.job.started, "seconds": log.job.seconds, **changes}
    if "partial" in changes:
        facts["counted"] = darshanlog.counters_of(kept)
        kept = [record._replace(reads=record.reads[:2]) for record in kept]
    darshanlog.write(path, traces=kept, **facts)


def test_a_log_written_anew_is_as_good(done: Any, copy: Path) -> None:
    _rewritten(_log(copy / "runs/01-measure/darshan"))
    assert _line(_judged(copy).out).startswith("15 MiB, in agreement with dlio-hpc and the plan; clocks within")


def test_a_file_that_is_missing_in_a_log_is_named(copy: Path) -> None:
    """The log lacks the file for half of its samples, on one rank alone."""
    path = _log(copy / "runs/01-measure/darshan")
    lost = next(
        (log_reader.load(path).names[int(file["id"])], int(file["rank"]), int(file["reads"]))
        for file in log_reader.load(path).traced["DXT_POSIX"].files
        if int(file["rank"]) == 1 and log_reader.load(path).names[int(file["id"])].endswith(".npz")
    )
    _rewritten(path, lambda record: None if (record.path, record.rank) == lost[:2] else record)
    report = _judged(copy)
    assert report.code == 3
    saw = READ // 2 - lost[2] * SAMPLE_BYTES
    assert f"rank 1: Darshan recorded {saw} bytes, but the rank counted {READ // 2}" in _said(report)
    unread, planned = os.path.basename(lost[0]), lost[2] * SAMPLE_BYTES
    assert f"Darshan recorded 0 bytes of {unread}, but {planned} were planned" in _said(report)


def test_a_log_that_nobody_had_time_to_judge_is_drawn_from(copy: Path) -> None:
    (copy / "runs/01-measure/darshan/verdict.json").unlink()
    report = runner(copy)("dlio-hpc", "report", copy, "--html", "page.html", "--json")
    assert report.code == 0
    assert report.job["runs"][-1]["analysis"]["bytes_read"] == READ
    page = (copy / "page.html").read_text()
    assert "own timeline" not in page
    text = runner(copy)("dlio-hpc", "report", copy).out
    assert _line(text).startswith("unknown: the job ended before its log was checked")


def _cut(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, path.stat().st_size * 2 // 3)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, "truncated: "),
        (lambda path: _rewritten(path, ranks=1), "rank count: the log has 1 process, but the run had 2 ranks"),
        (lambda path: _rewritten(path, started=1_700_000_000.5), "s before the run began"),
        (lambda path: _rewritten(path, partial=("DXT_POSIX",)), "DXT cut: DXT_POSIX lacks"),
        (lambda path: path.write_bytes(b"no log at all"), "is not a Darshan log"),
        (lambda path: path.write_bytes(b""), "is not a Darshan log"),
    ],
    ids=["cut", "of one process", "of another day", "with a part of the trace", "no log", "empty"],
)
def test_what_is_wrong_with_a_log_is_said_and_harms_no_run(
    copy: Path, damage: Callable[[Path], None], message: str
) -> None:
    path = _log(copy / "runs/01-measure/darshan")
    path.chmod(0o644)
    damage(path)
    report = _judged(copy)
    assert report.code == 0, report.err
    assert message in _said(report)
    (verdict,) = [run["darshan"] for run in runner(copy)("dlio-hpc", "report", copy, "--json").job["runs"][1:]]
    assert verdict["faults"]
    assert verdict["differences"] == []
    assert (verdict["bytes"] is None) == ("DXT cut" not in message), "its counters hold even where its trace does not"


def _unwatched(job: Any) -> str:
    """Return why the measuring run has no log; the job itself completed."""
    assert job["state"] == "completed"
    run = _measured(job)
    assert run["result"]["summary"]["bytes_read"] == READ
    verdict = run["darshan"]
    assert (verdict["log"], verdict["bytes"], verdict["faults"], verdict["differences"]) == (None, None, [], [])
    variables = json.loads((Path(job["directory"]) / "environment.json").read_bytes())["variables"]
    assert "LD_PRELOAD" not in variables
    assert not [name for name in variables if name.startswith("DARSHAN")]
    return str(verdict["why_not"])


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (
            "mpi",
            "2 ranks under libdarshan ended with exit code 1: ImportError: libmpi.so.12: cannot open shared object "
            "file",
        ),
        ("alone", "the log has 1 process instead of 2 ranks: libdarshan was not built for the ranks' MPI"),
    ],
)
def test_a_library_for_another_mpi_is_left_out(standin: Darshan, faults: str, message: str, tmp_path: Path) -> None:
    job = standin.measure(faults=faults)
    assert _unwatched(job).startswith(message)
    assert f"Darshan is not used: {message}" in (Path(job["directory"]) / "job.out").read_text()
    page = tmp_path / "page.html"
    report = standin.run("dlio-hpc", "report", job["archive"], "--html", page)
    assert report.code == 0
    assert f"Darshan no log: {message}" in _said(report)
    assert "pictures are drawn from the benchmark&#39;s own timeline" in page.read_text()
    assert page.read_text().count("<svg") > 2


def test_a_library_that_is_not_there_is_left_out(standin: Darshan) -> None:
    job = standin.measure("-S", "site.darshan=/nowhere/libdarshan.so")
    assert _unwatched(job) == "/nowhere/libdarshan.so: No such file or directory on this node"


def test_a_library_that_does_nothing_is_left_out(standin: Darshan) -> None:
    """The library is preloaded and writes no log."""
    assert _unwatched(standin.measure("-S", "site.rank_environment={}")).startswith(
        "2 ranks under libdarshan left no log"
    )


_CHAT = """\
name: chat
inference:
  {users: 4, time: 2 s, interval: 300 ms, prompt: {mean: 40}, answer: {mean: 20}, turns: 3, block_tokens: 16,
   model: {layers: 1, kv_heads: 4, head_dim: 64}}
"""


def test_darshan_does_not_record_inference_workloads(standin: Darshan) -> None:
    """Blocks are no files of a dataset, with which Darshan's counts could be compared."""
    job = standin.measure(workload=_CHAT)
    measured = _measured(job)
    assert measured["result"]["faults"] == []
    assert measured["result"]["summary"]["inference"]["blocks_read"] > 0
    assert "no log: Darshan was not used in this run" in _said(standin.run("dlio-hpc", "report", job["archive"]))


def test_without_darshan_there_is_nothing_of_it(standin: Darshan) -> None:
    job = standin.measure("--no-darshan")
    assert "darshan" not in _measured(job)
    directory = Path(job["directory"])
    assert not list(directory.rglob("*arshan*"))
    script = (directory / "job.sh").read_text()
    assert "arshan" not in script.replace(str(Path(libdarshan.__file__).parent), "").replace("LIBDARSHAN", "").lower()
    variables = json.loads((directory / "environment.json").read_bytes())["variables"]
    assert not [name for name in variables if "DARSHAN" in name or name == "LD_PRELOAD"]
    assert "no log: Darshan was not used in this run" in _said(standin.run("dlio-hpc", "report", job["archive"]))


def test_asking_for_darshan_where_there_is_none(run: Run, small: Path) -> None:
    asked = run("dlio-submit", small, "-s", "local", "--darshan", "--dry-run")
    assert asked.code == 2
    assert "site local sets no libdarshan.so" in asked.err
    assert "-S site.darshan=/PATH/lib/libdarshan.so" in asked.err
    assert run("dlio-submit", small, "-s", "local", "--dry-run").code == 0


def test_forked_workers_and_rings_are_not_watched(standin: Darshan) -> None:
    pytorch = ("-S", "reader.loader=pytorch", "-S", "reader.mode=framework")
    left_out = standin.submit(*pytorch)
    assert left_out.code == 0, left_out.err
    why = "under MPI, fork() corrupts Darshan's counts of PyTorch's worker processes"
    assert f"note: Darshan is disabled: {why}; to enable it: reader.multiprocessing_context: spawn" in left_out.err
    assert not list(Path(left_out.job["directory"]).rglob("darshan*"))
    report = standin.run("dlio-hpc", "report", left_out.job["directory"])
    assert f"Darshan no log: {why}; use reader.multiprocessing_context: spawn" in _said(report)
    refused = standin.submit(*pytorch, "--darshan")
    assert refused.code == 2
    assert "set reader.multiprocessing_context: spawn, or disable Darshan with --no-darshan" in refused.err
    ring = ("-S", "reader.engine=io_uring", "--dry-run")
    assert f"LD_PRELOAD={standin.library}" not in standin.submit(*ring).job["script"]
    assert "set reader.engine: preadv, or disable Darshan" in standin.submit(*ring, "--darshan").err
    alone = standin.submit(*pytorch, "--dry-run", "-S", "reader.prefetch=0", "-S", "reader.read_threads=1")
    assert f"LD_PRELOAD={standin.library}" in alone.job["script"]


_SPAWN = ("-S", "reader.loader=pytorch", "-S", "reader.multiprocessing_context=spawn")


@pytest.fixture(scope="module")
def spawned(darshan: Darshan) -> Any:
    """A job with PyTorch's workers that went well; nobody changes its folder."""
    return darshan.measure(*_SPAWN)


def test_spawned_workers_have_logs_of_their_own(darshan: Darshan, spawned: Any, tmp_path: Path) -> None:
    verdict = _measured(spawned)["darshan"]
    assert (verdict["faults"], verdict["differences"], verdict["why_not"]) == ([], [], None)
    assert verdict["bytes"] == {"darshan": READ, "core": READ, "planned": READ}
    assert (verdict["workers"], verdict["clock_error_s"]) == (2 * RANKS * EPOCHS, None)
    alone = shutil.copy(spawned["archive"], tmp_path / "alone.tar.zst")
    documents = []
    for where in (spawned["directory"], alone):
        report = darshan.run("dlio-hpc", "report", where, "--html", tmp_path / "page.html", "--json")
        assert report.code == 0, report.err
        documents.append(_measured(report.job))
        line = _line(darshan.run("dlio-hpc", "report", where).out)
        assert line == "15 MiB, in agreement with dlio-hpc and the plan; with 8 logs of worker processes"
        assert "drawn from the benchmark&#39;s own timeline" in (tmp_path / "page.html").read_text()
    assert documents[0] == documents[1]
    analysis = documents[0]["analysis"]
    assert (analysis["ranks"], analysis["bytes_read"], analysis["read"]["requests"]) == (RANKS, READ, SAMPLES * EPOCHS)
    assert [rank["bytes_read"] for rank in analysis["by_rank"]] == [READ // RANKS] * RANKS
    assert len(analysis["files"]) == FILES
    assert not list((_folder(spawned) / "live").iterdir())
    variables = json.loads((Path(spawned["directory"]) / "environment.json").read_bytes())["variables"]
    assert "DARSHAN_ENABLE_NONMPI" not in variables


def test_a_worker_without_a_log_is_said_and_harms_no_run(spawned: Any, tmp_path: Path) -> None:
    """The reads of the other workers are not taken for those of the run."""
    copied = Path(shutil.copytree(spawned["directory"], tmp_path / "copy"))
    (copied / "runs/01-measure/darshan/workers/rank-1-epoch-2-worker-0.darshan").unlink()
    report = _judged(copied)
    assert report.code == 0, report.err
    assert "Darshan workers missing: 7 of 8 worker processes left a log, so reads are missing" in _said(report)
    (verdict,) = [run["darshan"] for run in runner(copied)("dlio-hpc", "report", copied, "--json").job["runs"][1:]]
    assert (verdict["bytes"], verdict["differences"]) == (None, [])
    profile = runner(copied)("dlio-hpc", "similarity", copied, spawned["directory"], "--json")
    assert profile.code == 0, profile.err


def test_reads_that_a_worker_hides_make_the_run_invalid(standin: Darshan) -> None:
    done = standin.submit(*_SPAWN, "-S", "reader.shuffle={}", faults="hide=0:00000004.npz")
    assert done.code == 3
    hidden = 5 * SAMPLE_BYTES * EPOCHS
    assert f"Darshan recorded 0 bytes of 00000004.npz, but {hidden} were planned" in _said(done)


@pytest.mark.parametrize("where", ["the user's shell", "the site's modules"])
def test_settings_of_others_do_not_get_the_better_of_ours(darshan: Darshan, where: str) -> None:
    others = {"DARSHAN_ENABLE_NONMPI": "1", "DARSHAN_MOD_DISABLE": "*", "DARSHAN_DISABLE": "1", "DARSHAN_MODMEM": "1"}
    lines = [f"export {name}='{value}'" for name, value in others.items()]
    is_shell = where == "the user's shell"
    options = () if is_shell else ("-S", f"site.setup={json.dumps(lines)}")
    job = darshan.submit(*options, environment=others if is_shell else {}).job
    assert _measured(job)["darshan"]["bytes"] == {"darshan": READ, "core": READ, "planned": READ}
    variables = json.loads((Path(job["directory"]) / "environment.json").read_bytes())["variables"]
    assert not variables.keys() & others.keys()


def test_a_libdarshan_that_is_preloaded_already_gives_way(darshan: Darshan) -> None:
    """Default modules of some centres preload libdarshan; with two of them the ranks would wait for ever."""
    other = libdarshan.install(darshan.folder / "other") if not darshan.is_real else darshan.library
    lines = [f"export LD_PRELOAD='{harmless()} {other}:{harmless()}'"]
    job = darshan.measure("-S", f"site.setup={json.dumps(lines)}")
    assert _measured(job)["darshan"]["bytes"] == {"darshan": READ, "core": READ, "planned": READ}
    variables = json.loads((Path(job["directory"]) / "environment.json").read_bytes())["variables"]
    assert variables["LD_PRELOAD"] == f"{darshan.library}:{harmless()}:{harmless()}"
    job = darshan.measure("-S", f"site.setup={json.dumps(lines)}", "--no-darshan")
    variables = json.loads((Path(job["directory"]) / "environment.json").read_bytes())["variables"]
    assert variables["LD_PRELOAD"] == f"{harmless()} {other}:{harmless()}", "which is the centre's affair"
    assert "Darshan" not in (Path(job["directory"]) / "job.err").read_text()


def test_a_rank_that_fails_leaves_its_live_record_and_no_log(darshan: Darshan, tmp_path: Path) -> None:
    darshan.generate("-d", tmp_path / "spoilt")
    (spoilt,) = tmp_path.glob("spoilt/*/00000002.npz")
    os.truncate(spoilt, 5000)
    job = darshan.measure("-d", tmp_path / "spoilt", code=3)
    assert job["state"] == "failed"
    run = job["runs"][-1]
    assert "00000002.npz ends at byte 5000" in run["error"]["message"]
    why = "the ranks ended without MPI_Finalize; Darshan's counters of 2 processes are kept, without traces"
    assert run["darshan"]["why_not"] == why
    assert f"no Darshan log: {why}" in (Path(job["directory"]) / "job.out").read_text()
    assert len(list((_folder(job) / "live").iterdir())) == RANKS
    for where in (job["directory"], job["archive"]):
        report = darshan.run("dlio-hpc", "report", where)
        assert report.code == 3
        assert "00000002.npz ends at byte 5000" in _said(report)
    listed = darshan.run("dlio-hpc", "archive", "list", job["archive"]).out
    assert "/runs/01-measure/darshan/verdict.json" in listed
    assert "/live/" not in listed, "they are large and empty"
    record = next((_folder(job) / "live").iterdir())
    assert "live record that a killed process left" in darshan.run("dlio-hpc", "darshan", record).err


def _stops(seconds: float) -> tuple[str, str]:
    """Options that warn the job of its time limit `seconds` after its run has begun."""
    late = f"(while [ ! -e runs/01-measure/darshan/live/* ]; do sleep 0.05; done; sleep {seconds}; echo late > stop) &"
    return "-S", f"site.setup={json.dumps([late])}"


def test_a_warning_in_the_last_step_leaves_a_log_that_is_judged(darshan: Darshan) -> None:
    job = darshan.measure(*_stops(1), "-S", "train={epochs: 1, steps: 1}", "-S", "compute.time=2s")
    assert job["state"] == "completed"
    assert _measured(job)["darshan"]["bytes"] == dict.fromkeys(("darshan", "core", "planned"), 8 * SAMPLE_BYTES)


def test_a_run_that_was_stopped_has_a_log_of_what_it_did(darshan: Darshan) -> None:
    """Only the log contains samples that were read ahead and never used."""
    slow = ("-S", "train.epochs=1", "-S", "compute.time=300ms", "-S", "reader.batch_size=1", "-S", "reader.shard=false")
    done = darshan.submit(*_stops(1), *slow)
    assert done.code == 7, done.err
    run = _measured(done.job)
    assert (done.job["state"], run["darshan"]["why_not"], run["darshan"]["differences"]) == ("timeout", None, [])
    counts = run["darshan"]["bytes"]
    ahead = RANKS * 4 * SAMPLE_BYTES
    assert counts["core"] == run["result"]["summary"]["bytes_read"] < counts["darshan"] <= counts["core"] + ahead
    assert counts["planned"] is None
    report = darshan.run("dlio-hpc", "report", done.job["archive"])
    assert report.code == 7
    assert re.match(r"[0-9.]+ MiB, [0-9.]+ MiB by dlio-hpc; clocks within", _line(report.out))


def test_ranks_that_are_ended_at_the_limit_leave_their_live_records(darshan: Darshan) -> None:
    done = darshan.submit("-t", "10s", "-S", "reader.preprocess_time=30s", "-S", "reader.prefetch=0")
    assert done.code == 7, done.err
    assert done.job["state"] == "timeout"
    assert len(list((_folder(done.job) / "live").iterdir())) == RANKS
    for where in (done.job["directory"], done.job["archive"]):
        assert darshan.run("dlio-hpc", "report", where).code == 7


ODD = "a b, c.d+e(f)[g]{h}^i$j|k*l?m#n\\o'p\"q~\N{SNOWMAN}"


def test_any_path_is_recorded(darshan: Darshan) -> None:
    folder = darshan.folder / ODD
    darshan.generate("-d", folder / "data", "-o", folder / "runs")
    job = darshan.measure("-d", folder / "data", "-o", folder / "runs")
    verdict = _measured(job)["darshan"]
    assert (verdict["faults"], verdict["differences"], verdict["why_not"]) == ([], [], None)
    assert verdict["bytes"] == {"darshan": READ, "core": READ, "planned": READ}
    assert verdict["clock_error_s"] is not None
    analysis = _measured(darshan.run("dlio-hpc", "report", job["directory"], "--json").job)["analysis"]
    assert all(file["path"].startswith(f"{folder}/data/") for file in analysis["files"])


def test_a_path_through_links_and_dots_is_recorded(darshan: Darshan) -> None:
    (darshan.folder / "link").symlink_to(darshan.folder / "data")
    job = darshan.measure("-d", f"{darshan.folder}//./data/../link/")
    assert _measured(job)["darshan"]["bytes"] == {"darshan": READ, "core": READ, "planned": READ}


_LETTERS = " \t,.+*?()[]{}^$|\\#'`<>&~=-_/abcXYZ019\N{SNOWMAN}\N{LATIN SMALL LETTER U WITH DIAERESIS}"
_NAMES = st.text(st.sampled_from(_LETTERS))


@example(path="a]b", other="a]b")
@example(path="[[^", other="[[x")
@given(path=_NAMES, other=_NAMES)
def test_expressions_find_their_paths_and_no_others(path: str, other: str) -> None:
    text = setup.expression(path)
    assert not set(text) & set(" \t,")
    expression = Expression(f"^{text}$")
    assert expression.finds(path)
    assert expression.finds(other) == (len(other) == len(path) and all(map(_alike, path, other)))


def _alike(letter: str, other: str) -> bool:
    """A letter that cannot be written matches any letter."""
    return letter == other or letter in " \t,"


def test_the_preflight_tries_it(darshan: Darshan) -> None:
    done = darshan.run("dlio-hpc", "check", "demo", *darshan.site(), "-d", "data")
    assert done.code == 0, done.out
    lines = [line.split(maxsplit=2) for line in done.out.splitlines() if " Darshan " in line]
    assert lines == [
        ["ok", "Darshan", f"{darshan.library} exists"],
        ["ok", "Darshan", "2 ranks wrote a log that covers 2 ranks; Darshan 3.5.0"],
    ]
    assert not list((darshan.folder / "dlio-runs").glob("check*")), "it leaves nothing behind"


@pytest.mark.parametrize(("faults", "message"), [("mpi", "ended with exit code 1"), ("alone", "has 1 process")])
def test_the_preflight_notes_what_does_not_fit(standin: Darshan, faults: str, message: str) -> None:
    done = standin.run("dlio-hpc", "check", "demo", *standin.site(faults), "-d", "data")
    assert done.code == 0, "runs can do without"
    (note,) = [line for line in done.out.splitlines() if "runs will have no Darshan log" in line]
    assert note.startswith("note")
    assert message in _said(done)


def test_the_preflight_knows_a_library_that_is_missing_or_none(run: Run, small: Path, tmp_path: Path) -> None:
    (tmp_path / "libdarshan.so").write_text("no library")
    for path, message in (
        (tmp_path / "libdarshan.so", "is not an ELF library"),
        (tmp_path / "nowhere.so", "No such file"),
    ):
        done = run("dlio-hpc", "check", small, "-s", "local", "-d", "data", "--no-launch", "-S", f"site.darshan={path}")
        assert done.code == 0
        assert re.search(rf"^note +Darshan +{path}.* {message}.*: runs have no Darshan log", done.out, re.MULTILINE)
    without = run("dlio-hpc", "check", small, "-s", "local", "-d", "data", "--no-launch")
    assert without.code == 0
    assert re.search(r"^note +Darshan +the site profile sets no libdarshan.so", without.out, re.MULTILINE)


_KIB = 1 << 10


def _planned(ranks: int, *settings: str) -> tuple[plan.Plan, plan.Run]:
    request = planning.Request(runs=Path("/r"), data=Path("/d"), ranks_per_node=ranks, generate="never")
    (made,) = planning.plans(workload.load("demo", settings), site.load("local"), request)
    return made, made.runs[0]


@settings(max_examples=200, deadline=None)
@given(
    files=st.integers(1, 5000), per_file=st.integers(1, 40), size=st.integers(1, 20_000),
    transfer=st.none() | st.integers(50, 30_000), batch=st.integers(1, 16), ranks=st.integers(1, 5),
    epochs=st.integers(1, 3), shuffle=st.sampled_from(["{}", "{files: true}", "{samples: true}",
    "{files: true, samples: true}", "{files: true, reseed: false}"]), shard=st.booleans(),
)  # fmt: skip
def test_a_trace_has_room_for_all_that_is_planned(
    files: int, per_file: int, size: int, transfer: int | None, batch: int, ranks: int, epochs: int, shuffle: str,
    shard: bool,
) -> None:  # fmt: skip
    """Darshan reserves 64 requests for a file and rank and doubles that as needed; the unused part is lost."""
    made, run = _planned(
        ranks,
        f"dataset={{format: npz, files: {files}, samples_per_file: {per_file}, sample: {{bytes: {size}}}}}",
        f"reader={{batch_size: {batch}, shuffle: {shuffle}, shard: {json.dumps(shard)}}}",
        f"reader.transfer_size={transfer or 'null'}",
        f"train={{epochs: {epochs}}}",
    )
    need = darshan_needs.memory(made, run)
    for rank in range(ranks):
        requests = run_check.samples_of_files(made, run, rank) * -(-size // (transfer or size))
        touched = requests[requests > 0].tolist()
        kept = sum(104 + 40 * max(64, 1 << (count - 1).bit_length()) for count in [10, *touched])
        assert kept <= need.wanted_kib * _KIB
        assert len(touched) + 2 <= need.records
        assert (len(touched) + 2) * (len(f"{run.dataset}/00000000.npz") + 9) <= need.names_mib << 20
    assert need.pool_mib << 10 >= need.trace_kib
    assert need.trace_kib == min(need.wanted_kib, darshan_needs.most_trace_kib(made))


def test_a_trace_that_would_take_too_much_is_cut_and_that_is_said() -> None:
    """Each rank clears its trace's whole limit at the end, and what it writes must fit into MODMEM when compressed."""
    files = "dataset={format: npz, files: 8, samples_per_file: 1000000, sample: {bytes: 4096}}"
    made, run = _planned(2, files, "reader.transfer_size=1024")
    note = darshan_needs.note(made, run)
    assert note is not None
    assert re.match(r"Darshan.s trace of 00-measure needs .* per rank but gets 256 MiB: the trace will be trunc", note)
    lines = setup.config(made, run).splitlines()
    assert any(line.startswith("MAX_RECORDS 262144 DXT_POSIX,DXT_MPIIO") for line in lines)
    assert "MODMEM 257" in lines
    assert darshan_needs.note(*_planned(2, files.replace("1000000", "10"))) is None


MANY = {
    "requests": ("dataset.sample={bytes: 180000}", "reader.transfer_size=64", "reader.shuffle={files: true}"),
    "files": ("dataset={format: npz, files: 1100, samples_per_file: 1, sample: {bytes: 100}}", "reader.shard=false"),
}


@pytest.mark.parametrize("what", MANY)
def test_what_is_beyond_darshans_own_limits_is_traced(real: Darshan, what: str) -> None:
    """Darshan's own limits are 65,536 requests or 974 files a rank."""
    options = [word for setting in MANY[what] for word in ("-S", setting)]
    verdict = _measured(real.measure(*options, "-d", f"of-many-{what}", workload=BASE))["darshan"]
    assert (verdict["faults"], verdict["differences"]) == ([], [])
    assert verdict["bytes"]["darshan"] == verdict["bytes"]["planned"]


def test_a_trace_without_room_is_told_and_the_run_is_good(darshan: Darshan) -> None:
    """The counters remain valid."""
    job = darshan.measure()
    config = _folder(job) / "darshan.conf"
    config.write_text(re.sub(r"MAX_RECORDS \d+ DXT.*", "MAX_RECORDS 3 DXT_POSIX,DXT_MPIIO", config.read_text()))
    assert subprocess.run(["bash", Path(job["directory"]) / "job.sh"], capture_output=True, check=False).returncode == 0
    report = darshan.run("dlio-hpc", "report", job["directory"])
    assert report.code == 0
    assert "Darshan 15 MiB, in agreement with dlio-hpc and the plan" in _said(report)
    assert "DXT cut: DXT_POSIX lacks" in _said(report)
    verdict = _measured(darshan.run("dlio-hpc", "report", job["directory"], "--json").job)["darshan"]
    assert verdict["bytes"] == {"darshan": READ, "core": READ, "planned": READ}
    assert {fault["name"] for fault in verdict["faults"]} == {"partial", "DXT cut"}


BASE = """\
name: small
dataset: {format: npz, files: 4, samples_per_file: 6, sample: {shape: [20, 50], dtype: float32}}
reader: {batch_size: 3, read_threads: 2}
train: {epochs: 2}
"""
BASE_BYTES = 4 * 6 * 4000 * 2
_HDF5, _TFRECORD, _CSV = "dataset.format=hdf5", "dataset.format=tfrecord", "dataset.format=csv"
_FRAMEWORK, _SHARED = "reader.mode=framework", "dataset.file_access=shared"
_COLLECTIVE = (_SHARED, "dataset.files=1", "reader.access=collective", "reader.read_threads=1")
WAYS = {
    "npz": (),
    "npz by numpy": (_FRAMEWORK,),
    "npz packed": ("dataset.compression=gzip", "dataset.random_bits=2"),
    "npz shuffled": ("reader.shuffle={files: true, samples: true}",),
    "npz files shuffled": ("reader.shuffle={files: true, seed: 3}",),
    "npz in small requests": ("reader.transfer_size=512", "reader.read_threads=4", "reader.batch_size=5"),
    "npz direct": ("reader.direct=true", "reader.transfer_size=4096"),
    "npz in memory": ("reader.load=memory",),
    "npz in memory, all of it": ("reader.load=memory", "reader.shard=false"),
    "npz shared": (_SHARED, "dataset.files=1"),
    "npz, sizes spread": ("dataset.sample={bytes: 4000, stdev: 900}",),
    "npz, some steps": ("train.steps=2",),
    "npz, all ranks all": ("reader.shard=false",),
    "npz in turn": ("reader.interleave=3",),
    "npz, cache dropped": ("reader.drop_cache=true",),
    "npz, collective": _COLLECTIVE,
    "hdf5": (_HDF5,),
    "hdf5 by h5py": (_HDF5, _FRAMEWORK),
    "hdf5 chunked": (_HDF5, "dataset.chunk={bytes: 1500}"),
    "hdf5 chunked by h5py": (_HDF5, _FRAMEWORK, "dataset.chunk={bytes: 1500}"),
    "hdf5 packed": (_HDF5, "dataset.compression=gzip", "dataset.random_bits=2"),
    "hdf5 packed by h5py": (_HDF5, _FRAMEWORK, "dataset.compression=lzf", "dataset.random_bits=2"),
    "hdf5 shared by h5py": (_HDF5, _FRAMEWORK, _SHARED, "dataset.files=1"),
    "hdf5 in memory": (_HDF5, "reader.load=memory"),
    "tfrecord": (_TFRECORD,),
    "tfrecord by the framework's way": (_TFRECORD, _FRAMEWORK),
    "tfrecord shuffled": (_TFRECORD, "reader.shuffle={files: true, samples: true}"),
    "tfrecord, sizes spread": (_TFRECORD, "dataset.sample={bytes: 4000, stdev: 900}"),
    "csv": (_CSV,),
    "csv by pandas": (_CSV, _FRAMEWORK),
    "checkpoints": ("checkpoint={every_steps: 2, files: [3000, 70000], by: all, read_back: true}",),
    "auxiliary files": ("dataset.auxiliary_files=[{name: norm, bytes: 100, count: 3}, {name: log, bytes: 70, "
                        "access: write, when: step}]",),
}  # fmt: skip


@pytest.fixture(scope="module", params=REAL)
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Darshan:
    return _darshan(request.param, tmp_path_factory.mktemp("real"))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_reading_is_the_same_to_darshan(real: Darshan, way: str) -> None:
    options = [word for setting in WAYS[way] for word in ("-S", setting)]
    job = real.measure(*options, "-d", f"of-{way}", workload=BASE)
    generated, measured = (run["darshan"] for run in job["runs"])
    for verdict in (generated, measured):
        assert (verdict["faults"], verdict["differences"], verdict["why_not"]) == ([], [], None)
    assert measured["bytes"]["darshan"] == measured["bytes"]["core"] > 0
    written = generated["bytes"]
    assert (written["planned"] is None) == ("packed" in way)
    assert written["darshan"] >= (written["planned"] or 1)
    assert measured["clock_error_s"] < 5e-6


@pytest.mark.parametrize(
    "keys", [(), (_FRAMEWORK,), (_HDF5,), (_HDF5, _FRAMEWORK), (_TFRECORD, "train.steps=2")], ids=str
)
def test_workers_read_the_same_to_darshan(real: Darshan, keys: tuple[str, ...]) -> None:
    options = [word for key in keys for word in ("-S", key)]
    job = real.measure(*options, *_SPAWN, "-d", "of-workers", workload=BASE)
    for verdict in (run["darshan"] for run in job["runs"]):
        assert (verdict["faults"], verdict["differences"], verdict["why_not"]) == ([], [], None)
    counts = _measured(job)["darshan"]["bytes"]
    assert counts["darshan"] == counts["core"] >= (counts["planned"] or 1)


@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_tensorflow_reads_the_same_to_darshan(real: Darshan, mode: str) -> None:
    """In framework mode the kernel counts the reads, those of TensorFlow's libraries as well as those of data."""
    pytest.importorskip("tensorflow")
    tensorflow = ("-S", "reader.loader=tensorflow", "-S", "reader.interleave=2", "-S", f"reader.mode={mode}")
    job = real.measure("-S", _TFRECORD, *tensorflow, "-d", "of-tensorflow", workload=BASE)
    verdict = _measured(job)["darshan"]
    assert (verdict["faults"], verdict["differences"]) == ([], [])
    counts = verdict["bytes"]
    assert counts["darshan"] >= counts["planned"] == BASE_BYTES
    assert abs(counts["darshan"] - counts["core"]) <= (1 << 20 if mode == "framework" else 0)
    assert verdict["clock_error_s"] < 5e-6


@pytest.mark.parametrize(("nodes", "kib"), [(1, 256 << 10), (128, 4 << 10), (2048, 256)])
def test_the_traces_of_all_ranks_together_fit_into_memory(nodes: int, kib: int) -> None:
    made, _ = _planned(4, "dataset.files=8")
    assert darshan_needs.most_trace_kib(replace(made, nodes=nodes)) == kib


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Darshan:
    """Jobs under a library before 3.4, which has environment variables only."""
    folder = tmp_path_factory.mktemp("early")
    darshan = Darshan(libdarshan.install(folder / "lib", early=True), False, folder, runner(folder))
    darshan.generate()
    return darshan


def test_a_darshan_without_a_configuration_file_is_set_up_by_its_variables(early: Darshan) -> None:
    done = early.submit()
    assert done.code == 0, done.err
    assert darshan_needs.EARLY in " ".join(done.err.split()), "it is said at submission"
    verdict = _measured(done.job)["darshan"]
    assert (verdict["faults"], verdict["differences"], verdict["why_not"]) == ([], [], None)
    assert verdict["bytes"] == {"darshan": READ, "core": READ, "planned": READ}
    log = log_reader.load(_log(_folder(done.job)))
    folders = (str(early.folder / "data"), done.job["directory"])
    assert all(name.startswith(folders) for name in log.names.values()), "nothing of Python's"
    assert darshan_needs.EARLY in Path(done.job["directory"], "job.err").read_text()


def test_later_ones_are_given_no_variables_that_would_get_the_better_of_their_file(standin: Darshan, done: Any) -> None:
    script = Path(done["directory"], "job.sh").read_text()
    named = subprocess.run(
        [BIN / "python", "-m", "dlio_hpc.darshan", "excluded", "plan.json"],
        cwd=done["directory"], capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (named.stdout, named.stderr) == ("", "")
    assert '[ -z "$excluded" ] || darshan+=(' in script
    assert darshan_needs.reads_configuration(str(standin.library))
    assert darshan_needs.reads_configuration("/nowhere/libdarshan.so") is None


def test_folders_that_hold_data_are_not_left_out(tmp_path: Path) -> None:
    made = planning.make(
        workload.load("demo"), site.load("local"), planning.Request(tmp_path / "runs", data=Path("/opt/data"))
    )
    named = setup.excluded(made, ["/usr", "/home/me/venv", "", "lib", str(tmp_path), "/a,b", "/op"]).split(",")
    assert {"/usr/", "/proc/", "/dev/", "/home/me/venv/", "/op/"} <= set(named)
    assert not {"/opt/", f"{tmp_path}/", "/a", "b/", "lib/"} & set(named)
    assert len(named) == len(set(named))
