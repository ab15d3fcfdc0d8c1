"""Metadata workloads: the operations of all ranks, their rates and latencies, and what is refused."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.analysis import storage_check
from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.base.units import Size
from dlio_hpc.config import site, workload
from dlio_hpc.config.metadata_keys import MetadataKeys
from dlio_hpc.core import clock, distributions, early_stop, merge, metadata_operations
from dlio_hpc.core.io_counters import PhaseRecord
from dlio_hpc.core.loaders import metadata
from dlio_hpc.core.merge import Host
from dlio_hpc.files import rundir
from dlio_hpc.plan import cost
from dlio_hpc.plan.plan import Run
from dlio_hpc.results.phases import PHASES, Phase
from tests.conftest import Run as Command
from tests.conftest import ahead
from tests.support import planning, straced, studies
from tests.support.ranks import Ranks, work_on_ranks


def _without_bytes(overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Return the overrides. If they select phases without write, set the bytes to 0, and if there are no levels of
    subfolders, the width to 1.
    """
    is_unwritten = any(text.startswith("metadata.phases=") and "write" not in text for text in overrides)
    is_flat = "metadata.depth=0" in overrides
    return (*("metadata.bytes=0",) * is_unwritten, *("metadata.width=1",) * is_flat, *overrides)


def _run(tmp_path: Path, *overrides: str, nodes: int = 1, ranks_per_node: int = 2) -> Run:
    made = workload.load(
        "metadata_tree", ("metadata.files=7", "metadata.width=2", "metadata.folders=shared", *_without_bytes(overrides))
    )
    request = planning.Request(
        runs=tmp_path / "runs", data=tmp_path / "data", nodes=nodes, ranks_per_node=ranks_per_node
    )
    return planning.make(made, site.load("slurm" if nodes > 1 else "local"), request).runs[-1]


def _phases(
    run: Run, ranks: int, ranks_on_node: int, epochs: int = 1, stop: early_stop.Stop | None = None
) -> list[list[PhaseRecord]]:
    """Make the phases of some epochs by ranks that are threads, and return what each rank recorded."""
    records: list[Any] = [[] for _ in range(ranks)]
    keys = run.workload.metadata
    assert keys is not None

    def work(rank: int, comm: Any) -> None:
        try:
            loader = metadata.MetadataLoader(comm, run, keys, ranks_on_node, stop)
            for _ in range(epochs):
                for batch in loader.epoch(None, 0, 0, 0):  # type: ignore[arg-type]
                    records[rank].append(batch.tally.phase)
                    comm.bcast(None)
        except Exception as fault:  # noqa: BLE001
            records[rank] = fault
            comm.abort()

    home = os.getcwd()
    work_on_ranks(ranks, work)
    os.chdir(home)
    for record in records:
        if isinstance(record, Exception) and not isinstance(record, threading.BrokenBarrierError):
            raise record
    return records


@pytest.mark.parametrize("folders", ["own", "shared"])
@pytest.mark.parametrize(("ranks", "ranks_on_node"), [(1, 1), (3, 1), (4, 2)])
def test_all_phases_work_on_every_file_once(tmp_path: Path, folders: str, ranks: int, ranks_on_node: int) -> None:
    """The next phase fails if a file is missing, and the folder at the end if one is left."""
    run = _run(tmp_path, f"metadata.folders={folders}", "metadata.depth=2")
    records = _phases(run, ranks, ranks_on_node, epochs=2)
    for record in records:
        assert [one.operations for one in record] == 2 * [7, 7, 7, 7, 4, 7, 7, 7, 7]
        assert all(one.began <= one.ended and one.histogram.sum() == one.operations for one in record)
    left = [path for path in Path(run.outputs).rglob("*") if not path.is_dir()]
    assert not left
    assert not list(Path(run.outputs).rglob("d*"))


@pytest.mark.parametrize("folders", ["own", "shared"])
def test_no_folder_is_made_by_two_ranks(tmp_path: Path, folders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On GlusterFS, a folder that two nodes make at the same time may be a stale file handle to one of them."""
    keys = (f"metadata.folders={folders}", "metadata.depth=2", "metadata.phases=[create]")
    run = _run(tmp_path, *keys)
    mkdir, made = os.mkdir, []

    def noted(path: Any, *mode: Any) -> None:
        made.append(path)
        threading.Event().wait(0.01)
        mkdir(path, *mode)

    monkeypatch.setattr(os, "mkdir", noted)
    _phases(run, 3, 1, epochs=2)
    inner = [path for path in made if not os.path.isabs(path)]
    assert len(inner) == len(set(inner)) == 2 * (1 + (3 if folders == "own" else 1) * 7)


def test_files_of_a_killed_run_do_not_disturb_the_next_run(tmp_path: Path) -> None:
    run = _run(tmp_path, "metadata.phases=[create, stat]", "metadata.depth=0")
    folder = Path(run.outputs) / "0" / "shared"
    folder.mkdir(parents=True)
    (folder / "f0.0").write_text("left")
    (records,) = _phases(run, 1, 1)
    assert [record.operations for record in records] == [7, 7]
    assert (folder / "f0.0").read_text() == ""


def test_a_time_limit_leaves_files_unwritten_that_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written in the order in which they were created, and only written files are read."""
    monkeypatch.setattr(metadata, "_CHUNK", 2)
    phases = "metadata.phases=[readdir, create, write, open_read_close]"
    run = _run(tmp_path, "metadata.time_limit=1 ms", phases, "metadata.depth=0", "metadata.bytes=9")
    written = metadata_operations._written

    def slowly(*arguments: Any) -> None:
        written(*arguments)
        threading.Event().wait(0.002)

    monkeypatch.setattr(metadata_operations, "_written", slowly)
    for records in _phases(run, 3, 1):
        _, create, write, read = (one.operations for one in records)
        assert read == write == 2
        assert create >= 2


def test_no_inodes_left_in_a_phase_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(tmp_path, "metadata.phases=[create]", "metadata.depth=0")
    full = os.statvfs_result((4096, 4096, 100, 50, 50, 1000, 0, 0, 0, 255))

    def refused(paths: Any, took: Any) -> None:
        monkeypatch.setattr(os, "statvfs", lambda _: full)
        raise OSError(28, "No space left on device", paths[0])

    monkeypatch.setattr(metadata_operations, "_created", refused)
    with pytest.raises(InfrastructureError, match=r"^create: cannot use .*: the file system has no inodes left"):
        _phases(run, 1, 1)


@pytest.mark.parametrize(
    ("phases", "epochs", "needed"),
    [
        ("create, unlink", 3, 10),
        ("create, stat", 3, 30),
        ("mkdir, rmdir, create, unlink", 3, 10),
        ("mkdir, create, rmdir, unlink", 3, 20),
        ("mkdir, create, unlink", 3, 40),
    ],
)
def test_inodes_that_are_needed_at_a_time(phases: str, epochs: int, needed: int) -> None:
    """The folder of each epoch is counted, too."""
    keys = MetadataKeys(files=5, phases=tuple(phases.split(", ")), folders="shared")  # type: ignore[arg-type]
    assert cost.metadata_needs(keys, epochs, 2) == (0, needed + epochs)


def test_phases_and_bytes_may_be_swept(tmp_path: Path) -> None:
    made = workload.draft("metadata_tree")
    for phases in (["create"], ["create", "stat", "unlink"]):
        known = made.with_settings({"metadata.phases": phases, "metadata.bytes": 0})
        assert known.dataset.samples == len(phases)


def test_files_have_the_bytes_and_the_names_that_are_asked_for(tmp_path: Path) -> None:
    run = _run(tmp_path, "metadata.phases=[create, write, rename]", "metadata.bytes=300", "metadata.depth=1")
    _phases(run, 2, 1)
    files = sorted(path for path in Path(run.outputs).rglob("*") if path.is_file())
    assert len(files) == 14
    assert {path.stat().st_size for path in files} == {300}
    assert {path.name for path in files} == {f"f{n}.{rank}.r" for n in range(7) for rank in range(2)}
    assert {path.parent.name for path in files} == {"0", "1"}
    assert sorted(sum(1 for path in files if path.parent == folder) for folder in {p.parent for p in files}) == [6, 8]


_PHASES_OF_FILES = ("create", "write", "stat", "readdir", "open_read_close", "rename", "unlink")


@given(st.permutations(_PHASES_OF_FILES[1:-1]), st.integers(0, 5), st.integers(1, 9), st.integers(0, 4))
def test_no_node_uses_a_file_twice_unless_this_is_said(
    order: list[Phase], left_out: int, nodes: int, shift: int
) -> None:
    """The nodes that use the files of node 0 are followed through the phases."""
    shuffled = [phase for phase in order if phase != "write"][left_out:]
    phases: Any = ("mkdir", "create", "write", *shuffled, "unlink", "rmdir")
    keys = MetadataKeys(files=1, bytes=Size(1), phases=phases, shift_nodes=shift)
    again = []
    for group in (("mkdir", "rmdir"), _PHASES_OF_FILES):
        users: set[int] = set()
        for phase in keys.order:
            if phase in group:
                user = -keys.distance(phase) % nodes
                again += [phase] if user in users or (phase == "readdir" and not user) else []
                users.add(user)
    assert sorted(keys.answered_twice(nodes)) == sorted(again)
    if shift == 1:
        assert bool(again) == (nodes < keys.nodes_needed)


def test_the_servers_answered_only_if_no_cache_of_a_node_could(tmp_path: Path) -> None:
    def outcome(
        *keys: str, nodes: int, ranks_per_node: int = 2, kind: str = "lustre", facts: Sequence[str] = ()
    ) -> tuple[str, str]:
        made = workload.load("metadata_tree", _without_bytes(keys))
        request = planning.Request(runs=tmp_path, data=tmp_path / "data", nodes=nodes, ranks_per_node=ranks_per_node)
        plan = planning.make(made, site.load("slurm"), request)
        result = structs.replace(
            studies.result(plan, plan.runs[-1], 1.0, {}), file_system=kind, cache_facts=list(facts)
        )
        known = storage_check.judge(plan.runs[-1], result)
        return known.outcome(), known.text()

    few = ("metadata.phases=[create, stat, open_read_close, unlink]",)
    assert outcome(*few, nodes=4) == (
        "storage",
        "the servers of the file system answered: no node used a file in two phases",
    )
    outcomes = {
        outcome(*few, nodes=1): "before stat, open_read_close, unlink; use -N 4 or more",
        outcome(*few, nodes=2): "before open_read_close, unlink; use -N 4 or more",
        outcome(*few, nodes=3): "before unlink; use -N 4 or more",
        outcome(*few, "metadata.shift_nodes=2", nodes=4): "unlink; use -S metadata.shift_nodes=1 and -N 4",
        outcome(*few, "metadata.shift_nodes=0", nodes=9): "use -S metadata.shift_nodes=1 and -N 4",
        outcome("metadata.folders=shared", nodes=7): "all nodes listed the same folders; use -S metadata.folders=own",
        outcome("metadata.phases=[readdir, create, stat]", nodes=7): "make readdir a phase after create",
        outcome("metadata.phases=[mkdir, readdir]", nodes=7): "make readdir a phase after create",
        outcome(*few, nodes=4, kind="fuse.mergerfs"): "it is not known where fuse.mergerfs makes the operations",
        outcome(*few, nodes=4, kind="9p"): "it is not known where 9p makes the operations",
        outcome(*few, nodes=4, kind="gpfs"): "it is not known where gpfs makes the operations",
        outcome(*few, nodes=4, kind="ceph"): "a CephFS client may create and remove files before the server does",
        outcome(*few, nodes=4, kind="ceph", facts=["wsync", "mounted anew"]): "it is not known where ceph makes",
        outcome(*few, nodes=4, kind="0xF2F52010"): "it is not known where 0xF2F52010",
        outcome(*few, nodes=4, facts=["mounted anew"]): "it is not known where lustre makes the operations",
        outcome("metadata.fsync=false", nodes=7, ranks_per_node=1): "the bytes of write may still be in memory",
        outcome(*few, nodes=4, kind="xfs"): "xfs belongs to one node",
    }
    for (state, text), reason in outcomes.items():
        assert state == "unknown", text
        assert reason in text
    assert outcome(nodes=7, ranks_per_node=1)[0] == "storage"
    assert outcome(*few, nodes=4, kind="ceph", facts=["wsync"])[0] == "storage"
    assert outcome(nodes=7, ranks_per_node=1, kind="tmpfs")[0] == "cached"


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 3))
def test_each_rank_works_on_the_files_of_one_other_rank(nodes: int, ranks_on_node: int, shift: int) -> None:
    ranks = nodes * ranks_on_node
    keys = MetadataKeys(files=1, phases=("create", "stat", "unlink"), shift_nodes=shift)
    owners = {phase: [] for phase in keys.order}  # type: ignore[var-annotated]
    for rank in range(ranks):
        loader = metadata.MetadataLoader.__new__(metadata.MetadataLoader)
        loader._keys, loader._ranks_on_node = keys, ranks_on_node
        loader._comm = Ranks(ranks).members[rank]  # type: ignore[assignment]
        for phase in keys.order:
            owners[phase].append(loader._owner(phase))
    assert owners["create"] == list(range(ranks))
    for place, phase in enumerate(keys.order):
        assert sorted(owners[phase]) == list(range(ranks)), "each file once"
        apart = place * shift % nodes
        assert all((owner // ranks_on_node - rank // ranks_on_node) % nodes == apart
                   for rank, owner in enumerate(owners[phase]))  # fmt: skip


def test_a_time_limit_ends_a_phase_and_later_phases_know_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "_CHUNK", 2)
    run = _run(
        tmp_path, "metadata.time_limit=1 ms", "metadata.phases=[create, stat, rename, unlink]", "metadata.depth=0"
    )
    created = metadata_operations._created

    def slowly(paths: Any, took: Any) -> None:
        created(paths, took)
        threading.Event().wait(0.002)

    monkeypatch.setattr(metadata_operations, "_created", slowly)
    (record,) = _phases(run, 1, 1)
    create, stat, rename, unlink = (one.operations for one in record)
    assert create == 2
    assert rename == create
    assert stat <= create >= unlink > 0


class _Voting:
    """Communicator of rank 1 of 2. vote: vote of rank 0."""

    rank, size, vote = 1, 2, 0

    def Iallreduce(self, sent: list[Any], received: list[Any], _: object) -> Any:  # noqa: N802
        received[0][0] = sent[0][0] | self.vote
        return SimpleNamespace(Test=lambda: True)


def test_a_step_is_cut_on_all_ranks_if_one_rank_cut_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comm, seconds = _Voting(), [5.0]
    monkeypatch.setattr(clock, "now", lambda: seconds[0])
    stop = early_stop.Stop(comm, tmp_path)  # type: ignore[arg-type]
    assert not stop.cuts()
    assert (stop.barrier(), stop.is_cut()) == (False, False)
    (tmp_path / rundir.STOP).touch()
    assert not stop.cuts(), "the file is looked for once a second"
    comm.vote = 1
    assert (stop.barrier(), stop.is_cut()) == (True, False), "rank 0 saw the file after its step"
    comm.vote = 3
    assert (stop.barrier(), stop.is_cut()) == (True, True)
    comm.vote = 0
    seconds[0] += 1
    assert stop.cuts()
    assert (stop.barrier(), stop.is_cut()) == (True, True)


def test_a_phase_ends_when_the_time_limit_of_the_job_is_near(tmp_path: Path) -> None:
    run = _run(tmp_path, "metadata.phases=[create, stat]", "metadata.depth=0", "metadata.files=600")
    (tmp_path / rundir.STOP).touch()
    (record,) = _phases(run, 1, 1, stop=early_stop.Stop(SimpleNamespace(rank=0, size=1), tmp_path))  # type: ignore[arg-type]
    assert [phase.operations for phase in record] == [metadata._CHUNK, metadata._CHUNK]


@pytest.mark.job
@pytest.mark.parametrize(
    ("phases", "slow", "left"),
    [("create,rename", "rename", "1 of 6 phases"), ("mkdir,rmdir", "mkdir", "no phase is complete")],
)
def test_a_metadata_job_keeps_the_phases_before_its_time_limit(
    run: Command, tmp_path: Path, phases: str, slow: str, left: str
) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(
        f"""import os, time
quick = os.{slow}
def slow(path, *more, **options):
    time.sleep(0.001 * str(path).startswith("0/"))
    quick(path, *more, **options)
os.{slow} = slow
""",
        encoding="utf-8",
    )
    done = run(
        "dlio-submit", "metadata_own", "-s", "local", "--ppn", 2, "-S", "metadata.files=20000", "-S",
        f"metadata.phases=[{phases}]", "-t", "8s", "--wait", "--json", **ahead(tmp_path / "slow"),
    )  # fmt: skip
    assert done.code == 7
    assert done.job["state"] == "timeout"
    report = run("dlio-hpc", "report", done.job["directory"]).out
    assert left in " ".join(report.split())
    assert report.startswith("Not measured")
    assert run("dlio-hpc", "clean").code == 0, "the job may have ended before it had removed all files"
    assert not list(tmp_path.rglob("outputs-*"))


def _record(began: float, ended: float, latencies: list[float]) -> PhaseRecord:
    seconds = np.array(latencies)
    return PhaseRecord(
        began, ended, len(latencies), distributions.histogram(seconds), float(seconds.sum()), float(seconds.max())
    )


def test_rates_of_a_phase_with_known_figures() -> None:
    """Three ranks: 4, 2 and 10 operations in 2 s, 4 s and 5 s; the second repeat of each takes twice the time."""
    ops = [([0.5] * 4, 0.0, 2.0), ([1.0, 3.0], 1.0, 5.0), ([0.1] * 10, 0.0, 5.0)]
    totals = [(len(times), sum(times), max(times)) for times, _, _ in ops]
    spans = [((begin, end), (20 + begin, 20 + 2 * end - begin)) for _, begin, end in ops]
    table = np.array([[(*span, *total) for span in pair] for pair, total in zip(spans, totals, strict=True)])
    histogram = 2 * sum(distributions.histogram(np.array(times)) for times, _, _ in ops)
    hosts = [Host("a", "1"), Host("a", "1"), Host("b", "2")]
    summary = merge._phase_summary("stat", table, histogram, hosts)  # type: ignore[arg-type]
    assert (summary.phase, summary.operations) == ("stat", 32)
    assert list(summary.rates) == pytest.approx([16 / 5, 16 / 10])
    assert summary.per_s == pytest.approx(np.median(summary.rates))
    first = [(4 + 2 * 1 / 4 + 10 * 2 / 5) / 2, (4 + 2 * 3 / 8 + 10 * 4 / 10) / 4]
    assert summary.per_s_of_first == pytest.approx(np.median(first))
    assert summary.wall_s == pytest.approx(7.5)
    assert summary.latency_s is not None
    assert summary.latency_s.mean == pytest.approx(2 * 7.0 / 32)
    assert summary.latency_s.max == 3.0
    assert (summary.slowest_rank.rank, summary.slowest_rank.host) == (2, "b")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"phases": ["stat", "create"]}, "phases: stat works on files, so create must come before"),
        ({"phases": ["rmdir"]}, "phases: rmdir removes directories, so mkdir must come before"),
        ({"phases": ["create", "create"]}, "each phase may be given once"),
        ({"phases": ["create", "write"]}, "phases: write needs bytes"),
        ({"phases": []}, "phases"),
        ({"phases": ["create", "fsync"]}, "phases"),
        ({"depth": 2, "width": 4}, "width .. depth is 16, but at most one subfolder for each file is possible"),
        ({"files": 0}, "files"),
        ({"bytes": 100}, "bytes: only the phase write writes them; add write"),
        ({"bytes": 1, "phases": ["create", "open_read_close", "write"]}, "write must come before"),
        ({"phases": ["create", "unlink", "stat"]}, "unlink removes the files, so it must be the last"),
        ({"bytes": "2 GiB", "phases": ["create", "write"]}, "bytes: at most 1 GiB"),
        ({"width": 10}, "width: without depth there are no subfolders"),
        ({"time_limit": "-1 s"}, "time_limit"),
    ],
)
def test_operations_that_cannot_be(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(f"name: w\nmetadata: { ({'files': 10, 'phases': ['create', 'stat']} | keys)!r}\n".replace("'", '"'))
    with pytest.raises(ConfigError, match=message):
        workload.load(str(path))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            ("dataset={format: npz, files: 1, samples_per_file: 1, sample: {bytes: 1}}",),
            "leave out the keys of dataset",
        ),
        (("dataset.subfolders=10",), "metadata.depth and metadata.width make subfolders"),
        (("checkpoint={}",), "metadata and checkpoint exclude each other"),
        (("train.steps=2",), "leave train.steps out"),
        (("reader.batch_size=4",), "reads no samples; leave reader.batch_size out"),
    ],
)
def test_keys_of_other_workloads(keys: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        workload.load("metadata_own", keys)


def test_inodes_and_space_are_checked_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(tmp_path, "metadata.depth=1", "metadata.folders=own")
    assert cost.require_space(run, 2).startswith(f"{2 * (7 + 7) + 3 * 2 * 3} inodes needed, ")
    some = os.statvfs(tmp_path)
    few = os.statvfs_result((*some[:5], 1000, 5, 5, *some[8:]))
    monkeypatch.setattr(os, "statvfs", lambda _: few)
    with pytest.raises(ConfigError, match=r"makes 46 files and directories, but .* has 5 inodes left"):
        cost.require_space(run, 2)


def test_a_phase_that_fails_names_the_operation_and_the_path(tmp_path: Path) -> None:
    run = _run(tmp_path, "metadata.phases=[create, stat, unlink]", "metadata.depth=0")
    create = metadata_operations._created

    def forgetful(paths: Any, took: Any) -> None:
        create(paths, took)
        os.unlink(paths[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_operations, "_created", forgetful)
        with pytest.raises(InfrastructureError, match=r"^stat: cannot use .*outputs-.*/0/shared/f6\.0: No such file"):
            _phases(run, 1, 1)


def test_every_phase_has_operations() -> None:
    keys = MetadataKeys(files=1, bytes=1)  # type: ignore[arg-type]
    for phase in PHASES:
        assert callable(metadata_operations.of(phase, keys))
    assert keys.order == PHASES
    assert MetadataKeys(files=1).order == tuple(phase for phase in PHASES if phase != "write")


# For each phase, the system call that is counted, and what its line contains.
_CALLS: dict[Phase, str] = {
    "mkdir": r'mkdir\("0/0/[01]/d', "create": r'openat\(.*/f\d.*O_CREAT\|O_EXCL', "write": r"write\(.*/f\d.* = 100$",
    "stat": r'stat\w*\(.*"0/0/[01]/f', "readdir": r'openat\(.*"0/0/[01]", .*O_DIRECTORY', "rename": r'rename\("0/0/',
    "open_read_close": r"read\(.*/f\d.* = 100$", "unlink": r'unlink\("0/0/', "rmdir": r'rmdir\("0/0/[01]/d',
}  # fmt: skip


@pytest.mark.strace
def test_the_counts_of_every_phase_are_those_of_the_system_calls(tmp_path: Path) -> None:
    straced.needed()
    run = _run(tmp_path, "metadata.depth=1", "metadata.folders=own", "metadata.bytes=100", "metadata.files=23")
    (tmp_path / "run.json").write_bytes(serialization.encode(run))
    program = (
        "import sys; from pathlib import Path\n"
        "from dlio_hpc.base import serialization; from dlio_hpc.plan.plan import Run\n"
        "from dlio_hpc.core import clock; from dlio_hpc.core.loaders.metadata import MetadataLoader\n"
        "from tests.support.ranks import Ranks\n"
        "run = serialization.decode(Path(sys.argv[1]).read_bytes(), Run, 'run'); clock.assemble = lambda comm: None\n"
        "loader = MetadataLoader(Ranks(1).members[0], run, run.workload.metadata, 1)\n"
        "print(*(batch.tally.phase.operations for batch in loader.epoch(None, 0, 0, 0)))"
    )
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-qq", "-y", "-e", "trace=file,read,write,getdents64", "-o", str(trace)]
    done = subprocess.run(
        [*command, sys.executable, "-c", program, str(tmp_path / "run.json")],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    counted = dict(zip(PHASES, map(int, done.stdout.split()), strict=True))
    lines = trace.read_text()
    assert {phase: len(re.findall(pattern, lines, re.MULTILINE)) for phase, pattern in _CALLS.items()} == counted
    assert counted == dict.fromkeys(PHASES, 23) | {"readdir": 2}
