"""Every page and every summary opens with its true state and one sentence on the limit of the run."""

import io
import json
import shutil
from collections.abc import Callable, Sequence
from html import escape, unescape
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.analysis import storage_check
from dlio_hpc.analysis.log.analyze import log_file
from dlio_hpc.analysis.storage_check import Outcome as Origin
from dlio_hpc.analysis.study import file_system_pairs
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.base import units
from dlio_hpc.batch.job_record import with_state
from dlio_hpc.plan.study import Study
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.records.outcomes import OUTCOMES, Outcome
from dlio_hpc.records.study_outcome import StudyOutcome
from dlio_hpc.reports import (
    acceptance_page,
    banner,
    bottleneck,
    history_page,
    history_rows,
    html_page,
    job_banner,
    job_page,
    job_rows,
    log_page,
    regression_page,
    study_banner,
    study_page,
    study_report,
    study_rows,
    terminal,
    verdict_banners,
)
from dlio_hpc.reports.banner import Banner, State
from dlio_hpc.reports.page import Page
from dlio_hpc.results.run_result import Epoch
from dlio_hpc.verdict import acceptance, baseline_comparison, criteria_file
from dlio_hpc.verdict.baseline_comparison import Judgement
from dlio_hpc.verdict.criteria_file import Criteria
from dlio_hpc.verdict.suite import SuiteVerdict
from tests.analysis.test_ab_comparison import _study as two_sides
from tests.conftest import Run
from tests.reports.test_pictures import browser, dumped
from tests.support import judged, nights, studies
from tests.support.places import LOGS, ROOT

MIB = 1 << 20
Values = Callable[[int, int], float | None]


def _job(folder: Path, values: Sequence[float], origin: Origin = "storage", **phases: float) -> JobOutcome:
    """Return a completed job with a measured run for each value of samples/s. phases: seconds of its epoch."""
    made = studies.make(folder / "dlio-runs", studies.asked(), repeat=len(values))
    studies.write(made, lambda _, repeat: values[repeat])
    outcome = job_outcome.load(folder / "dlio-runs" / "tune")
    return outcome._replace(runs=[_read(run, origin, phases) for run in outcome.runs])


def _read(run: RunOutcome, origin: Origin, phases: dict[str, float]) -> RunOutcome:
    assert run.result is not None
    if run.result.summary is None:
        return run
    seconds: dict[str, Any] = {"wait_s": 1.0, "compute_s": 8.0, "sync_s": 1.0} | phases
    arrived = {"storage": 256 * MIB, "cached": 0, "unknown": None, "nothing read": 0}[origin]
    size = 0 if origin == "nothing read" else 256 * MIB
    epoch = Epoch(1, sum(seconds.values()), 10, 1000, size, storage_bytes_read=arrived, **seconds)
    kind = "gpfs" if origin == "unknown" else "ext4"
    summary = structs.replace(run.result.summary, io_time_s=2 * seconds["wait_s"], io_hidden_fraction=0.5)
    return run._replace(result=structs.replace(run.result, epochs=[epoch], file_system=kind, summary=summary))


@pytest.mark.parametrize(
    ("values", "origin", "state", "text"),
    [
        (
            [100.0, 101.0, 99.0],
            "storage",
            "good",
            "100 % was read from storage. samples/s of 3 repeats (from 01-measure-1 on) spread by 2.0 % of the median",
        ),
        ([100.0], "storage", "good", "Measured once: the noise is unknown."),
        ([100.0, 140.0, 99.0], "storage", "inconclusive", "spread by 41.0 % of the median"),
        ([100.0, 101.0, 99.0], "cached", "not measured", "3 of 3 measured runs: cached: 0.0 % from storage"),
        ([100.0, 101.0, 99.0], "unknown", "not measured", "UNKNOWN: on gpfs, no counter shows"),
        ([100.0, 101.0, 99.0], "nothing read", "not measured", "No run read anything from storage"),
    ],
)
def test_a_job_opens_with_its_state(
    tmp_path: Path, values: list[float], origin: Origin, state: State, text: str
) -> None:
    opening = job_banner.of_jobs([_job(tmp_path, values, origin)])
    assert (opening.state, text in opening.text) == (state, True), opening


@pytest.mark.parametrize(
    ("job_state", "state", "text"),
    [
        ("failed", "bad", "Do not use the numbers: job tune ended as failed"),
        ("node_fail", "bad", "Do not use the numbers: job tune ended as node_fail"),
        ("timeout", "not measured", "Incomplete: job tune ended as timeout"),
        ("running", "not measured", "Incomplete: job tune is running; 1 of 2 measured runs have a result."),
    ],
)
def test_a_job_that_did_not_end_well_is_not_good(tmp_path: Path, job_state: Any, state: State, text: str) -> None:
    outcome = _job(tmp_path, [100.0, 101.0])
    *others, last = outcome.runs
    record = with_state(outcome.job, job_state)
    opening = job_banner.of_jobs([outcome._replace(job=record, runs=[*others, last._replace(result=None)])])
    assert (opening.state, opening.text.startswith(text)) == (state, True), opening


@pytest.mark.parametrize("job_state", ["timeout", "cancelled", "lost"])
def test_results_are_kept_only_where_there_are_any(tmp_path: Path, job_state: Any) -> None:
    outcome = _job(tmp_path, [100.0, 101.0])
    ended = outcome._replace(job=with_state(outcome.job, job_state))
    *others, first, last = ended.runs
    some = ended._replace(runs=[first, last._replace(result=None)])
    assert all(run.run.kind != "measure" for run in others)
    assert "; its results so far are kept" in str(job_outcome.fault(some))
    assert first.result is not None
    empty = structs.replace(first.result, epochs=[], summary=None)
    for result in (None, empty):
        none = ended._replace(runs=[run._replace(result=result) for run in ended.runs])
        assert f"ended as {job_state}; it has no results" in str(job_outcome.fault(none))


def test_faults_outweigh_everything_and_the_gravest_job_speaks_for_all(tmp_path: Path) -> None:
    outcome = _job(tmp_path, [100.0, 101.0], "cached")
    *others, last = outcome.runs
    assert last.result is not None
    broken = last._replace(result=structs.replace(last.result, faults=["10 bytes more than planned"]))
    invalid = outcome._replace(runs=[*others, broken])
    assert job_banner.of_jobs([outcome, invalid]).state == "bad"
    assert "10 bytes more than planned" in job_banner.of_jobs([outcome, invalid]).text


@pytest.mark.parametrize(
    ("phases", "origin", "text"),
    [
        (
            {},
            "storage",
            "Bound by compute: of 10 s in steps, compute 80.0 %, waiting for data 10.0 %, synchronisation 10.0 %",
        ),
        ({"wait_s": 8.0, "compute_s": 1.0}, "storage", "Bound by storage: of 10 s in steps, waiting for data 80.0 %"),
        ({"wait_s": 8.0, "compute_s": 1.0}, "cached", "Bound by reads from memory instead of storage: "),
        ({"wait_s": 8.0, "compute_s": 1.0}, "unknown", "Bound by reads (whether from storage or from memory"),
        ({"sync_s": 10.0, "compute_s": 1.0}, "storage", "Bound by synchronisation (waiting for rank 0 on n1, 1.00 x"),
        ({"wait_s": 7.5}, "storage", "Bound by compute and by storage: "),
        (
            {"checkpoint_s": 30.0},
            "storage",
            "Bound by writing checkpoints: of 40 s in steps and checkpoints, checkpoints 75.0 %",
        ),
    ],
)
def test_what_limited_a_run_is_said_in_one_sentence(
    tmp_path: Path, phases: dict[str, float], origin: Origin, text: str
) -> None:
    (sentence,) = bottleneck.of_job(_job(tmp_path, [100.0, 101.0], origin, **phases))
    assert sentence.startswith(text), sentence
    assert sentence.endswith("(mean over ranks and 2 repeats).")


def test_synchronisation_during_reads_is_waiting_for_another_ranks_reads(tmp_path: Path) -> None:
    """Ranks without compute whose reads are in flight most of the time are not bound by the barrier."""
    outcome = _job(tmp_path, [100.0, 101.0], wait_s=4.4, compute_s=0.1, sync_s=4.2)
    (sentence,) = bottleneck.of_job(outcome)
    assert sentence.startswith("Bound by storage (ranks wait for the reads of rank 0 on n1, 1.00 x the median rank)")


def test_the_slowest_rank_is_that_of_the_median_repeat(tmp_path: Path) -> None:
    outcome = _job(tmp_path, [100.0, 101.0, 102.0], sync_s=20.0)
    runs = []
    for number, (run, ratio) in enumerate(zip(outcome.runs[-3:], (1.1, 4.5, 1.3), strict=True)):
        assert run.result is not None
        assert run.result.summary is not None
        slowest = structs.replace(run.result.summary.slowest_rank, rank=number, ratio=ratio)
        summary = structs.replace(run.result.summary, slowest_rank=slowest)
        runs.append(run._replace(result=structs.replace(run.result, summary=summary)))
    (sentence,) = bottleneck.of_job(outcome._replace(runs=runs))
    assert "(waiting for the slowest rank, which is not the same in each repeat, 1.30 x the median rank)" in sentence


def test_reads_that_unpack_are_not_called_storage_alone(tmp_path: Path) -> None:
    outcome = _job(tmp_path, [100.0], wait_s=20.0)
    work = outcome.runs[-1].run.workload
    packed = structs.replace(
        work,
        dataset=structs.replace(work.dataset, format="hdf5", compression="gzip"),
        reader=structs.replace(work.reader, mode="framework"),
    )
    runs = [run._replace(run=structs.replace(run.run, workload=packed)) for run in outcome.runs]
    (sentence,) = bottleneck.of_job(outcome._replace(runs=runs))
    assert sentence.startswith("Bound by storage or decompression (the same call reads and decompresses): ")


def test_a_study_names_the_few_points_that_a_limit_holds_for(tmp_path: Path) -> None:
    outcome = _job(tmp_path, [100.0, 101.0])
    titled = outcome._replace(plan=structs.replace(outcome.plan, titles={0: "images"}))
    runs = [run._replace(run=structs.replace(run.run, point=0)) for run in titled.runs if run.run.kind == "measure"]
    (sentence,) = bottleneck.of_study([titled._replace(runs=runs)])
    assert sentence == "Bound: images by compute (waiting for data: 10 %)."


def test_equal_sets_of_bottlenecks_count_together_in_any_order(tmp_path: Path) -> None:
    jobs = []
    for number, wait_s in enumerate((7.5, 8.5)):
        outcome = _job(tmp_path / str(number), [100.0], wait_s=wait_s)
        runs = [run for run in outcome.runs if run.run.kind == "measure"]
        jobs.append(outcome._replace(runs=[run._replace(run=structs.replace(run.run, point=number)) for run in runs]))
    assert [bottleneck.of_job(job)[0][:34] for job in jobs] == [
        "Bound by compute and by storage: o", "Bound by storage and by compute: o"
    ]  # fmt: skip
    (sentence,) = bottleneck.of_study(jobs)
    assert sentence == "Bound: 2 of 2 points by compute and by storage (waiting for data: 45 to 49 %)."


def test_a_workload_without_computation_has_no_au(tmp_path: Path) -> None:
    (run,) = (run for run in _job(tmp_path, [100.0], compute_s=0.0).runs if run.run.kind == "measure")
    assert run.result is not None
    assert run.result.summary is not None
    idle = structs.replace(run.result.summary, compute_asked_s=0.0, au=0.0)
    column = job_rows.EPOCHS.index("AU")
    assert {row[column] for row in job_rows.epochs(run.result, idle)} == {"-"}
    busy = structs.replace(idle, compute_asked_s=0.1, au=0.5)
    assert job_rows.epochs(run.result, busy)[-1][column] == "50.0 %"
    made = studies.make(tmp_path / "more", studies.asked("demo", "compute.time=0,100ms"), repeat=3)
    report = study_report.make(StudyOutcome(made, [], studies.measured(made, lambda *_: 100.0), [], 0))
    (finding,) = report.findings
    place = study_rows.point_header(finding, study_rows.varied(made, finding)).index("AU")
    assert [row[place] for _, row in study_rows.points(made, finding)] == ["-", "50.0 %"]


def test_waiting_without_reads_in_flight_is_not_storage(tmp_path: Path) -> None:
    outcome = _job(tmp_path, [100.0], wait_s=20.0)
    (run,) = (run for run in outcome.runs if run.run.kind == "measure")
    assert run.result is not None
    assert run.result.summary is not None
    summary = structs.replace(run.result.summary, io_time_s=4.0, io_hidden_fraction=0.5)
    outcome = outcome._replace(runs=[run._replace(result=structs.replace(run.result, summary=summary))])
    (sentence,) = bottleneck.of_job(outcome)
    loader = "the loader, with its workers, queues and copies"
    assert sentence.startswith(f"Bound by {loader}, not storage (reads were in flight for 2 s of 20 s")


@pytest.mark.parametrize(
    ("io_s", "text"),
    [
        (2.0, "preparing data, not storage (reads were in flight for 2 s of 20 s of waiting): "),
        (4.9, "preparing data, not storage (reads were in flight for 4.9 s of 20 s of waiting): "),
        (5.1, "storage and by preparing data (reads were in flight for 5.1 s of 20 s of waiting): "),
        (14.9, "storage and by preparing data (reads were in flight for 14.9 s of 20 s of waiting): "),
        (15.1, "storage: "),
    ],
)
def test_a_wait_for_reads_and_for_decoding_has_two_causes(tmp_path: Path, io_s: float, text: str) -> None:
    """Times are means of the repeats."""
    outcome = _job(tmp_path, [100.0], wait_s=20.0)
    (run,) = (run for run in outcome.runs if run.run.kind == "measure")
    assert run.result is not None
    assert run.result.summary is not None
    parts = {"io_time_s": io_s, "io_hidden_fraction": 0.0, "preprocess_s": 9.0}
    result = structs.replace(run.result, summary=structs.replace(run.result.summary, **parts))
    repeated = outcome._replace(runs=[run._replace(result=result)] * 3)
    assert bottleneck.of_job(repeated)[0].startswith(f"Bound by {text}")


@pytest.mark.parametrize(
    ("wait_s", "io_s", "fraction", "text"),
    [
        (
            20.0,
            16.0,
            0.6,
            "Bound by opens and closes of files, which take 60 % of the time in opens, closes and reads: ",
        ),
        (20.0, 16.0, 0.4, "Bound by storage: "),
        (16.0, 1.0, 0.9, "Bound by opens and closes of files, which take 90 % "),  # 1 s of reads and 9 s of metadata
        (
            20.0,
            2.0,
            0.4,
            "Bound by the loader, with its workers, queues and copies, not storage (opens, closes and reads were in "
            "flight for about 3.33 s of 20 s",
        ),
    ],
)
def test_opens_and_closes_are_a_bottleneck_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_s: float, io_s: float, fraction: float, text: str
) -> None:
    outcome = _job(tmp_path, [100.0], wait_s=wait_s)
    (run,) = (run for run in outcome.runs if run.run.kind == "measure")
    assert run.result is not None
    assert run.result.summary is not None
    summary = structs.replace(
        run.result.summary, io_time_s=io_s, io_hidden_fraction=0.0,
        metadata_fraction=fraction, opens_per_s=500.0,
    )  # fmt: skip
    outcome = outcome._replace(runs=[run._replace(result=structs.replace(run.result, summary=summary))])
    (sentence,) = bottleneck.of_job(outcome)
    assert sentence.startswith(text)
    (fact,) = [text for label, text in job_rows.facts(outcome.runs[-1], summary) if label == "metadata"]
    assert fact.startswith(
        f"opens and closes take {100 * fraction:.0f} % of the time in opens, closes and reads; 500 o"
    )
    assert fact.endswith("the node answered: ext4 belongs to one node, which knows the files that it used before")
    with monkeypatch.context() as context:
        context.setattr(storage_check, "_unopened", lambda *_: "")
        advice = dict(job_rows.facts(outcome.runs[-1], summary))["metadata"]
    assert "subfolders (dataset.subfolders); on Lustre, Data-on-MDT" in advice
    cached = _job(tmp_path / "cached", [100.0], "cached").runs[-1]
    assert dict(job_rows.facts(cached, summary))["metadata"].endswith("the time of the node and not of the file system")
    few, unknown = (structs.replace(summary, metadata_fraction=known) for known in (0.1, None))
    assert dict(job_rows.facts(outcome.runs[-1], few))["metadata"].endswith("; 500 opens/s")
    assert "is not known, because a library" in dict(job_rows.facts(outcome.runs[-1], unknown))["metadata"]
    assert "metadata" not in dict(job_rows.facts(outcome.runs[-1], structs.replace(summary, opens_per_s=None)))
    much = structs.replace(summary, overhead_bytes_read=summary.bytes_read // 5)
    few_bytes = structs.replace(summary, overhead_bytes_read=summary.bytes_read // 20)
    assert dict(job_rows.facts(outcome.runs[-1], much))["read"].endswith(
        " were read besides the samples, such as headers"
    )
    assert dict(job_rows.facts(outcome.runs[-1], few_bytes))["read"].endswith(" opens")


def test_a_real_cached_job_says_so_first(run: Run, small: Path, tmp_path: Path) -> None:
    """The terminal and the page open with the state. The page shows the pictures beside the answer once."""
    done = run("dlio-submit", small, "-s", "local", "--repeat", "2", "--wait", "--quiet", "-d", tmp_path / "data")
    assert done.code == 0, done.err
    assert done.out.startswith("Not measured: 2 of 2 measured runs: cached: ")
    assert "\nBound by " in done.out.partition("state     completed")[0]
    (folder,) = (tmp_path / "dlio-runs").glob("small-*")
    assert run("dlio-hpc", "report", folder, "--html", "r.html", "--figures", "f").code == 0
    html = (tmp_path / "r.html").read_text().replace("<wbr>", "")
    assert '<p class="banner not-measured"><strong>Not measured.</strong> 2 of 2 measured runs: cached: ' in html
    before, _, after = html.partition("<section")
    assert '<p class="answer">Bound by ' in before
    assert [
        before.count(f'aria-label="{title}"') for title in ("Bytes of each rank over time", "I/O cost of a rank")
    ] == [1, 1]
    assert after.count('aria-label="Bytes of each rank over time"') == 1, "that of the second measured run"
    assert (tmp_path / "f" / "01-measure-1" / "heat_map.svg").exists()


@pytest.mark.parametrize(
    ("log", "state", "text"),
    [
        ("mpi4_npz.darshan", "good", "counters and trace are complete"),
        ("mpi4_npz_truncated.darshan", "bad", "is incomplete"),
        ("mpi4_dxtpartial.darshan", "inconclusive", "counters are complete, but other parts are not"),
        ("mpi4_forkcorrupt.darshan", "bad", "counters disagree"),
    ],
)
def test_a_log_opens_with_its_state(log: str, state: State, text: str) -> None:
    opening = log_page.banner_of_logs([log_file(LOGS / log)])
    assert (opening.state, text in opening.text) == (state, True), opening


def _nightly(values: Sequence[Sequence[float]], baseline: int | None = None, **last: Any) -> Banner:
    """Return the banner of a history of such nights, one of which may be the baseline."""
    entries = [nights.entry(night, repeats) for night, repeats in enumerate(values[:-1])]
    entries.append(nights.entry(len(values) - 1, values[-1], **last))
    accepted = [] if baseline is None else [nights.accepted(entries[baseline])]
    return verdict_banners.of_history(history_rows.blocks(entries, accepted, "samples_per_s"), "samples_per_s")


def _alike(count: int, level: float = 100.0) -> list[list[float]]:
    """Return nights of five repeats with noise of half a percent."""
    noise = np.random.default_rng(5).normal(0, 0.005, (count, 5))
    return (level * np.exp(noise)).tolist()  # type: ignore[no-any-return]


def test_few_nights_detect_no_change_and_the_last_is_held_against_the_baseline() -> None:
    few = _nightly(_alike(3), baseline=0)
    assert (few.state, "Too few nights to detect small changes: 3 of 5." in few.text) == ("inconclusive", True)
    fallen = _nightly([*_alike(3), *_alike(1, 1.4)], baseline=0)
    assert (fallen.state, "98.6 % worse than the 3 nights at the level of baseline" in fallen.text) == ("bad", True), (
        fallen
    )
    alone = _nightly([*_alike(3), *_alike(1, 1.4)])
    assert (alone.state, "98.6 % worse since nightly-003 (2026-09-04); there is no baseline" in alone.text) == (
        "bad",
        True,
    ), alone
    good = _nightly(_alike(12), baseline=2)
    assert (good.state, "No change is detected over 12 nights." in good.text) == ("good", True), good
    first = _nightly(_alike(1))
    assert (first.state, "neither a baseline nor an earlier job to compare with" in first.text) == (
        "inconclusive",
        True,
    )


def _stopped(values: Sequence[Sequence[float]], days: float, every: int = 1) -> Banner:
    """Return the banner of a history whose newest night is this number of days ago."""
    entries = [nights.entry(every * night, repeats) for night, repeats in enumerate(values)]
    blocks = history_rows.blocks(entries, [nights.accepted(entries[0])], "samples_per_s")
    now = units.utc(units.timestamp(entries[-1].ended) + 86400 * days)
    return verdict_banners.of_history(blocks, "samples_per_s", now)


def test_a_history_says_that_jobs_stopped() -> None:
    good = _nightly(_alike(12), baseline=0)
    assert _stopped(_alike(12), 1.9) == good
    stopped = _stopped(_alike(12), 60)
    assert (stopped.state, stopped.text) == (
        "not measured", f"Nothing ran since 2026-09-12 (60 days). Then: {good.text}",
    )  # fmt: skip
    assert _stopped(_alike(12), 20, every=7).state == "good", "three times the usual distance are 21 days"
    assert _stopped(_alike(12), 22, every=7).state == "not measured"
    assert _stopped([*_alike(11), *_alike(1, 1.4)], 60).state == "bad"
    assert [_stopped(_alike(1), days).state for days in (6.9, 7.1)] == ["inconclusive", "not measured"]


def test_a_drop_without_a_baseline_stays_bad() -> None:
    """The newest job is as good as the previous one, which has dropped, too."""
    entries = [nights.entry(night, values) for night, values in enumerate([*_alike(30), *_alike(20, 70.0)])]
    opening = verdict_banners.of_history(history_rows.blocks(entries, [], "samples_per_s"), "samples_per_s")
    (verdict,) = baseline_comparison.judge(entries[-1:], entries, []).verdicts
    assert (opening.state, verdict.outcome) == ("bad", "regression")
    assert "nightly-049 is 30.1 % worse since nightly-030 (2026-10-01); there is no baseline." in opening.text


def test_names_of_jobs_keep_their_capitals() -> None:
    entries = [nights.entry(night, values, job=f"Nightly-{night}") for night, values in enumerate(_alike(12))]
    entries += [
        nights.entry(12 + night, values, job=f"Nightly-{12 + night}") for night, values in enumerate(_alike(8, 80.0))
    ]
    opening = verdict_banners.of_history(history_rows.blocks(entries, [], "samples_per_s"), "samples_per_s")
    assert "Over 20 nights: " in opening.text
    assert "worse since Nightly-12 " in opening.text


def test_a_night_that_measured_no_storage_is_not_good() -> None:
    assert _nightly(_alike(12), baseline=2, storage="cached").state == "not measured"
    failed = nights.entry(12, [], fault="job failed", exit_code=6, state="failed")
    entries = [*(nights.entry(night, values) for night, values in enumerate(_alike(12))), failed]
    opening = verdict_banners.of_history(history_rows.blocks(entries, [], "samples_per_s"), "samples_per_s")
    assert (opening.state, "measured nothing: job failed" in opening.text) == ("bad", True), opening


def test_the_banner_of_a_history_is_about_the_night_that_it_names() -> None:
    """A job that measured several datasets of one key is compared with no other night."""
    several = nights.entry(3, [100.0] * 5)
    other = [structs.replace(one, data="/scratch/other") for one in several.measurements]
    several = structs.replace(several, measurements=(*several.measurements, *other))
    entries = [*(nights.entry(night, values) for night, values in enumerate(_alike(3))), several]
    opening = verdict_banners.of_history(history_rows.blocks(entries, [], "samples_per_s"), "samples_per_s")
    assert (opening.state, "nightly-003 measured this on several datasets" in opening.text) == ("inconclusive", True)


def test_a_history_opens_with_its_state_on_terminal_and_page() -> None:
    blocks = history_rows.blocks([nights.entry(0, [100.0] * 3), nights.entry(1, [1.4] * 3)], [], "samples_per_s")
    out = io.StringIO()
    terminal.show(history_page.of_history(blocks, "samples_per_s", "x"), out)
    assert out.getvalue().startswith("Inconclusive: ") or out.getvalue().startswith("Bad: ")
    assert 'class="banner good"' not in html_page.render(history_page.of_history(blocks, "samples_per_s", "x"))


def _of_study(made: Study, values: Values, origin: Origin = "storage") -> Banner:
    measured = [measurement._replace(origin=origin) for measurement in studies.measured(made, values)]
    return _opening(made, measured)


def _opening(made: Study, measured: list[Measured]) -> Banner:
    report = study_report.make(StudyOutcome(made, [], measured, [], 0))
    opening = study_banner.of_study(report)
    assert f'class="banner {opening.state.replace(" ", "-")}"' in html_page.render(study_page.of_study(report))
    return opening


def _noisy(made: Study, levels: Sequence[float], sd: float) -> Values:
    noise = np.random.default_rng(1).normal(0, sd, (len(made.points), made.repeat))
    return lambda point, repeat: float(levels[point] * np.exp(noise[point, repeat]))


def test_a_noisy_study_is_inconclusive_and_a_sharp_one_is_good(tmp_path: Path) -> None:
    made = studies.make(tmp_path, studies.asked("demo", "reader.read_threads=1,2,4"), repeat=5)
    assert _of_study(made, _noisy(made, [100, 100, 100], 0.66)).state == "inconclusive"
    assert _of_study(made, _noisy(made, [100, 150, 200], 0.01)).state == "good"
    assert _of_study(made, _noisy(made, [100, 100, 100], 0.01)).state == "good"
    assert _of_study(made, _noisy(made, [100, 150, 200], 0.01), "cached").state == "not measured"
    assert _of_study(made, _noisy(made, [100, 150, 200], 0.01), "unknown").state == "not measured"


def test_cached_parts_of_a_study_are_named(tmp_path: Path) -> None:
    other = structs.replace(studies.asked("demo", "reader.read_threads=1,2"), name="two")
    made = studies.make(tmp_path, structs.replace(studies.asked("demo", "reader.read_threads=1,2"), name="one"), other)
    measured = studies.measured(made, _noisy(made, [100, 150] * 2, 0.01))
    origins: list[Origin] = [
        "cached" if made.points[measurement.point].part == "two" else "storage" for measurement in measured
    ]
    measured = [one._replace(origin=origin) for one, origin in zip(measured, origins, strict=True)]
    opening = _opening(made, measured)
    lead = "Cached (bytes came from memory instead of storage)"
    assert opening.text == f"{lead}: two: 6 of 6 measurements. one: from storage."
    advice = study_report.make(StudyOutcome(made, [], measured, [], 0)).advice
    assert advice[-1] == "No advice from two: measurements there are cached (bytes came from memory)."


def test_two_file_systems_that_cannot_be_told_apart_are_inconclusive(tmp_path: Path) -> None:
    made = two_sides(tmp_path)
    wide = _of_study(made, _noisy(made, [100, 100], 0.5))
    assert (wide.state, "too large to rule out a difference of 20 %" in wide.text) == ("inconclusive", True), wide
    assert _of_study(made, _noisy(made, [100, 100], 0.01)).state == "good"
    assert _of_study(made, _noisy(made, [100, 80], 0.01)).state == "good"


def test_a_study_of_single_points_says_what_it_measured(tmp_path: Path) -> None:
    made = studies.make(tmp_path, studies.asked(), repeat=5)
    opening = _of_study(made, _noisy(made, [100], 0.01))
    assert (opening.state, "median of 5 repeats" in opening.text) == ("good", True), opening
    assert _of_study(made, _noisy(made, [100], 0.4)).state == "inconclusive"
    made = studies.make(tmp_path, studies.asked(), repeat=1)
    assert _of_study(made, _noisy(made, [100], 0.01)).state == "inconclusive"


def test_figures_of_parts_of_single_points_are_their_repeats(run: Run, tmp_path: Path) -> None:
    other = structs.replace(studies.asked(), name="two")
    made = studies.make(tmp_path / "dlio-runs", structs.replace(studies.asked(), name="one"), other, repeat=3)
    studies.write(made, lambda point, repeat: 100.0 + point + repeat)
    done = run("dlio-hpc", "report", "tune", "--figures", "f", "--html", "r.html")
    assert done.code == 0, done.err
    stems = ("one-repeats", "two-repeats")
    assert {path.name for path in (tmp_path / "f").iterdir()} == {
        f"{s}.{kind}" for s in stems for kind in ("svg", "png")
    }
    assert "Nothing was measured" not in (tmp_path / "r.html").read_text()
    shutil.rmtree(tmp_path / "dlio-runs")
    studies.write(made, lambda *_: None, "running")
    done = run("dlio-hpc", "report", "tune", "--figures", "g")
    assert "figures: none, because there are no measurements to draw" in done.err


def test_each_verdict_has_the_state_of_its_exit_code() -> None:
    for outcome, meaning in OUTCOMES.items():
        code = meaning.exit_code
        verdict = baseline_comparison.Verdict("job", "samples_per_s", outcome, code, "why", 0.02)
        opening = verdict_banners.of_judgement(baseline_comparison.summed([verdict]))
        expected = {
            "pass": "good", "improved": "good", "skipped": "good", "inconclusive": "inconclusive",
            "not_comparable": "inconclusive", "cached": "not measured", "incomplete": "not measured",
        }  # fmt: skip
        assert opening.state == expected.get(outcome, "bad")
    asked = criteria_file.Criteria(name="x")
    good = acceptance.judge(asked, [judged.repeats("samples_per_s", [100.0] * 3)])
    assert verdict_banners.of_acceptance(good).state == "good"
    cached = acceptance.judge(asked, [judged.repeats("samples_per_s", [100.0] * 3, storage=judged.storage(0.9))])
    assert verdict_banners.of_acceptance(cached).state == "not measured"


_MEASURE = """
<script>
  const broken = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.parentElement.closest("svg, script")) continue;
    for (const word of node.data.matchAll(/(?<!\\S)-{1,2}\\p{L}[\\p{L}\\p{N}-]*|[\\p{L}\\p{N}_]+/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const tops = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (tops.size > 1) broken.push(word[0]);
    }
  }
  const wide = document.documentElement.scrollWidth > window.innerWidth;
  const strong = document.querySelector("p.banner strong");
  const colours = [getComputedStyle(strong).color, getComputedStyle(strong.parentElement).backgroundColor];
  const measured = {broken, wide, colours, width: window.innerWidth};
  document.documentElement.setAttribute("data-measured", JSON.stringify(measured));
</script>
"""
# A window cannot be narrower than 500 pixels; a frame can.
_FRAMES = """<!DOCTYPE html>
<html><body>FRAMES<script>
  addEventListener("load", () => {
    const inner = [...document.querySelectorAll("iframe")].map((frame) => frame.contentDocument.documentElement);
    const measured = inner.map((root) => JSON.parse(root.getAttribute("data-measured")));
    document.documentElement.setAttribute("data-measured", JSON.stringify(measured));
  });
</script></body></html>
"""
_FRAME = '<iframe width="WIDTH" height="900" style="border: 0" srcdoc="PAGE"></iframe>'
_POLICY = '<meta http-equiv="Content-Security-Policy"'


def _measured(file: Path, pages: Sequence[str], width: int, is_dark: bool) -> Any:
    """Return the broken words, the excess width and the banner's colours of each page in a browser window of this
    width.
    """
    frames = []
    for html in pages:
        assert html.count(_POLICY) == 1
        inner = html.replace(_POLICY, "<meta name='policy'").replace("</body>", _MEASURE + "</body>")
        frames.append(_FRAME.replace("WIDTH", str(width)).replace("PAGE", escape(inner)))
    file.write_text(_FRAMES.replace("FRAMES", "".join(frames)))
    dark = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if is_dark else []
    text = dumped(file, "--window-size=1400,900", *dark)
    return json.loads(unescape(text.partition('data-measured="')[2].partition('"')[0]))


def _contrast(colours: list[str]) -> float:
    """Return WCAG's ratio of the luminances of two CSS colours."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted(map(luminance, colours))
    return (high + 0.05) / (low + 0.05)


def _pages(folder: Path) -> dict[str, Page]:
    """Write a page of each subject, with names of the greatest length."""
    job = _job(folder, [100.0, 140.0], "cached")
    made = studies.make(
        folder / "more", studies.asked("demo", "reader.read_threads=1,2,4", "reader.batch_size=1,2,4,8")
    )
    values = _noisy(made, [100.0] * len(made.points), 0.3)
    report = study_report.make(StudyOutcome(made, [], studies.measured(made, values), [], 0))
    entries = [nights.entry(night, values) for night, values in enumerate(_alike(4))]
    blocks = history_rows.blocks(entries, [], "samples_per_s")
    accepted = acceptance.judge(
        criteria_file.load("mlperf_storage_v2"), [judged.repeats("au", [0.5, 0.9, 0.7], storage=judged.storage(None))]
    )
    compared = baseline_comparison.judge([entries[-1]], entries, [nights.accepted(entries[0])])
    return {
        "job": job_page.of_jobs([job], [{}]),
        "study": study_page.of_study(report),
        "log": log_page.of_logs([log_file(LOGS / "mpi4_dxtpartial.darshan")]),
        "history": history_page.of_history(
            blocks, "samples_per_s", "/lustre/orion/gen150/proj-shared/dlio-runs/archive"
        ),
        "compare": regression_page.of_judgement(compared),
        "accept": acceptance_page.of_acceptance(accepted),
    }


@browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("is_dark", [False, True])
def test_no_page_breaks_a_word_or_is_wider_than_the_window(tmp_path: Path, width: int, is_dark: bool) -> None:
    pages = {name: html_page.render(made) for name, made in _pages(tmp_path).items()}
    for name, measured in zip(
        pages, _measured(tmp_path / "all.html", list(pages.values()), width, is_dark), strict=True
    ):
        assert (name, measured["width"], measured["broken"], measured["wide"]) == (name, width, [], False)
        assert _contrast(measured["colours"]) >= 4.5, (name, measured["colours"])
        bright = sum(map(int, measured["colours"][1].removeprefix("rgb(").removesuffix(")").split(",")))
        assert (bright < 382) == is_dark


@browser
def test_the_browser_would_have_found_a_broken_word(tmp_path: Path) -> None:
    html = html_page.render(_pages(tmp_path)["job"]).replace("word-break: normal", "word-break: break-all")
    (measured,) = _measured(tmp_path / "bad.html", [html], 390, False)
    assert measured["broken"]


def test_states_have_a_colour_on_the_terminal_and_on_the_page() -> None:
    template = Path("templates/report.html.j2")
    text = (ROOT / template).read_text()
    for state in get_args(State):
        assert state in banner.COLOURS
        assert f"p.banner.{state.replace(' ', '-')} {{" in text


def test_two_sides_report_pairs(tmp_path: Path) -> None:
    """The banner and the table of pairs use the same estimate."""
    made = two_sides(tmp_path)
    measured = studies.measured(made, _noisy(made, [100, 80], 0.01))
    (effect,) = file_system_pairs.effects(made, measured)
    assert (
        f"{effect.ratio:.3g}"
        in _opening(made, [measurement._replace(origin="storage") for measurement in measured]).text
    )


@pytest.mark.parametrize(
    ("outcome", "code", "line"),
    [
        ("pass", 0, "Good: Saves slow training by 2 x. night: pass."),
        ("fail", 3, "Bad: Saves slow training by 2 x. night: fail."),
        ("not_comparable", 2, "Inconclusive: Saves slow training by 2 x. night: not_comparable."),
        ("cached", 4, "Not measured: night: cached. Saves slow training by 2 x."),
        ("invalid", 6, "Bad: night: invalid. Saves slow training by 2 x."),
    ],
)
def test_a_suite_of_mixes_opens_with_who_slows_whom(outcome: Outcome, code: int, line: str) -> None:
    """What keeps the measurements from being used comes before them."""
    judgement, accepted = Judgement((), outcome, code, ""), acceptance.judge(Criteria(name="none"), [])
    verdict = SuiteVerdict(f"night: {outcome}", outcome, code, judgement, accepted, ())
    assert verdict_banners.of_suite(verdict, "Saves slow training by 2 x.").line == line
    assert verdict_banners.of_suite(verdict).text == f"night: {outcome}."
