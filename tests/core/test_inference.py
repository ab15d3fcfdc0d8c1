"""Inference workloads: what ranks read and write, what they record, and what is refused."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError, DlioError, InfrastructureError, InvalidRun
from dlio_hpc.config import site, workload
from dlio_hpc.config.inference_keys import CacheModel, InferenceKeys, Lengths, UserSearch
from dlio_hpc.core import cache_accounting, clock, distributions, kv_blocks, kv_record, kv_serving, kv_summary, own_cost
from dlio_hpc.core.kv_blocks import BlockFiles, BlockPool, Span
from dlio_hpc.core.kv_record import InferenceRecord
from dlio_hpc.core.kv_serving import KVServing, Served
from dlio_hpc.core.loaders.inference import InferenceLoader
from dlio_hpc.dataset import kv_requests, kv_tiers
from dlio_hpc.dataset.kv_requests import KVRequest
from dlio_hpc.dataset.kv_tiers import BlockPlace, KVPlan
from dlio_hpc.files import filesystem, run_outputs, storage_proofs
from dlio_hpc.plan import cost
from dlio_hpc.results.run_result import InferenceSummary, UserTry
from tests.support import planning
from tests.support.ranks import work_on_ranks

_MODEL = CacheModel(1, 4, 64, "fp16")  # 1 KiB a token
_BLOCK = 4096


def _keys(**given: Any) -> InferenceKeys:
    usual: dict[str, Any] = {
        "users": 3, "time": units.Seconds(0.5), "interval": units.Seconds(0.1), "prompt": Lengths(mean=6, stdev=3),
        "answer": Lengths(min=1, max=5), "model": _MODEL, "block_tokens": 4, "turns": 4, "system_prompt": 5,
        "slots": 3, "verify": True, "direct": False,
    }  # fmt: skip
    return InferenceKeys(**(usual | given))


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    home = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(home)


def _never() -> bool:
    return False


def _served(
    folder: Path, keys: InferenceKeys, plan: KVPlan | None = None, cuts: Any = _never, kind: Any = None
) -> tuple[KVPlan, Served | None]:
    """Serve the requests of a plan, or of one rank with all users. kind: class of the blocks."""
    made = kv_tiers.plan(keys, kv_requests.of_rank(keys, 1, 0)) if plan is None else plan
    with _inside(folder):
        os.makedirs("kv/0")
        if kind is None:
            blocks = kv_blocks.opened("kv/0/0", keys)
        else:
            os.mkdir("kv/0/0")
            blocks = kind("kv/0/0", keys)
        serving = KVServing(keys, made, blocks, 1 << 32, cuts)
        serving.prepare()
        served = serving.serve()
        names = set(os.listdir("kv/0/0"))
        if keys.file_layout == "block" and served is not None:
            removed = {serial for one in made.requests for write in one.writes for serial in write.removed}
            assert names <= {f"b{serial}" for serial in range(len(made.places))}
            if served.record.columns[kv_record.SERVED] == len(made.requests):
                there = set(made.prepared)
                there |= {write.serial for one in made.requests for write in one.writes}
                assert names == {f"b{serial}" for serial in there - removed}
        assert not run_outputs.foreign(folder)
        blocks.close()
        assert not os.listdir("kv/0")
    return made, served


def _summary(served: Served | None, keys: InferenceKeys) -> InferenceSummary:
    assert served is not None
    record: InferenceRecord = served.record
    summary = kv_summary.of_ranks(record.columns[None, None], record.histograms[None, None], keys)
    assert summary is not None
    return summary


_LIMITED = {"memory": units.Size(3 * _BLOCK), "capacity": units.Size(9 * _BLOCK)}


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(
    ("layout", "limits"),
    [
        ("block", {}),
        ("sequence", {}),
        ("pool", {}),
        ("lmcache", {}),
        ("block", _LIMITED),
        ("pool", _LIMITED),
        ("lmcache", _LIMITED),
        ("lmcache_fs", _LIMITED),
    ],
)
def test_a_rank_reads_and_writes_the_blocks_of_its_plan(
    tmp_path: Path, layout: Any, direct: bool, limits: dict[str, Any]
) -> None:
    keys = _keys(file_layout=layout, direct=direct, **limits)
    plan, served = _served(tmp_path, keys)
    summary = _summary(served, keys)
    assert summary.requests == summary.served == len(plan.requests) > 5
    assert summary.blocks_read == sum(plan.reads) > 0
    assert summary.blocks_written == sum(len(one.writes) for one in plan.requests) > 0
    assert summary.storage_tokens == 4 * summary.blocks_read
    assert summary.tokens == sum(one.request.context for one in plan.requests)
    assert bool(summary.removed_blocks) == bool(summary.memory_tokens) == bool(limits)
    assert summary.is_sustained
    assert summary.ttft_s
    assert summary.queue_s
    assert summary.load_s
    assert summary.prefill_s
    assert summary.read_s
    assert summary.ttft_s.mean >= summary.queue_s.mean + summary.load_s.mean + summary.prefill_s.mean
    assert summary.read_s.mean * summary.blocks_read == pytest.approx(summary.load_s.mean * summary.served)
    assert summary.bytes_read == summary.blocks_read * _BLOCK


class _Slow(BlockFiles):
    """Blocks that take 50 ms to read."""

    def read(self, place: BlockPlace, data: memoryview) -> Span:
        began, _ = super().read(place, data)
        time.sleep(0.05)
        return began, time.perf_counter()


def _plan(keys: InferenceKeys, *requests: KVRequest) -> KVPlan:
    return kv_tiers.plan(keys, requests)


def _one_block(user: int, arrival: float) -> tuple[KVRequest, KVRequest]:
    """Return a request before the epoch that leaves one block, and a request that reads it."""
    return KVRequest(-1.0, user, 0, 0, 0, 4, 1), KVRequest(arrival, user, 0, 1, 5, 1, 1)


def _of_users(users: int) -> list[KVRequest]:
    pairs = [_one_block(user, 0.001) for user in range(users)]
    return [first for first, _ in pairs] + [second for _, second in pairs]


def test_a_late_request_counts_its_wait(tmp_path: Path) -> None:
    """One slot serves six requests that arrive together: the last waits for five others."""
    keys = _keys(system_prompt=0, slots=1, time=units.Seconds(5), target=units.Seconds(0.12))
    _, served = _served(tmp_path, keys, _plan(keys, *_of_users(6)), kind=_Slow)
    summary = _summary(served, keys)
    assert summary.ttft_s
    assert summary.queue_s
    assert summary.load_s
    assert summary.ttft_s.max > 0.29
    assert 0.09 < summary.ttft_s.p50 < 0.2
    assert summary.queue_s.max > 0.24
    assert 0.05 <= summary.load_s.max < 0.2
    assert 4 <= summary.late <= 5


def test_slots_read_at_the_same_time(tmp_path: Path) -> None:
    keys = _keys(system_prompt=0, slots=6, time=units.Seconds(5))
    _, served = _served(tmp_path, keys, _plan(keys, *_of_users(6)), kind=_Slow)
    summary = _summary(served, keys)
    assert summary.ttft_s is not None
    assert summary.ttft_s.max < 0.2
    rate = summary.read_MBps
    assert rate is not None
    assert rate > 2 * _BLOCK / 0.05 / 1e6  # as several reads are in flight


def test_a_request_at_the_end_of_an_epoch_is_served(tmp_path: Path) -> None:
    """Two requests arrive just before the end, while the only slot is busy. Neither is late, and no queue grows."""
    keys = _keys(system_prompt=0, slots=1, time=units.Seconds(0.3))
    first, early = _one_block(0, 0.26)
    others = [one for user in (1, 2) for one in _one_block(user, 0.29)]
    requests = [first, others[0], others[2], early, others[1], others[3]]
    _, served = _served(tmp_path, keys, _plan(keys, *requests), kind=_Slow)
    summary = _summary(served, keys)
    assert (summary.requests, summary.served, summary.late) == (3, 3, 0)
    assert summary.is_in_time
    assert served is not None
    assert served.record.columns[kv_record.END_QUEUE] == 0, "they have not waited for a while"


def test_requests_that_wait_longer_than_users_accept_are_not_served(tmp_path: Path) -> None:
    keys = _keys(system_prompt=0, slots=1, time=units.Seconds(0.12), target=units.Seconds(0.05))
    _, served = _served(tmp_path, keys, _plan(keys, *_of_users(6)), kind=_Slow)
    summary = _summary(served, keys)
    assert summary.requests == 6
    assert 1 <= summary.served <= 3
    assert served is not None
    assert served.record.columns[kv_record.HALF_QUEUE] >= served.record.columns[kv_record.END_QUEUE] > 1


def test_a_growing_queue_is_not_sustained(tmp_path: Path) -> None:
    """A request arrives each 10 ms and takes 50 ms."""
    keys = _keys(system_prompt=0, slots=1, time=units.Seconds(0.4))
    pairs = [_one_block(user, 0.01 * user) for user in range(40)]
    plan = _plan(keys, *(first for first, _ in pairs), *(second for _, second in pairs))
    _, served = _served(tmp_path, keys, plan, kind=_Slow)
    assert not _summary(served, keys).is_sustained


def test_computation_is_a_wait(tmp_path: Path) -> None:
    keys = _keys(
        system_prompt=0, time=units.Seconds(5), prefill=units.Seconds(0.01), decode=units.Seconds(0.02), warm=False
    )
    began = time.process_time()
    _, served = _served(tmp_path, keys, _plan(keys, KVRequest(0.0, 0, 0, 0, 0, 10, 6)))
    assert time.process_time() - began < 0.15
    summary = _summary(served, keys)
    assert summary.prefill_s is not None
    assert 0.1 <= summary.prefill_s.max < 0.3
    assert 0.22 <= summary.wall_s < 0.6
    assert summary.blocks_written == 4  # two of the prompt, two that the answer fills
    assert summary.read_MBps is None


def test_a_turn_begins_after_the_turn_before_it(tmp_path: Path) -> None:
    keys = _keys(system_prompt=0, time=units.Seconds(5), decode=units.Seconds(0.02))
    turns = KVRequest(0.0, 0, 0, 0, 0, 4, 6), KVRequest(0.01, 0, 0, 1, 10, 4, 1)
    other = KVRequest(0.02, 1, 0, 0, 0, 4, 1)
    _, served = _served(tmp_path, structs.replace(keys, slots=2), _plan(keys, *turns, other))
    summary = _summary(served, keys)
    assert summary.queue_s is not None
    assert 0.1 <= summary.queue_s.max < 0.4
    assert summary.queue_s.p50 < 0.05  # the other user does not wait


def test_a_request_waits_for_a_block_that_another_one_writes(tmp_path: Path) -> None:
    keys = _keys(system_prompt=4, time=units.Seconds(5), prefill=units.Seconds(0.02))
    first, second = KVRequest(0.0, 0, 0, 0, 4, 3, 1), KVRequest(0.001, 1, 0, 0, 4, 1, 1)
    plan, served = _served(tmp_path, keys, _plan(keys, first, second))
    assert plan.requests[1].reads == (0,)
    summary = _summary(served, keys)
    assert summary.blocks_read == 1
    assert summary.queue_s is not None
    assert summary.queue_s.max >= 0.13


@pytest.mark.parametrize("layout", ["block", "pool"])
def test_changed_content_is_named(tmp_path: Path, layout: Any) -> None:
    class Changed(BlockPool if layout == "pool" else BlockFiles):  # type: ignore[misc]
        def read(self, place: BlockPlace, data: memoryview) -> Span:
            span: Span = super().read(place, data)
            data[100] ^= 1
            return span

    keys = _keys(file_layout=layout)
    with pytest.raises(InvalidRun, match=r"byte 100 of block \d+ is 0x.. when it is read, but 0x.. was written"):
        _served(tmp_path, keys, kind=Changed)


def test_a_short_block_is_named(tmp_path: Path) -> None:
    class Short(BlockFiles):
        def read(self, place: BlockPlace, data: memoryview) -> Span:
            os.truncate(self.path(place), 1000)
            return super().read(place, data)

    with pytest.raises(InvalidRun, match=r"kv/0/0/b\d+: a block has 1000 bytes, but 4096 were written"):
        _served(tmp_path, _keys(), kind=Short)


@pytest.mark.parametrize("when", ["prepare", "serve"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failing_file_system_is_named(tmp_path: Path, when: str, number: int) -> None:
    class Failing(BlockFiles):
        def write(self, place: BlockPlace, data: memoryview) -> Span:
            if (threading.current_thread().name.startswith("kv-prepare")) == (when == "prepare"):
                raise OSError(number, os.strerror(number))
            return super().write(place, data)

    with pytest.raises(InfrastructureError, match=f"cannot write .*/kv/0/0/b.*: {os.strerror(number)}"):
        _served(tmp_path, _keys(), kind=Failing)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kv-")]


def test_a_file_system_without_o_direct_says_what_to_do() -> None:
    fault = kv_serving.fault_of("write", "/a/b0", OSError(errno.EINVAL, "Invalid argument"), _keys(direct=True))
    assert isinstance(fault, ConfigError)
    assert "inference.direct=false" in str(fault)
    other: DlioError = kv_serving.fault_of("write", "/a/b0", OSError(errno.EINVAL, "Invalid argument"), _keys())
    assert isinstance(other, InfrastructureError)


@pytest.mark.parametrize("when", ["prepare", "serve"])
def test_the_time_limit_of_the_job_ends_an_epoch(tmp_path: Path, when: str) -> None:
    keys = _keys(time=units.Seconds(60))
    began = time.perf_counter()
    _, served = _served(tmp_path, keys, cuts=lambda: when == "prepare" or time.perf_counter() - began > 0.3)
    assert served is None
    assert time.perf_counter() - began < 5


def test_ranks_search_for_the_largest_number_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ranks try the same numbers, and the figures are those of the largest number in time."""
    monkeypatch.setattr(InferenceSummary, "is_in_time", property(lambda summary: summary.users <= 5))
    made = workload.load(
        "kv_cache_llama3_8b",
        ("inference.search.most=64", "inference.time=100ms", "inference.interval=100ms", "inference.decode=0",
         "inference.model={layers: 1, kv_heads: 4, head_dim: 64}", "train.epochs=6"),
    )  # fmt: skip
    request = planning.Request(runs=tmp_path / "runs", data=tmp_path / "data", ranks_per_node=2)
    run = planning.make(made, site.load("local"), request).runs[-1]
    keys = run.workload.inference
    assert keys is not None
    records: list[list[InferenceRecord]] = [[], []]

    def work(rank: int, comm: Any) -> None:
        loader = InferenceLoader(comm, run, keys)
        for _ in range(6):
            for batch in loader.epoch(None, 0, 0, 0):  # type: ignore[arg-type]
                assert batch.tally.served is not None
                records[rank].append(batch.tally.served)
                comm.bcast(None)

    with _inside(tmp_path):
        work_on_ranks(2, work)
    columns = np.array([[one.columns for one in own] for own in records])
    assert columns[..., kv_record.USERS].tolist() == [[4, 8, 6, 5, 5, 5]] * 2
    histograms = np.array([[one.histograms for one in own] for own in records])
    summary = kv_summary.of_ranks(columns, histograms, keys)
    assert summary is not None
    assert (summary.users, summary.users_in_time) == (5, 5)
    assert [one.is_in_time for one in summary.tries] == [True, False, False, True, True, True]
    assert summary.requests == int(columns[:, 3:, kv_record.ARRIVED].sum())
    none = kv_summary.of_ranks(columns[:, 1:3], histograms[:, 1:3], keys)
    assert none is not None
    assert (none.users, none.users_in_time) == (6, 0)


def test_the_space_and_the_bytes_of_a_job_are_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = planning.Request(runs=tmp_path / "runs", data=tmp_path / "data", ranks_per_node=2)
    plan = planning.make(workload.load("kv_cache_llama3_8b"), site.load("local"), request)
    run = plan.runs[-1]
    keys = run.workload.inference
    assert keys is not None
    assert cost.require_space(run, 2).startswith(f"up to {units.format_size(kv_requests.most_bytes(keys, 2))} needed, ")
    monkeypatch.setattr(filesystem, "free", lambda _: 1 << 20)
    with pytest.raises(
        ConfigError, match=r"blocks of the KV caches need up to .* has 1 MiB free; choose another --data"
    ):
        cost.require_space(run, 2)
    of_rank = kv_tiers.plan(keys, kv_requests.of_rank(keys, 2, 0))
    expected = cost.of_run(run, 1, 2, plan.site.expected_rates)
    assert expected.bytes_read == 2 * 2 * keys.block_bytes * sum(of_rank.reads)
    writes = sum(len(one.writes) for one in of_rank.requests) + len(of_rank.prepared)
    assert expected.bytes_written == 2 * 2 * keys.block_bytes * writes
    assert expected.seconds > 2 * keys.time


def test_the_waits_of_an_engine_are_no_cost_of_the_benchmark() -> None:
    steps = np.zeros((1, distributions.COLUMNS))
    steps[0, distributions.READY] = 60.0
    made = workload.load("kv_cache_llama3_8b")
    assert own_cost.seconds(made, steps, 1.0, 0.0, 0.25) == 0.25


def test_the_file_system_of_the_blocks_is_counted(tmp_path: Path) -> None:
    request = planning.Request(runs=tmp_path / "runs", data=tmp_path, ranks_per_node=1)
    run = planning.make(workload.load("kv_cache_llama3_8b"), site.load("local"), request).runs[-1]
    node: Any = SimpleNamespace(rank=0, size=1, bcast=lambda value: value)
    arrivals = cache_accounting.of_samples(node, run, 1)
    arrivals.look(lambda: [str(tmp_path / "absent")])  # pages of blocks are not looked at
    arrivals.begin()
    columns = arrivals.end(0)
    assert columns[cache_accounting.LOOKED] == 0
    if filesystem.of(tmp_path).kind in storage_proofs.COUNTED:
        assert arrivals.from_storage(columns) >= 0


def test_the_summary_adds_ranks_and_epochs() -> None:
    keys = _keys(slots=2)
    columns = np.zeros((2, 3, kv_record.COLUMNS))
    columns[..., kv_record.HELD_S], columns[..., kv_record.COMPUTED_S] = 4.0, 1.5
    columns[..., kv_record.OVERRUN_S], columns[1, 2, kv_record.HELD_S] = 0.25, 9.0
    for kind, total in ((kv_record.LOAD, 0.7), (kv_record.READ, 70.0), (kv_record.WRITE, 90.0)):
        columns[..., kv_record.SUMS + 2 * kind] = total
    columns[..., kv_record.BEGAN], columns[..., kv_record.ENDED] = 1.0, 3.0
    columns[0, 0, kv_record.ENDED] = 4.0
    columns[..., kv_record.ARRIVED], columns[..., kv_record.SERVED], columns[..., kv_record.LATE] = 10, 9, 2
    columns[..., kv_record.BLOCKS_READ], columns[..., kv_record.READING_S] = 1000, 0.5
    columns[1, ..., kv_record.READING_S] = 1.5
    histograms = np.zeros((2, 3, kv_record.KINDS, 272), np.int64)
    summary = kv_summary.of_ranks(columns, histograms, keys)
    assert summary is not None
    assert (summary.requests, summary.served, summary.late, summary.wall_s) == (60, 54, 12, 7.0)
    assert summary.read_MBps == pytest.approx(6000 * _BLOCK / 6.0 / 1e6)
    assert summary.read_rates == pytest.approx((2000 * _BLOCK / 2.0 / 1e6,) * 3)
    assert summary.tokens_per_s == pytest.approx(6000 * 4 / 6.0)
    assert summary.write_MBps is None
    assert summary.ttft_s is None
    assert (summary.held_s, summary.held_by_computation_s, summary.held_by_writes_s) == (29.0, 9.0, 1.5)
    assert summary.held_by_reads_s == pytest.approx(4.2)
    assert summary.computation_share == pytest.approx(9 / 29)
    assert summary.is_sustained
    for half, end, is_sustained in ((0, 2, True), (3, 3, True), (2, 3, False)):
        columns[1, 2, kv_record.HALF_QUEUE], columns[1, 2, kv_record.END_QUEUE] = half, end
        made = kv_summary.of_ranks(columns, histograms, keys)
        assert made is not None
        assert made.is_sustained == is_sustained
    assert kv_summary.of_ranks(columns[:, :0], histograms[:, :0], keys) is None


@pytest.mark.parametrize("layout", ["block", "sequence", "pool"])
def test_links_in_the_folder_of_blocks_are_not_followed(tmp_path: Path, layout: Any) -> None:
    """A link instead of a file of a block is an error, and one instead of the folder leads to no file of others."""
    keys = _keys(file_layout=layout)
    (tmp_path / "kv").mkdir()
    (tmp_path / "own").write_text("mine")
    blocks = kv_blocks.opened(str(tmp_path / "kv" / "0"), keys)
    place = BlockPlace(3, 3, 3, 0)
    if layout != "pool":
        os.symlink(tmp_path / "own", blocks.path(place))
        with pytest.raises(OSError, match=r"Too many levels of symbolic links|File exists"):
            blocks.write(place, memoryview(bytes(_BLOCK)))
        with pytest.raises(OSError, match="Too many levels of symbolic links"):
            blocks.read(place, memoryview(bytearray(_BLOCK)))
        os.unlink(blocks.path(place))
    blocks.write(place, memoryview(bytes(_BLOCK)))
    (tmp_path / "others").mkdir()
    for name in ("b3", "s3", "pool"):
        (tmp_path / "others" / name).touch()
    os.rename(tmp_path / "kv" / "0", tmp_path / "kv" / "moved")
    os.symlink(tmp_path / "others", tmp_path / "kv" / "0")
    blocks.close()
    assert sorted(os.listdir(tmp_path / "others")) == ["b3", "pool", "s3"]
    assert os.listdir(tmp_path / "kv" / "moved") == []
    assert (tmp_path / "own").read_text() == "mine"


def test_quantiles_count_requests_that_were_not_served_as_the_longest() -> None:
    """Of 100 requests, three are not served. The other 97 get their first token after 0.1 s, and two count as late."""
    keys = _keys(target=units.Seconds(1), search=UserSearch(8))
    columns = np.zeros((1, 2, kv_record.COLUMNS))
    columns[..., kv_record.ARRIVED], columns[..., kv_record.SERVED], columns[..., kv_record.LATE] = 100, 97, 2
    columns[..., kv_record.USERS], columns[..., kv_record.HELD_S], columns[..., kv_record.COMPUTED_S] = 7, 10.0, 4.0
    for kind, total, longest in ((kv_record.TTFT, 9.7, 0.3), (kv_record.QUEUE, 2.91, 0.2)):
        columns[..., kv_record.SUMS + 2 * kind], columns[..., kv_record.SUMS + 2 * kind + 1] = total, longest
    histograms = np.zeros((1, 2, kv_record.KINDS, 272), np.int64)
    histograms[0, :, kv_record.TTFT] = histograms[0, :, kv_record.QUEUE] = distributions.histogram(np.full(97, 0.1))
    summary = kv_summary.of_ranks(columns, histograms, keys)
    assert summary is not None
    assert summary.ttft_s is not None
    assert summary.ttft_s.mean == pytest.approx(0.1)
    assert summary.first_token("p50") == pytest.approx(0.1, rel=0.05)
    assert summary.first_token("p95") == pytest.approx(0.1, rel=0.05)
    assert (summary.first_token("p99"), summary.ttft_s.p99) == (None, 0.3)
    for one in summary.tries:
        assert one == UserTry(7, None, False, 100, 5, one.computation_share, one.queue_share)
        assert one.computation_share == pytest.approx(0.4)
        assert one.queue_share == pytest.approx(0.3)
    assert len(summary.tries) == 2


def test_what_writes_add_to_an_answer_is_theirs(tmp_path: Path) -> None:
    """A write of 50 ms delays an answer only as far as the computation of its tokens does not take as long."""

    class Slow(BlockFiles):
        def write(self, place: BlockPlace, data: memoryview) -> Span:
            began, _ = super().write(place, data)
            time.sleep(0.05)
            return began, clock.now()

    for number, (decode, overrun) in enumerate(((0.0, 0.1), (0.04, 0.0))):
        (tmp_path / str(number)).mkdir()
        keys = _keys(
            system_prompt=0, slots=1, time=units.Seconds(5), decode=units.Seconds(decode), target=units.Seconds(5)
        )
        request = KVRequest(0.001, 0, 0, 0, 0, 2, 8)  # blocks are full after 2 and 6 tokens of the answer
        _, served = _served(tmp_path / str(number), keys, _plan(keys, request), kind=Slow)
        summary = _summary(served, keys)
        assert summary.blocks_written == 2
        assert summary.held_by_writes_s == pytest.approx(overrun, abs=0.03)
        assert summary.held_by_computation_s == pytest.approx(8 * decode, abs=0.01)
        assert summary.held_s is not None
        assert summary.held_s == pytest.approx(8 * decode + overrun, abs=0.05)
