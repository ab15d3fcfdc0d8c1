"""Before a measured run, the ranks read the dataset in a plain loop, which leaves the page cache as it was."""

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.errors import InvalidRun
from dlio_hpc.batch import jobscript
from dlio_hpc.config import site
from dlio_hpc.config import workload as workloads
from dlio_hpc.core import clock, files, fio, page_cache, storage_probe
from dlio_hpc.core.storage_probe import ThreadPart
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.files import filesystem, storage_proofs
from dlio_hpc.plan import cost
from dlio_hpc.plan.plan import Plan
from dlio_hpc.records import job_outcome
from dlio_hpc.reports import job_rows
from dlio_hpc.results.probe_result import ProbeRate, StorageProbe
from tests.conftest import Run
from tests.support import planning, recordings, written


def _plan(folder: Path, *keys: str, probe: str = "2 s", workload: str = "demo") -> Plan:
    request = planning.Request(folder, data=folder / "data", walltime=units.walltime("1h"))
    return planning.make(workloads.load(workload, keys), site.load("slurm", (f"probe={probe}",)), request)


_DEMO = _plan(Path("/nowhere"))


def _generated(folder: Path, *keys: str) -> ThreadPart:
    """Return all of a dataset that was written, as the part of a single thread."""
    run = _plan(folder, "dataset.sample={bytes: 200000}", *keys).runs[-1]
    Path(run.dataset).mkdir(parents=True)
    for number in range(run.workload.dataset.files):
        written.write(Path(dataset_folder.file_path(run.stored, number)), run.workload.dataset, number)
    return ThreadPart(run, 0, 1, 0)


def test_a_job_compares_its_run_with_a_plain_loop(run: Run, small: Path) -> None:
    keys = ("-S", "site.probe=0.2 s", "-S", "reader.direct=true", "-S", "dataset.sample={bytes: 100000}")
    done = run("dlio-submit", small, "-s", "local", "--ppn", 2, "--wait", "--json", *keys)
    assert done.code == 0, done.err
    generate, measured = done.job["runs"]
    assert "probe" not in generate
    probe = measured["probe"]
    if filesystem.of(Path(measured["result"]["dataset"]["path"])).kind in storage_proofs.MEMORY:
        assert "is in memory" in probe["why_not"]
        return
    assert probe["why_not"] is None
    assert probe["threads"] == 4
    own = [rate for rate in probe["rates"] if rate["tool"] == "loop"]
    assert [(rate["pattern"], rate["request_bytes"]) for rate in own] == [("sequential", 4 << 20), ("random", 102400)]
    assert all(rate["bytes_read"] > 0 and rate["seconds"] >= 0.2 for rate in own)
    assert (probe["without_fio"] is None) == (shutil.which("fio") is not None)
    for place in (done.job["directory"], done.job["archive"]):
        assert "plain loop, sequential" in run("dlio-hpc", "report", place).out


def test_nothing_is_left_in_the_page_cache(tmp_path: Path) -> None:
    part = _generated(tmp_path)
    paths = list(part.paths())
    if filesystem.of(tmp_path).kind not in storage_proofs.COUNTED:
        pytest.skip("the page cache is looked at on a disk's file system")
    for path in paths:
        page_cache.drop(path)
    before = page_cache.resident(paths)[1]
    deadline = clock.now() + 0.2
    size = sum(Path(path).stat().st_size for path in paths)
    assert storage_probe._sequential(part, 1 << 20, deadline) > size  # it begins again
    assert storage_probe._at_random(part, 4096, clock.now() + 0.1) > 0
    assert page_cache.resident(paths)[1] <= before


@given(files=st.integers(1, 50), threads=st.integers(1, 60), shift=st.integers(0, 2999))
def test_threads_begin_at_different_places(files: int, threads: int, shift: int) -> None:
    run = _DEMO.runs[-1]
    fewer = structs.replace(run.workload.dataset, files=files)
    run = structs.replace(run, workload=structs.replace(run.workload, dataset=fewer))
    parts = [ThreadPart(run, number, threads, shift) for number in range(threads)]
    for part in parts:
        first, skipped = part.begin
        assert 0 <= first < files
        assert 0 <= skipped <= 1
        assert len(set(part.paths())) == files
    begins = [part.begin if files < threads else part.begin[0] for part in parts]
    assert len(set(begins)) == threads


def test_random_reads_are_counted_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = _generated(tmp_path)
    monkeypatch.setattr(storage_probe, "open_file", lambda path, direct: files.open_file(path))
    ticks = iter(range(100))
    monkeypatch.setattr(clock, "now", lambda: next(ticks))
    assert storage_probe._at_random(part, 4096, deadline=3) == 3 * 4096


def test_files_that_are_gone_are_a_fault(tmp_path: Path) -> None:
    part = _generated(tmp_path)
    Path(dataset_folder.file_path(part.run.stored, 3)).unlink()
    with pytest.raises(InvalidRun, match="may have been removed"):
        storage_probe._sequential(part, 1 << 20, clock.now() + 5)


@pytest.mark.parametrize(
    ("kind", "why_not"),
    [
        ("tmpfs", "in memory"),
        ("zfs", "may serve O_DIRECT reads from a cache"),
        ("fuse.rclone", "may serve"),
        ("lustre", None),
    ],
)
def test_some_file_systems_cannot_be_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, why_not: str | None
) -> None:
    monkeypatch.setattr(filesystem, "of", lambda _: filesystem.FileSystem(kind))
    reason = storage_probe._unsuitable(_plan(tmp_path).runs[-1])
    assert reason is None if why_not is None else why_not in str(reason)


def test_only_measured_runs_of_a_dataset_are_probed(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    assert [cost.is_probed(plan.site, run) for run in plan.runs] == [False, True]
    script = jobscript.render(plan)
    assert script.count("--probe") == 1
    assert script.index("run 'probe 01-measure'") < script.index("run 01-measure")
    without = _plan(tmp_path, probe="null")
    assert "--probe" not in jobscript.render(without)
    assert "--probe" not in jobscript.render(_plan(tmp_path, workload="null"))
    more = cost.of_job(plan, set()).expected_s - cost.of_job(without, set()).expected_s
    assert more == pytest.approx(4 * 2 + plan.site.expected_rates.launch)


def _compared(folder: Path, *, cached: float | None = 0.0, au: float = 0.1, **keys: Any) -> list[tuple[str, str]]:
    """Return what a report says of a run of 780 MB/s and its probe."""
    made = _plan(folder, "reader.shuffle.samples=false")
    recordings.leave(folder, made, recordings.merged(made))
    (*_, run) = job_outcome.load(folder).runs
    assert run.result is not None
    assert run.result.summary is not None
    summary = structs.replace(run.result.summary, read_MBps=780.0, au=au)
    (epoch,) = run.result.epochs
    fetched = None if cached is None else round((1 - cached) * epoch.bytes_read)
    counted = {"storage_bytes_read": fetched, "client_bytes_asked": None, "client_bytes_read": None}
    epochs = [structs.replace(epoch, page_cache_fraction=cached, **counted)]
    ended = units.utc_now(fraction=True)
    result = structs.replace(run.result, started=ended, epochs=epochs, file_system="0x7" if cached is None else "ext4")
    rates = [
        ProbeRate("sequential", "loop", 4 << 20, 2000, 2.0, 1000.0),
        ProbeRate("random", "loop", 4096, 2, 2.0, 500.0),
        ProbeRate("sequential", "fio-3.36", 4 << 20, 2, 2.0, 990.0),
    ]
    probe = StorageProbe(**{"ended": ended, "threads": 8, "rates": rates, **keys})
    return job_rows.probe_facts(run._replace(result=result, probe=probe), summary)


def test_a_report_gives_the_share_of_the_plain_loops_rate(tmp_path: Path) -> None:
    (label, first), *rest = _compared(tmp_path)
    assert label == "probe"
    assert first.startswith("780 MB/s are 78 % of what a plain loop got from the same files 0 s before (sequential)")
    assert "computation" not in first
    assert rest[-1] == ("", "fio-3.36, sequential: 990 MB/s, requests of 4 MiB, 8 threads, O_DIRECT")


def test_a_report_says_when_computation_limits_the_run(tmp_path: Path) -> None:
    assert "computation (AU 90 %) limits the rate of the run" in _compared(tmp_path, au=0.9)[0][1]


@pytest.mark.parametrize("cached", [0.5, None])
def test_a_run_that_may_be_cached_is_not_compared(tmp_path: Path, cached: float | None) -> None:
    text = _compared(tmp_path, cached=cached)[0][1]
    assert text == "not compared with the run, which did not provably read from storage"


def test_a_probe_that_failed_says_why(tmp_path: Path) -> None:
    assert _compared(tmp_path, why_not="it rained", rates=[]) == [("probe", "not measured: it rained")]


def test_random_requests_are_blocks_of_at_most_a_mebibyte() -> None:
    sizes = {"1": 4096, "4096": 4096, "4097": 8192, "3MiB": 1 << 20}
    for size, request in sizes.items():
        made = _plan(Path("/nowhere"), f"dataset.sample={{bytes: {size}}}").runs[-1]
        assert storage_probe._random_request(made) == request


def test_the_rate_of_fio_is_that_of_all_nodes_in_the_time_of_the_slowest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, requests = _generated(tmp_path, "dataset.samples_per_file=1"), []

    def gathered(mine: fio.Count) -> list[fio.Count]:
        return [mine, fio.Count("", 5_000_000, 4.0, None), fio.Count("", 0, 0.0, None)]

    def ran(_jobs: object, _pattern: str, request: int, _seconds: float) -> fio.Count:
        requests.append(request)
        return fio.Count("fio-3.36", 3_000_000, 2.0, None)

    comm: Any = SimpleNamespace(allreduce=lambda value, _how: value, allgather=gathered)
    monkeypatch.setattr(clock, "assemble", lambda _comm: None)
    monkeypatch.setattr(fio, "run", ran)
    rate, why_not = storage_probe._with_fio(comm, [part], "sequential", 1 << 20, 1.0)
    assert (rate.bytes_read, rate.seconds, rate.MBps, why_not) == (8_000_000, 4.0, 2.0, None)
    smallest = min(path.stat().st_size for path in Path(part.run.dataset).iterdir())
    assert requests == [smallest // 4096 * 4096], "no request is larger than the smallest file"


def test_nothing_read_in_no_time_has_no_rate() -> None:
    assert storage_probe._rate("random", "loop", 4096, 0, 0.0).MBps == 0.0


def test_fio_gets_files_and_never_writes(tmp_path: Path) -> None:
    arguments = fio.arguments(
        [fio.FioThread(["/a:b/c\\d", "/e"], 0.25), fio.FioThread(["/f"], 0.0)], "random", 4096, 2.0
    )
    assert {"--readonly", "--invalidate=0", "--allow_file_create=0", "--rw=randread", "--bs=4096"} <= set(arguments)
    assert arguments[-5:] == [
        "--name=thread0",
        "--filename=/a\\:b/c\\\\d:/e",
        "--offset=25%",
        "--name=thread1",
        "--filename=/f",
    ]


def test_the_output_of_fio_is_read_or_its_error_is_given() -> None:
    document = '{"fio version": "fio-3.36", "jobs": [{"error": 0, "read": {"io_bytes": 8192, "runtime": 2000}}]}'
    assert fio.counted(f"note: a warning\n{document}", "", 0) == fio.Count("fio-3.36", 8192, 2.0, None)
    assert fio.run([], "random", 0, 0.1).why_not is not None
    assert fio.counted("", "fio: bad option\n", 1).why_not == "fio: fio: bad option"
    assert fio.counted("", "", 139).why_not == "fio: it ended with exit code 139"
    assert fio.counted(document.replace("8192", "0"), "", 0).why_not is not None


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed: apt-get install fio")
def test_fio_reads_the_files(tmp_path: Path) -> None:
    if filesystem.of(tmp_path).kind in storage_proofs.MEMORY:
        pytest.skip("files in memory have no O_DIRECT")
    part = _generated(tmp_path / "with:colon")
    job = fio.FioThread(list(part.paths()), 0.5)
    assert job.largest_request == 200_704
    counted = fio.run([job] * 2, "sequential", job.largest_request, 0.3)
    assert counted.why_not is None
    assert counted.version.startswith("fio-")
    assert counted.bytes_read > 0
    assert fio.run([fio.FioThread([str(tmp_path / "none")], 0.0)], "random", 4096, 0.1).why_not is not None


class _TwoRanks:
    """Rank 0 of two ranks of a node. What the other one reads, and its fault, are given."""

    rank, size = 0, 2

    def __init__(self, count: int = 0, fault: str | None = None) -> None:
        self._count, self._fault = count, fault

    def Barrier(self) -> None:  # noqa: N802 - as mpi4py calls it
        pass

    def Free(self) -> None:  # noqa: N802 - as mpi4py calls it
        pass

    def Split_type(self, _kind: int) -> "_TwoRanks":  # noqa: N802 - as mpi4py calls it
        return self

    def bcast(self, value: int) -> int:
        return value

    def gather(self, parts: list[ThreadPart]) -> list[list[ThreadPart]]:
        return [parts, []]

    def allreduce(self, value: Any, how: object = None) -> Any:
        return value if how is not None else value + self._count

    def allgather(self, value: Any) -> list[Any]:
        return [value, value if isinstance(value, fio.Count) else self._fault]


def _probed(
    monkeypatch: pytest.MonkeyPatch, ranks: _TwoRanks, of_fio: dict[str, fio.Count | None], fault: str | None = None
) -> StorageProbe:
    """Return the outcome of a probe. Of three threads, each reads its number plus one in MB from files in sequence, and
    a hundredth of it at random. of_fio: what fio counts on a rank, by pattern. fault: of this rank.
    """
    at = [50.0]

    def read(divisor: int, part: ThreadPart, request: int, deadline: float) -> int:
        if fault is not None:
            raise InvalidRun(fault)
        assert request == (4 << 20 if divisor == 1 else storage_probe._random_request(part.run))
        at[0] = max(at[0], deadline + 0.5)
        return 10**6 * (part.number + 1) // divisor

    monkeypatch.setattr(clock, "now", lambda: at[0])
    monkeypatch.setattr(clock, "assemble", lambda _comm: None)
    monkeypatch.setattr(filesystem, "of", lambda _: filesystem.FileSystem("ext4"))
    monkeypatch.setattr(storage_probe, "_sequential", partial(read, 1))
    monkeypatch.setattr(storage_probe, "_at_random", partial(read, 100))
    monkeypatch.setattr(fio, "run", lambda _jobs, pattern, *_: of_fio[pattern])
    monkeypatch.setattr(fio.FioThread, "largest_request", 4 << 20)
    run = _plan(Path("/nowhere"), "reader.read_threads=3").runs[-1]
    comm: Any = ranks
    made = storage_probe.probe(comm, run, 1.5)
    assert made is not None
    return made


_FIO: dict[str, fio.Count | None] = {
    "sequential": fio.Count("fio-3.36", 9_000_000, 2.0, None), "random": fio.Count("fio-3.36", 300_000, 3.0, None),
}  # fmt: skip


def test_a_probe_has_the_rates_of_the_loop_and_of_fio(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop reads 1, 2 and 3 MB on this rank and 10 MB on the other, within 2 s. fio reads as much for both."""
    made = _probed(monkeypatch, _TwoRanks(10**7), _FIO)
    assert [(rate.tool, rate.pattern, rate.bytes_read, rate.seconds) for rate in made.rates] == [
        ("loop", "sequential", 16_000_000, 2.0), ("loop", "random", 10_060_000, 2.0),
        ("fio-3.36", "sequential", 18_000_000, 2.0), ("fio-3.36", "random", 600_000, 3.0),
    ]  # fmt: skip
    assert (made.threads, made.why_not, made.without_fio) == (6, None, None)


@pytest.mark.parametrize("pattern", ["sequential", "random"])
def test_a_probe_without_fio_has_the_rates_of_the_loop(monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    made = _probed(monkeypatch, _TwoRanks(), _FIO | {pattern: fio.Count("", 0, 0.0, "fio is gone")})
    assert [(rate.tool, rate.pattern) for rate in made.rates] == [("loop", "sequential"), ("loop", "random")]
    assert (made.why_not, made.without_fio) == (None, "fio is gone")


@pytest.mark.parametrize(("own", "other"), [("own fault", None), (None, "other fault"), ("own fault", "other fault")])
def test_a_fault_of_a_rank_leaves_a_probe_without_rates(
    monkeypatch: pytest.MonkeyPatch, own: str | None, other: str | None
) -> None:
    made = _probed(monkeypatch, _TwoRanks(10**7, other), {"sequential": None, "random": None}, own)
    assert (made.rates, made.why_not, made.without_fio) == ([], own or other, own or other)


def test_a_rank_with_a_fault_counts_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks: Any = _TwoRanks(8_000_000)
    monkeypatch.setattr(clock, "assemble", lambda _comm: None)
    part = ThreadPart(_DEMO.runs[-1], 0, 1, 0)  # its files do not exist
    rate, why_not = storage_probe._measured(ranks, [part], "sequential", 1 << 20, 5.0)
    assert rate.bytes_read == 8_000_000, "those of the other rank"
    assert "/nowhere" in str(why_not)
