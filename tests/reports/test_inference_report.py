"""Reports of inference workloads: sentences, tables and banners."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import structs

from dlio_hpc.config import site, workload
from dlio_hpc.plan.plan import Plan
from dlio_hpc.records import job_outcome, study_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.reports import bottleneck, inference_rows, job_banner, job_page, job_rows, user_limit
from dlio_hpc.reports.page import Table
from dlio_hpc.results.run_result import Distribution, Disturbance, Epoch, InferenceSummary, Level, Result, UserTry
from tests.support import planning, studies

_LEAD = "Users in time (99 % of the first tokens within 2 s):"
_NOTHING = Distribution(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _times(mean: float) -> Distribution:
    return Distribution(mean, 0.9 * mean, 1.5 * mean, 2 * mean, 3 * mean, 2.5 * mean)


def _requests(**given: Any) -> InferenceSummary:
    usual: dict[str, Any] = {
        "users": 4, "requests": 100, "served": 100, "late": 0, "is_sustained": True, "wall_s": 60.0,
        "blocks_prepared": 50, "blocks_read": 1000, "blocks_written": 200, "block_bytes": 2 << 20, "read_MBps": 1500.0,
        "write_MBps": 900.0,
        "read_rates": (1500.0,), "tokens_per_s": 12000.0, "ttft_s": _times(0.2), "queue_s": _times(0.02),
        "load_s": _times(0.15), "prefill_s": _times(0.03), "read_s": _times(0.001), "write_s": _times(0.002),
        "memory_tokens": 100, "storage_tokens": 600, "computed_tokens": 300, "dropped_blocks": 0, "removed_blocks": 0,
    }  # fmt: skip
    return InferenceSummary(**(usual | given))


def _plan(folder: Path, *keys: str) -> Plan:
    made = workload.load("kv_cache_llama3_8b", keys)
    request = planning.Request(runs=folder, data=folder / "data", ranks_per_node=2)
    return planning.make(made, site.load("local"), request)


def _measured(
    folder: Path, served: InferenceSummary | None, *keys: str, share: float = 1.0, kind: str = "ext4"
) -> tuple[Plan, RunOutcome]:
    """Return a run whose blocks came from storage, up to a share."""
    plan = _plan(folder, *keys)
    run = plan.runs[-1]
    result: Result = studies.result(plan, run, 1.0, {"inference": served})
    size = served.bytes_read if served is not None else 0
    epoch = Epoch(1, 60.0, 1, 1, size, 60.0, 0.0, 0.0, storage_bytes_read=int(share * size))
    result = structs.replace(result, epochs=[epoch], file_system=kind, outputs_on=f"{kind} /data")
    return plan, RunOutcome(run, result, None, None)


def test_the_first_sentences_name_the_parts_of_the_time(tmp_path: Path) -> None:
    _, run = _measured(tmp_path, _requests())
    assert bottleneck._of_repeats([run]) == (
        "Served 100 of 100 requests; time to the first token 180 ms (median), 400 ms (p99); on average: queue 10 %, "
        "storage 75 %, computation 15 %."
    )
    _, slow = _measured(tmp_path, _requests(served=90, late=7, is_sustained=False, ttft_s=_times(0.4)))
    text = bottleneck._of_repeats([run, slow])
    assert text.startswith(
        "Served 190 of 200 requests; time to the first token 360 ms (median), above 1.2 s (p99) (the slowest"
    )
    assert text.endswith("; 7 late. Not sustained: the queue of requests grows.")


def test_a_cpu_quota_is_named_before_the_queue_that_it_causes(tmp_path: Path) -> None:
    outcome = _job(tmp_path)
    for quota, text in ((0.9, "a CPU quota stopped the ranks in 90 %"), (0.0, "Not sustained: the queue of requests")):
        level = Disturbance(9.0, 8, None, None, None, None, None, None, throttled=Level(quota, quota, "n2"))
        runs = [
            run._replace(result=structs.replace(_with(run, lambda _: _requests(is_sustained=False)), disturbance=level))
            for run in outcome.runs
        ]
        banner = job_banner.of_jobs([outcome._replace(runs=runs)])
        assert banner.state == "inconclusive"
        assert text in banner.text


def test_a_queue_is_explained_by_what_held_the_slots(tmp_path: Path) -> None:
    waiting = _requests(
        queue_s=_times(0.1), ttft_s=_times(0.28), held_s=60.0, held_by_reads_s=15.0, held_by_writes_s=12.0,
        held_by_computation_s=21.0,
    )  # fmt: skip
    _, run = _measured(tmp_path, waiting)
    assert bottleneck._of_repeats([run]).endswith(
        " Slots were held by reads for 25 % of their time, by writes for 20 %, by computation for 35 %, and by waits "
        "for other requests for 20 %."
    )
    _, old = _measured(tmp_path, structs.replace(waiting, held_s=None))
    assert "Slots" not in bottleneck._of_repeats([old])


@pytest.mark.parametrize(
    ("served", "known"),
    [
        (150, {"p50", "p95", "p99"}), (149, {"p50", "p95", "p99"}), (148, {"p50", "p95"}), (143, {"p50", "p95"}),
        (142, {"p50"}), (75, {"p50"}), (74, set()),
    ],
)  # fmt: skip
def test_a_quantile_of_requests_that_were_not_served_is_unknown(served: int, known: set[str]) -> None:
    made = _requests(requests=150, served=served)
    quantiles: tuple[Literal["p50", "p95", "p99"], ...] = ("p50", "p95", "p99")
    assert {name for name in quantiles if made.first_token(name) is not None} == known


def test_the_repeat_that_served_the_fewest_is_the_slowest(tmp_path: Path) -> None:
    _, whole = _measured(tmp_path, _requests(ttft_s=_times(0.4)))
    _, part = _measured(tmp_path, _requests(served=40, ttft_s=_times(0.1)))
    assert "above 300 ms (median), above 300 ms (p99) (the slowest repeat)" in bottleneck._of_repeats([whole, part])
    _, nothing = _measured(tmp_path, _requests(served=0, ttft_s=None, queue_s=None, load_s=None, prefill_s=None))
    assert "Served 100 of 200 requests." in bottleneck._of_repeats([whole, nothing])


def test_no_request_is_in_time_if_there_is_none() -> None:
    assert _requests().is_in_time
    assert not _requests(requests=0, served=0, ttft_s=None).is_in_time
    assert [_requests(requests=count).has_enough for count in (99, 100)] == [False, True]


def test_a_search_with_few_requests_is_inconclusive(tmp_path: Path) -> None:
    tries = (UserTry(4, 0.1, True, 30), UserTry(8, 3.0, False, 60, 20, 0.4, 0.9))
    few = _requests(requests=30, served=30, users_in_time=4, tries=tries)
    _, run = _measured(tmp_path, few, "inference.search.most=64")
    assert job_banner._of_storage([run]).state == "inconclusive"
    assert f"{_LEAD} 4 (of 30 requests; 99 % needs 100); 8 are too many." in bottleneck._of_repeats([run])
    assert "Slots and computation" not in bottleneck._of_repeats([run])
    _, enough = _measured(tmp_path, structs.replace(few, requests=100, served=100), "inference.search.most=64")
    assert job_banner._of_storage([enough]).state == "good"


def test_users_that_slots_and_computation_limit_are_no_limit_of_storage(tmp_path: Path) -> None:
    tries = (
        UserTry(4, 0.1, True, 100),
        UserTry(8, 3.0, False, 100, 20, 0.88, 0.9),
        UserTry(16, 5.0, False, 100, 20, 0.2, 0.9),
    )
    served = _requests(users_in_time=4, tries=tries)
    _, run = _measured(tmp_path, served, "inference.search.most=64")
    text = bottleneck._of_repeats([run])
    assert "8 are too many. Slots and computation limit the users, and not storage: computation held the slots" in text

    def figures(users: int) -> InferenceSummary:
        is_late = users == 8
        return _requests(
            late=9 if is_late else 0, queue_s=_times(0.12), held_s=100.0, held_by_computation_s=61.0 if is_late else 9.0
        )

    assert "computation held the slots for 61 % of their time." in _users(tmp_path / "study", "2,8", figures)


def test_storage_that_is_too_slow_without_a_queue_is_no_limit_of_slots(tmp_path: Path) -> None:
    """A single user waits for reads; computation after the first token holds the slot most of the time."""

    def figures(users: int) -> InferenceSummary:
        return _requests(late=9, queue_s=_times(0.0), held_s=100.0, held_by_computation_s=90.0)

    text = _users(tmp_path, "1,2", figures)
    assert "fewer than 1" in text
    assert "Slots" not in text


def test_the_banner_says_where_the_blocks_came_from(tmp_path: Path) -> None:
    _, run = _measured(tmp_path, _requests())
    good = job_banner._of_storage([run])
    assert (good.state, good.text) == ("good", "100 % of the bytes of 1,000 blocks was read from storage.")
    _, cached = _measured(tmp_path, _requests(), "inference.direct=false", share=0.5)
    bad = job_banner._of_storage([cached])
    assert bad.state == "not measured"
    assert "cached: 50.0 % from storage in epoch 1" in bad.text
    assert bad.text.endswith("To read from storage: -S inference.direct=true (O_DIRECT).")
    _, small = _measured(
        tmp_path, _requests(), "inference.direct=false", "inference.model={layers: 1, kv_heads: 1, head_dim: 2}"
    )
    assert "a block has 128 bytes, and the kernel reads pages of 4,096" in job_banner._of_storage([small]).text
    _, memory = _measured(tmp_path, _requests(), kind="tmpfs")
    assert "tmpfs is memory" in job_banner._of_storage([memory]).text
    _, grown = _measured(tmp_path, _requests(is_sustained=False))
    assert job_banner._of_storage([grown]).state == "inconclusive"


def test_blocks_that_may_be_in_memory_are_said(tmp_path: Path) -> None:
    _, run = _measured(tmp_path, _requests(), "inference.direct=false")
    assert job_banner._of_storage([run]).text.endswith(
        "; but the blocks that were written may still be in memory: set inference.direct or inference.fsync."
    )
    for key in ("inference.fsync=true", "inference.direct=true"):
        _, sure = _measured(tmp_path, _requests(), "inference.direct=false", key)
        assert "but" not in job_banner._of_storage([sure]).text


def test_a_run_that_reads_no_block_measures_no_storage(tmp_path: Path) -> None:
    nothing = _requests(
        blocks_read=0, read_MBps=None, tokens_per_s=None, read_s=None, storage_tokens=0, memory_tokens=0
    )
    _, run = _measured(tmp_path, nothing, "inference.turns=1", "inference.system_prompt=0")
    banner = job_banner._of_storage([run])
    assert banner.state == "not measured"
    assert "set inference.turns" in banner.text
    for given, advice in (
        ({"requests": 0, "served": 0}, "a longer inference.time"),
        ({"memory_tokens": 500}, "inference.memory holds what requests need"),
        ({"memory_tokens": 0, "removed_blocks": 7}, "a larger inference.capacity"),
    ):
        _, run = _measured(tmp_path, structs.replace(nothing, **given))
        assert advice in job_banner._of_storage([run]).text
    assert job_rows.main_rate(run) == ("KV write MB/s", 900.0)


@pytest.mark.parametrize(
    ("counts", "in_time", "says"),
    [
        ((4, 8, 16), 8, f"{_LEAD} 8; 16 are too many. Served"),
        (
            (4, 8, 16),
            16,
            f"{_LEAD} 16 and perhaps more; no larger number was tried. Served",
        ),
        (
            (4, 2, 1),
            0,
            f"{_LEAD} fewer than 1, the smallest number tried. Served",
        ),
    ],
)
def test_the_result_of_a_search(tmp_path: Path, counts: tuple[int, ...], in_time: int, says: str) -> None:
    tries = tuple(UserTry(users, 0.1 * users, users <= in_time, 100 + users, 3) for users in counts)
    served = _requests(users=in_time or 1, users_in_time=in_time, tries=tries)
    _, run = _measured(tmp_path, served, "inference.search.most=64")
    assert bottleneck._of_repeats([run]).startswith(says)
    rows = inference_rows.tries(served)
    assert [row[1] for row in rows] == [str(users) for users in counts]
    assert [row[2:4] for row in rows] == [[str(100 + users), "3"] for users in counts]
    assert [row[5] for row in rows] == ["yes" if users <= in_time else "no" for users in counts]
    headers = [block.header for block in job_page._result(_job(tmp_path), run) if isinstance(block, Table)]
    assert headers[0] == inference_rows.TRIES


def test_tables_of_a_run(tmp_path: Path) -> None:
    served = _requests(served=98, late=3, removed_blocks=5, dropped_blocks=6)
    plan, run = _measured(tmp_path, served, "inference.verify=true")
    assert inference_rows.requests(served) == [["100", "98", "3", "10.0 %", "60.0 %", "30.0 %"]]
    assert inference_rows.blocks(served) == [
        ["read", "1,000", "1.953 GiB", "1,500.0"],
        ["written", "200", "400 MiB", "900.0"],
    ]
    assert run.result is not None
    assert run.result.summary is not None
    facts = dict(job_rows.facts(run, run.result.summary))
    assert facts["unserved"].startswith(
        "2 of 100 requests had not begun inference.target after they arrived; they count as"
    )
    assert facts["evicted"] == "5 blocks from storage, 6 blocks from memory"
    assert facts["tokens"].startswith("storage allows a rank 12,000 tokens/s: 600 tokens")
    assert facts["verified"] == "1,000 blocks read had the content that was written"
    assert facts["prepared"].startswith("50 blocks, 100 MiB, were written before")
    assert [row[0].strip() for row in job_rows.takes(run, run.result.summary)] == [
        "first token", "wait in the queue", "reads from storage", "computation (emulated)", "read of a block",
        "write of a block",
    ]  # fmt: skip
    header, rows = job_rows.of_runs([run])
    assert header == inference_rows.RUNS
    assert rows[0] == [run.name, "0.180", "-", "1500.0", "900.0", "5.0 %", "100.0 %"]
    assert plan.runs


def _users(folder: Path, users: str, figures: Callable[[int], InferenceSummary], *keys: str) -> str:
    """Return the report of a study over numbers of users. figures: requests of a number of users."""
    made = studies.make(folder, studies.asked("kv_cache_llama3_8b", f"inference.users={users}", settings=keys))
    studies.write(made, lambda point, repeat: 1.0)
    jobs = []
    for path in study_outcome.jobs(made):
        job = job_outcome.load(path)
        runs = [run._replace(result=_with(run, figures)) for run in job.runs]
        jobs.append(job._replace(runs=runs))
    return "\n".join(user_limit.of_study(jobs))


def _with(run: RunOutcome, figures: Callable[[int], InferenceSummary]) -> Result:
    keys = run.run.workload.inference
    assert keys is not None
    assert run.result is not None
    assert run.result.summary is not None
    served = figures(keys.users)
    epoch = Epoch(1, 60.0, 1, 1, served.bytes_read, 60.0, 0.0, 0.0, storage_bytes_read=served.bytes_read)
    summary = structs.replace(run.result.summary, inference=served)
    return structs.replace(run.result, summary=summary, epochs=[epoch], file_system="ext4", outputs_on="ext4 /data")


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (4, "4; with 8: 3.2 s."),
        (16, "16 and perhaps more; no larger number was measured."),
        (1, "fewer than 2: 800 ms."),
    ],
)
def test_the_largest_number_of_users_in_time_is_named(tmp_path: Path, limit: int, says: str) -> None:
    def figures(users: int) -> InferenceSummary:
        is_slow = users > limit
        return _requests(ttft_s=_times(0.2 * users if is_slow else 0.1), late=2 if is_slow else 1)

    target = "200 ms" if limit == 1 else "2 s"
    text = _users(tmp_path, "2,4,8,16", figures, f"inference.target={target}")
    assert text == f"Users in time (99 % of the first tokens within {target}): {says}"


def test_users_whose_requests_are_not_all_served_are_too_many(tmp_path: Path) -> None:
    text = _users(tmp_path, "2,4,8", lambda users: _requests(served=98 if users == 4 else 99))
    assert text == (f"{_LEAD} 2; with 4: not all requests are served in time. But 8 met it, so the noise is large.")


def test_a_level_that_memory_serves_is_no_reason_to_know_nothing(tmp_path: Path) -> None:
    def figures(users: int) -> InferenceSummary:
        return _requests(blocks_read=0 if users == 2 else 1000, late=5 if users == 8 else 0)

    text = _users(tmp_path, "2,4,8", figures)
    assert text.startswith(f"{_LEAD} 4; with 8: ")


def test_a_number_of_users_that_read_from_memory_is_not_known(tmp_path: Path) -> None:
    made = studies.make(tmp_path, studies.asked("kv_cache_llama3_8b", "inference.users=2,4", settings=()))
    studies.write(made, lambda point, repeat: 1.0)
    jobs = [job_outcome.load(path) for path in study_outcome.jobs(made)]
    jobs = [
        job._replace(
            runs=[
                run._replace(result=structs.replace(_with(run, lambda users: _requests()), file_system="tmpfs"))
                for run in job.runs
            ]
        )
        for job in jobs
    ]
    (text,) = user_limit.of_study(jobs)
    assert "not known, because the bytes of 00-p0-measure-1 may not have come from storage" in text
    failed = [job._replace(runs=[job.runs[0]._replace(result=None), *job.runs[1:]]) for job in jobs]
    (text,) = user_limit.of_study(failed)
    assert "has no valid result" in text


def test_a_single_number_of_users_has_no_such_sentence(tmp_path: Path) -> None:
    assert not _users(tmp_path, "4", lambda users: _requests())


def test_the_page_of_a_job_has_the_tables(tmp_path: Path) -> None:
    _, run = _measured(tmp_path, _requests())
    headers = [block.header for block in job_page._result(_job(tmp_path), run) if isinstance(block, Table)]
    assert headers == [inference_rows.REQUESTS, inference_rows.BLOCKS, job_rows.TAKES]


def _job(folder: Path) -> JobOutcome:
    made = studies.make(folder / "job", studies.asked("kv_cache_llama3_8b", settings=()), repeat=1)
    studies.write(made, lambda point, repeat: 1.0)
    return job_outcome.load(next(iter(study_outcome.jobs(made)), Path(made.runs, made.study)))
