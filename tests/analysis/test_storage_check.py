"""Each source of evidence by itself shows whether data came from storage; without evidence, that is unknown."""

import fcntl
import json
import os
import socket
import struct
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from dlio_hpc.analysis import storage_check
from dlio_hpc.analysis.storage_check import Storage
from dlio_hpc.base import units
from dlio_hpc.config import reader_keys, site, workload
from dlio_hpc.config.checkpoint_keys import Checkpoint
from dlio_hpc.config.reader_keys import Shuffle
from dlio_hpc.core import cache_facts, client_counters, page_cache, procfs, run_file_systems
from dlio_hpc.darshan.verdict_file import Bytes, LogVerdict
from dlio_hpc.dataset import rank_shares
from dlio_hpc.files import block_devices, filesystem, storage_proofs
from dlio_hpc.files.filesystem import FileSystem
from dlio_hpc.plan.plan import Run
from dlio_hpc.records.job_outcome import RunOutcome
from dlio_hpc.results.probe_result import ProbeRate, StorageProbe
from dlio_hpc.results.run_result import (
    DatasetFacts,
    Distribution,
    Epoch,
    EvaluationSummary,
    RestoreSummary,
    Result,
)
from tests.support import planning, studies

MIB = 1 << 20


def _run(**reader: Any) -> Run:
    work = workload.load("demo")
    work = replace(work, reader=replace(work.reader, **reader))
    return planning.make(work, site.load("local"), planning.Request(runs=Path("r"))).runs[1]


def _result(kind: str, *epochs: dict[str, Any], memory: int | None = None, size: int = 256 * MIB) -> Result:
    base = {"wall_s": 1.0, "steps": 1, "samples": 1, "wait_s": 0.1, "compute_s": 0.1, "sync_s": 0.1}
    made = tuple(
        Epoch(**{"epoch": number, "bytes_read": 256 * MIB, **base, **epoch}) for number, epoch in enumerate(epochs, 1)
    )
    return Result(
        run="01-measure", kind="measure", plan_sha256="", started="", ended="", ranks=4, nodes=1, ranks_per_node=4,
        dataset=DatasetFacts("", "", "npz", 64, 256, size), hosts=[], versions={}, epochs=list(made), summary=None,
        file_system=kind, memory_bytes=memory,
    )  # fmt: skip


def _judge(
    kind: str, *epochs: dict[str, Any], memory: int | None = None, size: int = 256 * MIB, **reader: Any
) -> Storage:
    return storage_check.judge(_run(**reader), _result(kind, *epochs, memory=memory, size=size))


def test_the_kernels_count_decides_on_local_disks() -> None:
    verdict = _judge("ext4", {"storage_bytes_read": 256 * MIB}, {"storage_bytes_read": 64 * MIB})
    assert (verdict.outcome(), verdict.cached) == ("cached", 0.75)
    assert verdict.text() == "cached: 25.0 % from storage in epoch 2 (kernel's count on ext4)"
    assert verdict.outcome(limit=0.8) == "storage"
    assert verdict.advice[:2] == ("-S reader.direct=true (O_DIRECT)", "-S reader.drop_cache=true")


def test_darshans_count_stands_beside_it_wherever_a_run_is_shown() -> None:
    result = _result("ext4", {"storage_bytes_read": 256 * MIB})
    assert RunOutcome(_run(), None, None, None).storage is None
    assert RunOutcome(_run(), result, None, LogVerdict(None, "it is gone")).storage == storage_check.judge(
        _run(), result
    )
    verdict = RunOutcome(_run(), result, None, LogVerdict("a.darshan", bytes=Bytes(255 * MIB, 256 * MIB, None))).storage
    assert verdict is not None
    assert verdict.text() == "100.0 % from storage (kernel's count on ext4; Darshan recorded requests of 255 MiB)"


def test_readahead_beyond_what_was_asked_is_no_negative_cache() -> None:
    verdict = _judge("xfs", {"storage_bytes_read": 300 * MIB})
    assert (verdict.outcome(), verdict.cached, verdict.advice) == ("storage", 0.0, ())
    assert verdict.text() == "100.0 % from storage (kernel's count on xfs)"


def test_up_to_the_limit_is_fine_and_above_is_not() -> None:
    for arrived, outcome in ((231 * MIB, "storage"), (230 * MIB, "cached")):
        assert _judge("btrfs", {"storage_bytes_read": arrived}).outcome() == outcome


@pytest.mark.parametrize("kind", ["fuse.sshfs", "fuse", "fuse.bindfs", "gpfs", "zfs", "lustre", "nfs", "0x1234", ""])
def test_where_the_kernel_does_not_count_its_count_says_nothing(kind: str) -> None:
    """FUSE, GPFS and NFS leave read_bytes at 0, and ZFS counts data from memory, so that the outcome is unknown."""
    for counted in (0, 256 * MIB):
        verdict = _judge(kind, {"storage_bytes_read": counted})
        assert (verdict.outcome(), verdict.cached) == ("unknown", None)
        assert verdict.text().startswith("UNKNOWN: on ")
        assert "no counter shows" in verdict.text()
        assert verdict.advice


@pytest.mark.parametrize(
    ("kind", "doubt"),
    [
        ("lustre", ""), ("beegfs", ""), ("ext4", "ext4 belongs to one node"), ("tmpfs", "the files are in memory"),
        ("nfs", "it is not known where nfs answers opens"), ("ceph", "not known where ceph"), ("gpfs", "where gpfs"),
        ("fuse.glusterfs", "where fuse.glusterfs"), ("", "where this file system"),
    ],
)  # fmt: skip
def test_the_node_may_have_answered_opens(kind: str, doubt: str) -> None:
    """The bytes come from storage, and say nothing about the opens."""
    verdict = _judge(kind, {"page_cache_fraction": 0.0}, direct=True)
    assert bool(verdict.opens_doubt) == bool(doubt)
    assert doubt in verdict.opens_doubt


def test_the_client_decides_on_lustre_and_nfs() -> None:
    """Other programs on the nodes may read too; all data from memory count as the run's."""
    quiet = {"client_bytes_asked": 256 * MIB, "client_bytes_read": 0, "storage_bytes_read": 256 * MIB}
    assert _judge("lustre", quiet).cached == 1
    half = {"client_bytes_asked": 256 * MIB, "client_bytes_read": 128 * MIB}
    assert _judge("nfs", half).cached == 0.5
    busy = {"client_bytes_asked": 2816 * MIB, "client_bytes_read": 2560 * MIB}
    assert _judge("lustre", busy).cached == 1, "what came from memory may all have been ours"
    assert _judge("nfs", {"client_bytes_asked": 256 * MIB, "client_bytes_read": 260 * MIB}).outcome() == "storage"


def test_pages_in_memory_decide_where_nobody_counts_and_only_the_kernel_caches() -> None:
    for kind in ("nfs", "ceph", "fuse.sshfs"):
        assert _judge(kind, {"page_cache_fraction": 0.0}).outcome() == "storage"
        assert _judge(kind, {"page_cache_fraction": 0.5}).outcome() == "cached"


@pytest.mark.parametrize("kind", ["fuse", "fuse.bindfs", "fuse.rclone", "fuseblk", "virtiofs"])
def test_neither_pages_nor_o_direct_prove_anything_where_a_process_may_cache(kind: str) -> None:
    assert _judge(kind, {"page_cache_fraction": 0.0}).outcome() == "unknown"
    assert _judge(kind, {}, direct=True).outcome() == "unknown"
    assert _judge(kind, {"page_cache_fraction": 0.5}).outcome() == "cached", "what is in memory is not read again"
    advice = " ".join(_judge(kind, {"page_cache_fraction": 0.0}).advice)
    assert "direct" not in advice
    assert "drop_cache" not in advice


def test_more_than_memory_holds_may_lie_on_a_local_disk_of_an_unknown_client() -> None:
    asked = {"bytes_read": 1000 * MIB}
    for kind, facts, outcome in (
        ("fuse.glusterfs", [], "storage"), ("fuse.rclone", [], "unknown"), ("ceph", [], "storage"),
        ("ceph", ["fsc"], "unknown"), ("0x1234", [], "unknown"), ("gpfs", ["sparse"], "unknown"),
    ):  # fmt: skip
        result = replace(_result(kind, asked, memory=100 * MIB, size=1000 * MIB), cache_facts=facts)
        assert storage_check.judge(_run(), result).outcome() == outcome, kind


def test_ceph_fuse_reads_from_storage_with_o_direct_and_is_asked_otherwise() -> None:
    kind = "fuse.ceph-fuse"
    assert _judge(kind, {}, direct=True).outcome() == "storage"
    assert _judge(kind, {"page_cache_fraction": 0.0}).outcome() == "unknown", "the object cacher ignores dropped pages"
    nothing = {"client_bytes_asked": None, "client_bytes_read": 505, "client_bytes_kept": 0, "page_cache_fraction": 0.0}
    assert _judge(kind, nothing).outcome() == "cached"
    assert _judge(kind, nothing).advice[0] == "-S reader.direct=true (O_DIRECT)"
    everything = {**nothing, "client_bytes_read": 256 * MIB}
    assert _judge(kind, everything).outcome() == "unknown", "other programs may have read that much"
    assert _judge(kind, everything, direct=True).outcome() == "storage"
    assert _judge(kind, {**nothing, "client_bytes_read": 300 * MIB}, direct=True).outcome() == "storage"


def test_what_quick_read_kept_is_not_from_storage() -> None:
    """A lookup brings small files along, which are then read from memory, as are those that were kept before."""

    def gluster(arrived: int, kept: int, asked: int = 256) -> Storage:
        counts = {"client_bytes_asked": asked * MIB, "client_bytes_read": arrived * MIB}
        kept_bytes = {"client_bytes_kept": kept * MIB, "page_cache_fraction": 0.0}
        return _judge("fuse.glusterfs", {**counts, **kept_bytes}, direct=True)

    assert gluster(258, 0).outcome() == "storage"
    assert gluster(258, 20).outcome() == "storage"
    assert (gluster(258, 300).outcome(), gluster(258, 30).outcome()) == ("unknown", "unknown")
    assert "may have kept 30 MiB in its own memory" in gluster(258, 30).text()
    limit = {"bytes_read": 1000, "client_bytes_asked": 1000, "client_bytes_read": 900, "client_bytes_kept": 300}
    assert _judge("fuse.glusterfs", limit | {"page_cache_fraction": 0.0}, direct=True).outcome() == "unknown"
    assert (gluster(40, 300).outcome(), gluster(40, 0).outcome()) == ("cached", "cached")
    assert gluster(258, 0, asked=200).cached == pytest.approx(56 / 256), "the page cache had the others"
    assert gluster(258, 0, asked=0).cached == 1, "only answers about metadata arrived"
    unread = {"page_cache_fraction": 0.0}
    assert _judge("fuse.glusterfs", unread).outcome() == "unknown", "its counters cannot be read"
    counts = {"client_bytes_asked": 256 * MIB, "client_bytes_read": 258 * MIB, "client_bytes_kept": 0}
    for resident, outcome in ((0.0, "storage"), (0.8, "cached"), (None, "unknown")):
        buffered = _judge("fuse.glusterfs", {**counts, "page_cache_fraction": resident})
        assert buffered.outcome() == outcome, "another program may have asked for what the page cache has"
    assert _judge("fuse.glusterfs", unread).advice[1] == "-S reader.drop_cache=true"
    assert "performance.quick-read off" in _judge("fuse.glusterfs", unread, drop_cache=True, direct=True).advice[0]


def _with_passes(kind: str, passes: dict[str, Any], facts: tuple[str, ...] = (), **reader: Any) -> Storage:
    """Judge a run on ext4 that read storage, with evaluation passes on another file system."""
    times = {"wall_s": 2.0, "wait_s": 0.1, "compute_s": 0.2, "sync_s": 0.3, "samples_per_s": 1.0, "read_MBps": 1.0}
    counts = {"storage_bytes_read": None, "client_bytes_asked": None, "client_bytes_read": None}
    evaluation = EvaluationSummary(
        **{"count": 2, "samples": 6, "bytes_read": 8 * MIB, "page_cache_fraction": None, **times, **counts, **passes}
    )
    work = _run(**reader)
    made = _result("ext4", {"storage_bytes_read": 256 * MIB})
    summary = studies.summary(1.0, evaluation=evaluation)
    result = replace(made, summary=summary, evaluation_file_system=kind, evaluation_cache_facts=list(facts))
    return storage_check.judge(replace(work, evaluation=work), result)


def test_evaluation_passes_are_held_against_their_own_file_system() -> None:
    """They change no outcome, because no other figure includes them, but they are named."""
    direct: dict[str, Any] = {"direct": True}
    for kind, counts, reader, remark in (
        ("ext4", {"storage_bytes_read": 8 * MIB}, direct, ""),
        ("ext4", {"storage_bytes_read": 2 * MIB}, direct, "75.0 % of the evaluation passes came from memory (kernel's"),
        ("ext4", {"storage_bytes_read": 8 * MIB, "page_cache_fraction": 0.5}, {}, "50.0 % of the evaluation passes"),
        ("tmpfs", {}, direct, "100.0 % of the evaluation passes came from memory (tmpfs is memory)"),
        ("fuse.bindfs", {}, direct, "whether the evaluation passes read storage is unknown (the process that serves"),
        ("lustre", {}, direct, ""),
        ("", {"storage_bytes_read": 0}, direct, "100.0 % of the evaluation passes came from memory"),
    ):  # fmt: skip
        verdict = _with_passes(kind, counts, **reader)
        assert (verdict.outcome(), len(verdict.remarks)) == ("storage", bool(remark)), (kind, verdict.remarks)
        assert "".join(verdict.remarks).startswith(remark)
    moved = _with_passes("ext4", {"storage_bytes_read": 8 * MIB}, ("files elsewhere",))
    assert "is unknown (some files are on another file system" in moved.remarks[0]


def test_a_loop_device_is_only_as_good_as_the_disks_below_it() -> None:
    counts = {"storage_bytes_read": 256 * MIB}
    for facts, below, outcome in (
        ([], None, "storage"), (["loop device"], None, "unknown"), (["loop device"], 256 * MIB, "unknown"),
        (["loop device"], 1 * MIB, "cached"), (["loop device with direct I/O"], 256 * MIB, "storage"),
        (["loop device with direct I/O"], None, "unknown"), (["loop device with direct I/O"], 0, "cached"),
        (["loop device", "loop device with direct I/O"], 256 * MIB, "unknown"), (["memory device"], None, "cached"),
        (["unknown device"], None, "unknown"), (["files elsewhere"], None, "unknown"),
    ):  # fmt: skip
        for direct in (False, True):
            result = replace(_result("xfs", {**counts, "client_bytes_read": below}), cache_facts=facts)
            assert storage_check.judge(_run(direct=direct), result).outcome() == outcome, facts


def test_disks_that_delivered_less_than_the_kernel_counted_prove_memory() -> None:
    """A device in memory was mounted over the files, or links lead to it: the kernel counts its requests, too."""
    for fetched, below, cached, source in (
        (256, 256, 0.0, "kernel's count on xfs"), (256, 900, 0.0, "kernel's count on xfs"),
        (256, 128, 0.5, "count of the disks below xfs"), (256, None, 0.0, "kernel's count on xfs"),
        (128, 128, 0.5, "kernel's count on xfs"), (300, 240, 0.0, "kernel's count on xfs"),
        (None, 64, 0.75, "count of the disks below xfs"),
    ):  # fmt: skip
        counts = {
            "storage_bytes_read": None if fetched is None else fetched * MIB,
            "client_bytes_read": None if below is None else below * MIB,
        }
        (epoch,) = _judge("xfs", counts, direct=True).epochs
        assert (epoch.cached, epoch.source) == (cached, source), (fetched, below)


@pytest.mark.parametrize(
    ("read", "resident", "outcome"),
    [
        (16, 0.04, "unknown"),
        (16, 0.002, "storage"),
        (256, 0.04, "storage"),
        (128, 0.04, "storage"),
        (16, 0.9, "cached"),
    ],
)
def test_neighbouring_pages_do_not_hide_those_in_memory(read: int, resident: float, outcome: str) -> None:
    """An epoch reads 16 MiB of 256 MiB in random order. If 4 % of all pages are in memory, they may be 64 % of those
    that it reads. The kernel counts more bytes than the epoch reads, because it fetches neighbouring pages, too.
    """
    counts = {"bytes_read": read * MIB, "storage_bytes_read": 300 * MIB, "page_cache_fraction": resident}
    verdict = _judge("ext4", counts, shuffle=Shuffle(files=True, samples=True))
    assert verdict.outcome() == outcome
    if outcome == "unknown":
        assert "up to 64 % of what the epoch read may have been in memory before" in verdict.text()


def test_fewer_bytes_of_compressed_files_are_not_bytes_from_memory() -> None:
    counts = {"storage_bytes_read": 114 * MIB, "page_cache_fraction": 0.0}
    for fact in ("compressed", "compress=zstd:3", "compress-force=lzo"):

        def judged(direct: bool = False, fact: str = fact, **changes: Any) -> Storage:
            result = replace(_result("btrfs", {**counts, **changes}), cache_facts=[fact])
            return storage_check.judge(_run(direct=direct), result)

        assert judged().outcome() == "storage"
        assert judged(direct=True).outcome() == "storage", "which O_DIRECT does not prove, but its pages do"
        assert judged(page_cache_fraction=0.5).outcome() == "cached"
        assert judged(page_cache_fraction=None).outcome() == "unknown"
        assert judged(storage_bytes_read=0).outcome() == "cached", "everything came from memory"
        assert judged(page_cache_fraction=0.5).advice == (
            "-S reader.drop_cache=true",
            "a dataset of 5 times the nodes' memory",
        )
    assert _judge("btrfs", counts).outcome() == "cached"


def test_a_run_that_is_faster_than_the_probe_is_in_doubt_unless_its_bytes_were_counted() -> None:
    def judged(kind: str, seconds: float, **counts: Any) -> Storage:
        result = replace(
            _result(kind, {"bytes_read": 1000 * 10**6, **counts}), summary=studies.summary(1.0, io_time_s=seconds)
        )
        plain = ProbeRate("sequential", "loop", 1 << 20, 10**9, 1.0, 1000.0)
        probe = StorageProbe("2026-01-01T00:00:00Z", 4, [plain, replace(plain, tool="fio-3.33", MBps=9000.0)])
        return storage_check.judge(_run(direct=True), result, None, probe)

    assert judged("gpfs", 0.9).outcome() == "storage"
    assert judged("gpfs", 0.7).outcome() == "unknown"
    assert "the run read at 1429 MB/s, but a plain loop with O_DIRECT got 1000 MB/s" in judged("gpfs", 0.7).text()
    assert judged("ext4", 0.7, storage_bytes_read=1000 * 10**6).outcome() == "storage"


def test_direct_reads_pass_the_page_cache() -> None:
    assert _judge("gpfs", {}, direct=True).outcome() == "storage"
    assert _judge("zfs", {}, direct=True).outcome() == "unknown", "it has a cache of its own"
    assert _judge("0x1234", {}, direct=True).outcome() == "unknown", "nothing is known about it"


def test_what_is_read_ahead_does_not_hide_what_was_in_memory() -> None:
    """Three quarters of the pages were in memory; for the others the kernel fetched their neighbours as well."""
    counts = {"storage_bytes_read": 400 * MIB, "page_cache_fraction": 0.75}
    in_order = _judge("ext4", counts, shuffle=reader_keys.Shuffle())
    assert in_order.outcome() == "storage", "in order nothing is fetched twice"
    fits = _judge("ext4", counts, memory=1024 * MIB, shuffle=reader_keys.Shuffle())
    assert fits.outcome() == "cached", "programs are read as well, and what was in memory stayed there"
    in_any_order = _judge("ext4", counts, shuffle=reader_keys.Shuffle(samples=True))
    assert (in_any_order.outcome(), in_any_order.cached) == ("cached", 0.75)
    assert "includes other reads" in in_any_order.text()
    assert _judge("ext4", counts, shuffle=reader_keys.Shuffle(samples=True), direct=True).outcome() == "storage"


def test_ranks_that_read_everything_share_what_one_of_them_fetched() -> None:
    """Four ranks of a node read the same data; pages in memory before the epoch do not show that."""
    assert _judge("ceph", {"page_cache_fraction": 0.0}, shard=False).cached == 0.75


def test_memory_is_no_storage() -> None:
    verdict = _judge("tmpfs", {"storage_bytes_read": 256 * MIB}, direct=True)
    assert (verdict.outcome(), verdict.cached) == ("cached", 1.0)
    assert verdict.advice == ("--data on a file system other than tmpfs",)


def test_more_than_memory_holds_must_have_come_from_somewhere() -> None:
    asked = {"bytes_read": 1000 * MIB}
    assert _judge("gpfs", asked, memory=100 * MIB, size=1000 * MIB).outcome() == "storage"
    assert _judge("gpfs", asked, memory=101 * MIB, size=1000 * MIB).outcome() == "unknown"
    assert _judge("gpfs", asked, memory=100 * MIB, size=999 * MIB).outcome() == "unknown", "some of it twice"
    assert _judge("gpfs", asked, memory=100 * MIB, size=1000 * MIB, shard=False).outcome() == "unknown"


def test_a_memory_limit_of_the_job_does_not_limit_the_page_cache() -> None:
    asked = {"bytes_read": 1000 * MIB}
    result = _result("gpfs", asked, memory=100 * MIB, size=1000 * MIB)
    for physical, outcome in ((100 * MIB, "storage"), (2000 * MIB, "unknown")):
        assert storage_check.judge(_run(), replace(result, physical_memory_bytes=physical)).outcome() == outcome


def test_epochs_that_read_nothing_prove_nothing_and_spoil_nothing() -> None:
    """With `load: memory` all data are read ahead of the first step."""
    idle = {"bytes_read": 0, "storage_bytes_read": 0}
    verdict = _judge("ext4", {"storage_bytes_read": 256 * MIB}, idle)
    assert verdict.outcome() == "storage"
    assert "1 epoch read nothing, because all data were in the ranks' memory" in verdict.text()
    assert _judge("ext4", idle).outcome() == "nothing read"


def test_one_epoch_of_unknown_origin_makes_the_run_unknown_unless_another_was_cached() -> None:
    assert _judge("ceph", {"page_cache_fraction": 0.0}, {}).outcome() == "unknown"
    assert _judge("ceph", {"page_cache_fraction": 0.9}, {}).outcome() == "cached"


def test_advice_says_how_large_the_dataset_has_to_be() -> None:
    verdict = _judge("ext4", {"storage_bytes_read": 0}, memory=1024 * MIB)
    assert verdict.advice[-1] == ("--dataset-size 5.25GiB: 5 times the nodes' 1 GiB of memory, now 256 MiB")
    assert not any("direct" in line for line in _judge("ext4", {"storage_bytes_read": 0}, mode="framework").advice)


def _with_checkpoints(**changes: Any) -> Run:
    run = _run()
    checkpoint = Checkpoint(reads=1, **changes)
    return replace(run, workload=replace(run.workload, checkpoint=checkpoint))


def _restored(**counts: Any) -> RestoreSummary:
    some = Distribution(0.1, 0.1, 0.1, 0.1, 0.1)
    unknown = {"storage_bytes_read": None, "client_bytes_asked": None, "client_bytes_read": None}
    given = {**unknown, "page_cache_fraction": None, **counts}
    return RestoreSummary(1, 100 * MIB, some, some, 100.0, 1.0, verify_s=0.0, **given)


@pytest.mark.parametrize(
    ("kind", "keys", "counts", "cached"),
    [
        ("ext4", {}, {"storage_bytes_read": 100 * MIB, "page_cache_fraction": 0.0}, 0.0),
        ("ext4", {}, {"storage_bytes_read": 25 * MIB, "page_cache_fraction": 0.0}, 0.75),
        ("ext4", {}, {"storage_bytes_read": 100 * MIB, "page_cache_fraction": 0.6}, 0.6),
        ("lustre", {}, {"client_bytes_asked": 100 * MIB, "client_bytes_read": 100 * MIB}, 0.0),
        ("ceph", {}, {"page_cache_fraction": 0.0}, 0.0),
        ("fuse", {}, {"page_cache_fraction": 0.0}, None),
        ("fuse", {}, {"page_cache_fraction": 0.5}, 0.5),
        ("fuse.ceph-fuse", {"direct": True}, {}, 0.0),
        ("fuse.ceph-fuse", {}, {"client_bytes_asked": None, "client_bytes_read": 505}, 1 - 505 / (100 * MIB)),
        ("fuse", {"direct": True}, {}, None),
        ("fuse", {}, {}, None),
        ("tmpfs", {"direct": True}, {}, 1.0),
    ],
)
def test_checkpoints_that_are_read_come_from_storage_or_memory(
    kind: str, keys: dict[str, Any], counts: dict[str, Any], cached: float | None
) -> None:
    verdict = storage_check._restored(_with_checkpoints(**keys), _result(kind), _restored(**counts))
    assert (verdict.name, verdict.asked, verdict.cached) == ("the checkpoints that were read", 100 * MIB, cached)


def test_advice_on_checkpoints_is_given_only_if_they_came_from_memory() -> None:
    run, good = _with_checkpoints(), {"storage_bytes_read": 256 * MIB}
    samples = [storage_check.judge(run, _result(kind, {})).advice for kind in ("ext4", "ceph")]
    assert {advice[0] for advice in samples} == {"-S reader.direct=true (O_DIRECT)"}, "epochs of unknown origin"
    result = _result("ext4", good)
    epochs = [
        storage_check._epoch(run, result, result.epochs[0]),
        storage_check._restored(run, result, _restored()),
    ]
    assert list(storage_check._advice(run, result, epochs)) == ["-S checkpoint.direct=true (O_DIRECT)"]
    on_two = list(storage_check._advice(run, replace(result, nodes=2), epochs))
    assert on_two[1] == "-S checkpoint.reorder=1 (each node reads what another node wrote)"


def test_lustres_clients_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_counters, "_LUSTRE", (str(tmp_path / "nowhere"), str(tmp_path)))
    line = "read_bytes                500 samples [bytes] 4096 1048576 {} 123456789\n"
    scratch = FileSystem("lustre", "/scratch", "10.0.0.1@o2ib:/scratch")
    assert client_counters.counter(scratch) is None
    for name, count in (
        ("llite/scratch-ffff8803", 700), ("osc/scratch-OST0000-osc-ffff8803", 300),
        ("osc/scratch-OST0001-osc-ffff8803", 200), ("mdc/scratch-MDT0000-mdc-ffff8803", 50),
        ("osc/home-OST0000-osc-ffff8804", 9000), ("llite/home-ffff8804", 9000),
    ):  # fmt: skip
        (tmp_path / name).mkdir(parents=True)
        text = f"snapshot_time 1.2 secs.nsecs\n{line.format(count)}write_bytes 1 samples\n"
        (tmp_path / name / "stats").write_text(text)
    (tmp_path / "osc/scratch-OST0002-osc-ffff8803").mkdir()
    (tmp_path / "osc/scratch-OST0002-osc-ffff8803/stats").write_text("snapshot_time 1.2\n")  # nothing was read there
    ask = client_counters.counter(scratch)
    assert ask is not None
    assert ask() == (700, 550, 0)


def test_nfs_mounts_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stats = tmp_path / "mountstats"
    stats.write_text(
        "device proc mounted on /proc with fstype proc\n"
        "device srv:/a mounted on /a with fstype nfs4 statvers=1.1\n\tage:\t10\n\tbytes:\t1 2 3 4 5 6 7 8\n"
        "device srv:/ab mounted on /ab with fstype nfs statvers=1.1\n\tbytes:\t100 0 20 0 90 0 1 0\n"
    )
    monkeypatch.setattr(client_counters, "_MOUNTSTATS", str(stats))
    count = client_counters.counter(FileSystem("nfs", "/ab", "srv:/ab"))
    assert count is not None
    assert count() == (120, 90, 0)
    assert client_counters.counter(FileSystem("nfs", "/other", "srv:/x")) is None
    assert client_counters.counter(FileSystem("ext4", "/ab", "")) is None


def test_a_glusterfs_mount_is_asked(tmp_path: Path) -> None:
    """The lines are those of GlusterFS 10.3."""
    graph = tmp_path / ".meta/graphs/active"
    mounted = FileSystem("fuse.glusterfs", str(tmp_path), "server:/vol")
    assert client_counters.counter(mounted) is None
    for name, kind, state in (
        ("vol-client-0", "protocol/client", "connected = 1\ntotal_bytes_read = 5216\nping_timeout = 5\n"),
        ("vol-client-1", "protocol/client", "connected = 1\ntotal_bytes_read = 784\n"),
        ("vol-dht", "cluster/distribute", ""),
        ("vol", "debug/io-stats", "cumulative.data_read = 9000\nvol.cumulative.READ = 65,14735744,1.5,2.5,3.5\n"),
        (
            "vol-quick-read", "performance/quick-read",
            "[xlator.performance.quick-read.priv]\nmax_file_size = 65536\ncache_timeout = 1\ncache-hit = 3\n",
        ),
    ):  # fmt: skip
        (graph / name).mkdir(parents=True)
        (graph / name / "type").write_text(f"{kind}\n")
        (graph / name / "private").write_text(state)
    (graph / "top").symlink_to("vol")
    ask = client_counters.counter(mounted)
    assert ask is not None
    assert ask() == (9000, 6000, 3 * 65536)
    (graph / "vol-io-cache").mkdir()
    (graph / "vol-io-cache/type").write_text("performance/io-cache\n")
    assert ask() == (9000, 6000, 9000), "io-cache counts nothing: everything may come from it"


def test_ceph_fuse_is_asked_on_its_admin_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers are those of Ceph 16.2, without the counters that do not matter."""
    path = tmp_path / "client.admin.9721.asok"
    counters = {
        "AsyncMessenger::Worker-0": {"msgr_recv_bytes": 1984}, "AsyncMessenger::Worker-1": {"msgr_recv_bytes": 6103},
        "throttle-objecter_bytes": {"take_sum": 8000}, "client": {"rdops": 3},
    }  # fmt: skip
    answers = {"status": {"metadata": {"mount_point": "/ceph"}}, "perf dump": counters}
    listed = f"Num RefCount Protocol Flags Type St Inode Path\n0: 2 0 10000 0001 01 1 {tmp_path}/osd.0.asok\n"
    monkeypatch.setattr(procfs, "text", lambda _: f"{listed}1: 2 0 10000 0001 01 2 {path}")
    mounted = FileSystem("fuse.ceph-fuse", "/ceph", "ceph-fuse")
    assert client_counters.counter(mounted) is None, "nobody answers"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return  # the test has ended
                with connection, connection.makefile("rwb") as stream:
                    command = json.loads(b"".join(iter(lambda: stream.read(1), b"\0")))["prefix"]
                    text = json.dumps(answers[command]).encode()
                    stream.write(len(text).to_bytes(4, "big") + text)

        threading.Thread(target=answer, daemon=True).start()
        assert client_counters.counter(replace(mounted, mount="/elsewhere")) is None
        ask = client_counters.counter(mounted)
        assert ask is not None
        assert ask() == (None, 8000, 0)
        counters["throttle-objecter_bytes"]["take_sum"] = 10**9
        assert ask() == (None, 8087, 0), "requests may ask for more than objects have"
        del counters["throttle-objecter_bytes"]
        assert ask() is None


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        (("rw", "lowerdir=/a:/b", "upperdir=/u", "workdir=/w"), ("/a", "/b", "/u")),
        (("lowerdir+=/a", "lowerdir+=/b", "datadir+=/c", "metacopy=on"), ("/a", "/b", "/c")),
        (("lowerdir=/a::/data",), ("/a", "/data")),
        (("lowerdir=.:/a",), (".", "/a")),
    ],
)
def test_all_layers_of_an_overlay_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], layers: tuple[str, ...]
) -> None:
    monkeypatch.setattr(filesystem, "_mount", lambda _: filesystem.Mount("/m", "overlay", "o", options))
    assert filesystem.of(tmp_path).layers == layers


def test_a_file_of_another_mount_is_elsewhere_on_an_overlay_and_on_btrfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files have device numbers of their own, so that the numbers of mounts decide."""
    (tmp_path / "real").write_bytes(b"x" * 9000)
    (tmp_path / "link").symlink_to("/proc/self/mounts")
    for kind in ("overlay", "btrfs"):
        monkeypatch.setattr(filesystem, "of", lambda _, kind=kind: FileSystem(kind, "/m", "s"))
        assert storage_proofs.ELSEWHERE not in cache_facts.of(tmp_path, [str(tmp_path / "real")])
        paths = [str(tmp_path / name) for name in ("real", "link", "missing")]
        assert storage_proofs.ELSEWHERE in cache_facts.of(tmp_path, paths)


def _sysfs(tmp_path: Path) -> Path:
    """Make block devices: a loop device whose image lies on a partition of a mapped device over two disks, and one in
    memory. Return the switch of the loop device's direct I/O, which is off.
    """
    devices = {}
    for name, sectors in (("sda", 300), ("sdb", 44), ("dm-0", 0), ("loop0", 0), ("zram0", 0)):
        (tmp_path / name / "slaves").mkdir(parents=True)
        (tmp_path / name / "stat").write_text(f"   12    3 {sectors}  7 0 0 0 0 0 0 0\n")
        devices[name] = tmp_path / name
    for disk in ("sda", "sdb"):
        (devices["dm-0"] / "slaves" / disk).symlink_to(devices[disk])
    (devices["loop0"] / "loop").mkdir()
    (devices["loop0"] / "loop/backing_file").write_text(f"{tmp_path}/data.img\n")
    (tmp_path / "data.img").touch()
    dio = devices["loop0"] / "loop/dio"
    dio.write_text("0\n")
    for number, name in (("7:0", "loop0"), ("253:0", "dm-0"), ("252:0", "zram0")):
        (tmp_path / number).symlink_to(devices[name])
    return dio


def test_disks_below_a_loop_device_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dio = _sysfs(tmp_path)
    lower = [FileSystem("xfs", "/images", "/dev/mapper/v", device="253:0")]
    monkeypatch.setattr(block_devices, "_SYSFS", tmp_path)
    monkeypatch.setattr(block_devices, "_DEVICES", tmp_path / "dev")
    monkeypatch.setattr(filesystem, "of", lambda _: lower[0])
    image = FileSystem("ext4", "/mnt", "/dev/loop0", device="7:0")
    ask = client_counters.counter(image)
    assert ask is not None
    assert ask() == (None, 344 * 512, 0)
    assert block_devices.below(image).facts == {"loop device"}
    dio.write_text("1\n")
    assert block_devices.below(image).facts == {"loop device with direct I/O"}, "which does not read holes of its file"
    ask = client_counters.counter(image)
    assert ask is not None
    assert ask() == (None, 344 * 512, 0)
    ask = client_counters.counter(lower[0])
    assert ask is not None
    assert ask() == (None, 344 * 512, 0), "without a loop device, too"
    lower[0] = FileSystem("fuse.rclone", "/images", "remote:")
    assert block_devices.below(image) == (frozenset({"loop device"}), ())
    lower[0] = FileSystem("lustre", "/images", "mgs@tcp:/lus")
    assert block_devices.below(image) == (frozenset({"loop device with direct I/O"}), ())
    assert client_counters.counter(image) is None
    lower[0] = FileSystem("btrfs", "/images", "/dev/sdz", device="0:41")
    assert block_devices.below(image).facts == {"loop device", "unknown device"}, "btrfs reads through its page cache"
    lower[0] = FileSystem("tmpfs", "/images", "tmpfs")
    assert block_devices.below(image).facts == {"loop device", "memory device"}
    assert block_devices.below(FileSystem("ext4", "/mnt", "/dev/zram0", device="252:0")).facts == {"memory device"}
    assert block_devices.below(FileSystem("nfs", "/mnt", "server:/x")) == (frozenset(), ())
    assert block_devices.below(FileSystem("ext4", "/mnt", "/dev/gone", device="9:9")).facts == {"unknown device"}
    assert block_devices.below(FileSystem("overlay", "/mnt", "o")).facts == {"unknown device"}
    lower[0] = FileSystem("ext4", "/images", "/dev/zram0", device="252:0")
    layers = (str(tmp_path), str(tmp_path / "sda"))
    assert block_devices.below(FileSystem("overlay", "/mnt", "o", layers=layers)).facts == {"memory device"}
    gone = FileSystem("overlay", "/mnt", "o", layers=(str(tmp_path), "/not/there"))
    assert block_devices.below(gone).facts == {"memory device", "unknown device"}
    (tmp_path / "data.img").unlink()
    lower[0] = FileSystem("xfs", "/", "/dev/mapper/v", device="253:0")
    assert block_devices.below(image).facts == {"loop device", "unknown device"}, "its file is not to be found"


def test_kinds_in_user_space_are_named_by_their_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "47 27 0:39 / /tmp rw,relatime shared:1 - {} server:/vol rw,user_id=0,fsc,compress=zstd:3,max_read=131072\n"
        "48 27 0:40 / /else rw - ext4 /dev/sda rw\n"
    )
    for kind, magic, name in (
        ("fuse.glusterfs", 0x65735546, "fuse.glusterfs"), ("fuseblk", 0x65735546, "fuseblk"), ("ext4", 0xEF53, "ext4"),
    ):  # fmt: skip
        text = lines.format(kind)
        monkeypatch.setattr(Path, "read_text", lambda _, text=text, **keys: text)
        monkeypatch.setattr(filesystem, "magic", lambda _, magic=magic: magic)
        mounted = filesystem.of(Path("/tmp"))
        assert mounted == FileSystem(name, "/tmp", "server:/vol", ("fsc", "compress=zstd:3"), mounted.device)


def test_pages_in_memory_are_counted_and_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(3 * MIB + 5))
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    pages = 3 * MIB // 4096 + 1
    assert page_cache.resident([str(path)]) == (pages, pages)
    page_cache.drop(str(path))
    looked, there = page_cache.resident([str(path)])
    assert looked == pages
    assert there < pages or filesystem.of(tmp_path).kind in ("tmpfs", "overlay")
    assert page_cache.resident([str(tmp_path / "missing")]) == (0, 0)
    empty = tmp_path / "empty"
    empty.touch()
    assert page_cache.resident([str(empty)]) == (0, 0)


def test_of_a_large_file_stretches_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    looked, there = page_cache.resident([str(path)])
    assert 0 < looked <= 17 * (4 << 20) // 4096
    assert there == 0


def test_memory_is_the_control_groups_where_that_is_less(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = {"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "max"}
    limits["/sys/fs/cgroup/a/memory.max"] = "1048576"
    monkeypatch.setattr(procfs, "text", lambda path: limits.get(path, ""))
    assert procfs.memory() == 1048576
    limits["/proc/self/cgroup"] = "3:memory:/job_7\n1:cpu:/x\n"
    limits["/sys/fs/cgroup/memory/job_7/memory.limit_in_bytes"] = "2097152"
    assert procfs.memory() == 2097152
    limits["/sys/fs/cgroup/memory/job_7/memory.limit_in_bytes"] = str(1 << 63)
    assert procfs.memory() == whole


def test_a_file_that_was_mounted_over_that_of_a_loop_device_is_none_of_its(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status of the device, which only root may ask for, has the device and the inode of its file."""
    for name in ("disk/slaves", "loop0/loop", "dev"):
        (tmp_path / name).mkdir(parents=True)
    for name, text in (
        ("disk/stat", "1 1 1"),
        ("loop0/loop/backing_file", f"{tmp_path}/data.img\n"),
        ("loop0/loop/dio", "1"),
    ):
        (tmp_path / name).write_text(text)
    for name in ("dev/loop0", "data.img"):
        (tmp_path / name).touch()
    (tmp_path / "7:0").symlink_to(tmp_path / "loop0")
    (tmp_path / "8:1").symlink_to(tmp_path / "disk")
    monkeypatch.setattr(block_devices, "_SYSFS", tmp_path)
    monkeypatch.setattr(block_devices, "_DEVICES", tmp_path / "dev")
    monkeypatch.setattr(filesystem, "of", lambda _: FileSystem("xfs", "/images", "/dev/sda1", device="8:1"))
    image, own = FileSystem("ext4", "/mnt", "/dev/loop0", device="7:0"), (tmp_path / "data.img").stat()
    for device, inode in ((own.st_dev, own.st_ino), (own.st_dev, own.st_ino + 1), (own.st_dev + 1, own.st_ino)):

        def status(_file: int, _number: int, answer: bytearray, numbers: tuple[int, int] = (device, inode)) -> None:
            struct.pack_into("=QQ", answer, 0, *numbers)

        monkeypatch.setattr(fcntl, "ioctl", status)
        is_known = "unknown device" not in block_devices.below(image).facts
        assert is_known is ((device, inode) == (own.st_dev, own.st_ino))
    monkeypatch.setattr(fcntl, "ioctl", Mock(side_effect=PermissionError))
    assert block_devices.below(image).facts == {"loop device with direct I/O"}
    relative = FileSystem("overlay", "/mnt", "o", layers=(str(tmp_path), "."))
    assert "unknown device" in block_devices.below(relative).facts, "relative to the folder of another process"


def test_files_are_drawn_at_random_and_no_more_than_are_read(tmp_path: Path) -> None:
    """Every second file lies elsewhere: files at equal distances would show none of them, or nothing else."""
    keys = ("dataset.files=4096", "dataset.samples_per_file=1", "train.steps=null")
    made = planning.make(workload.load("demo", keys), site.load("local"), planning.Request(runs=tmp_path)).runs[1]
    paths = run_file_systems._checked(made, "dataset", 4)
    numbers = {int(Path(path).name.partition(".")[0]) for path in paths}
    assert len(numbers) == len(paths) == 1024
    assert 400 < sum(number % 2 for number in numbers) < 624
    short = replace(made, workload=replace(made.workload, train=replace(made.workload.train, steps=2)))
    assert (
        len(run_file_systems._checked(short, "dataset", 4)) == rank_shares.samples_per_epoch(short.workload, 4) < 1024
    )


def test_what_is_mounted_during_the_run_is_a_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = planning.make(
        workload.load("demo"), site.load("local"), planning.Request(runs=tmp_path, data=tmp_path)
    ).runs[1]
    same, other = (
        FileSystem("ext4", "/d", "/dev/sda1", device="8:1"),
        FileSystem("ext4", "/d", "/dev/zram0", device="252:0"),
    )
    for later, facts in ((same, ["loop device"]), (other, ["loop device", storage_proofs.MOVED])):
        monkeypatch.setattr(filesystem, "of", lambda _: same)
        monkeypatch.setattr(cache_facts, "of", lambda _place, files=(): [] if files else ["loop device"])
        before = run_file_systems.mounts(made)
        monkeypatch.setattr(filesystem, "of", lambda _, later=later: later)
        assert run_file_systems.fields(made, 4, before)["cache_facts"] == facts, "a loop device had no direct I/O then"
    result = replace(_result("ext4", {"storage_bytes_read": 256 * MIB}), cache_facts=[storage_proofs.MOVED])
    assert storage_check.judge(_run(direct=True), result).outcome() == "unknown"


def test_disks_that_count_nothing_prove_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sdb/sdb1").mkdir(parents=True)
    (tmp_path / "sdb/queue").mkdir()
    (tmp_path / "8:17").symlink_to(tmp_path / "sdb/sdb1")
    monkeypatch.setattr(block_devices, "_SYSFS", tmp_path)
    disk = FileSystem("xfs", "/scratch", "/dev/sdb1", device="8:17")
    for sectors, switch, is_counted in ((44, "1", True), (44, "0", False), (0, "1", False)):
        (tmp_path / "sdb/sdb1/stat").write_text(f"1 0 {sectors} 0 0 0 0 0 0 0 0\n")
        (tmp_path / "sdb/queue/iostats").write_text(f"{switch}\n")
        assert (client_counters.counter(disk) is not None) is is_counted


def test_the_advice_on_a_larger_dataset_has_room_for_one_file_less() -> None:
    work = workload.load("demo", ("dataset.sample={bytes: 1MiB}",))
    shared = replace(work.dataset, files=1, samples_per_file=256, file_access="shared")
    for dataset, more in ((work.dataset, work.dataset.samples_per_file), (shared, 1)):
        run = replace(_run(), workload=replace(work, dataset=dataset))
        advice = " ".join(
            storage_check.judge(run, _result("ext4", {"storage_bytes_read": 0}, memory=1000 * MIB)).advice
        )
        size = units.size(advice.partition("--dataset-size ")[2].partition(":")[0])
        least = (storage_check.ENOUGH * 1000 + more) * MIB
        assert least <= size < 1.1 * least
