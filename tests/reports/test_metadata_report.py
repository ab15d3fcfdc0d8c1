"""What commands print about metadata workloads."""

import re
from pathlib import Path

import pytest
from msgspec import structs

from dlio_hpc.config import site, workload
from dlio_hpc.records.job_outcome import RunOutcome
from dlio_hpc.reports import job_banner, job_rows
from dlio_hpc.reports.banner import Banner
from dlio_hpc.results.phases import Phase
from dlio_hpc.results.run_result import PhaseSummary, SlowestRank
from tests.conftest import Run
from tests.support import planning, studies

_SMALL = ("-S", "metadata.files=60", "-S", "train.epochs=2")


@pytest.mark.job
def test_a_job_with_repeats_is_shown_by_phases(run: Run, tmp_path: Path) -> None:
    made = run("dlio-submit", "metadata_own", "-s", "local", "--ppn", 2, "--repeat", 3, *_SMALL, "--wait", "--json")
    shown = run("dlio-hpc", "report", made.job["job"])
    lines = shown.out.splitlines()
    assert lines[0].startswith("Not measured: 3 of 3 measured runs: ")
    rates = r"([\d,]+)\s+"
    assert max(len(line) for line in lines if line.startswith(("phase ", "create", "open_read_close"))) <= 80
    rows = [match for line in lines if (match := re.match(rf"(\w+)\s+{rates}{rates}{rates}\d+ %$", line))]
    assert [row[1] for row in rows] == ["create", "stat", "open_read_close", "unlink"]
    for row in rows:
        median, lowest, highest = (int(row[number].replace(",", "")) for number in (2, 3, 4))
        assert 0 < lowest <= median <= highest
    assert "samples" not in shown.out
    page = tmp_path / "page.html"
    assert run("dlio-hpc", "report", made.job["job"], "--html", page).code == 0
    assert page.read_text().count("Rates and latencies of operations") >= 1
    assert "Nothing was read or written" not in page.read_text()
    (tmp_path / "c.yaml").write_text("name: c\ncriteria: {rate: {min_create_per_s: 1}}\n")
    accepted = run("dlio-hpc", "accept", made.job["job"], "--criteria", "c.yaml")
    assert "operations that the servers of the file system answered" in " ".join(accepted.out.split())
    assert "each epoch" not in accepted.out
    history = run("dlio-hpc", "history")
    assert "create/s" in history.out
    assert "samples" not in history.out
    assert "checkpoints" not in history.out


@pytest.mark.job
def test_a_study_compares_rates_of_phases(run: Run) -> None:
    made = run(
        "dlio-submit", "metadata_own", "-s", "local", "--sweep", "metadata.folders=own,shared", "--repeat", 2, *_SMALL,
        "--wait",
    )  # fmt: skip
    assert re.search(r"folders\s+n\s+create/s\s+stat/s\s+open_read_close/s\s+unlink/s", made.out)
    assert "samples" not in made.out


def test_a_good_run_says_what_the_servers_answered(tmp_path: Path) -> None:
    """Three nodes with a rank each made three of seven operations in the second of two phases, twice."""
    made = workload.load("metadata_own", ("metadata.files=7", "metadata.phases=[create, stat]"))
    request = planning.Request(runs=tmp_path, data=tmp_path / "data", nodes=3, ranks_per_node=1)
    plan = planning.make(made, site.load("slurm"), request)
    run = plan.runs[-1]

    def banner(operations: int) -> Banner:
        slowest = SlowestRank(rank=0, host="a", busy_s=1.0, ratio=1.0)
        phases = (
            PhaseSummary("create", 42, 10.0, 11.0, (9.0, 11.0), 1.0, None, slowest),
            PhaseSummary("stat", operations, 10.0, 11.0, (9.0, 11.0), 1.0, None, slowest),
        )
        result = studies.result(plan, run, 1.0, {"metadata": phases})
        measured = RunOutcome(run, structs.replace(result, file_system="lustre"), None, None)
        assert measured.storage is not None
        assert measured.storage.outcome() == "storage"
        return job_banner.of_writing([measured])

    assert banner(42).text == (
        "84 operations on files and directories as planned; the servers of the file system answered: no node used a "
        "file in two phases."
    )
    assert banner(18).text.startswith(
        "60 operations on files and directories, of which metadata.time_limit ended stat; the servers"
    )


def test_phases_of_a_few_milliseconds_are_named(tmp_path: Path) -> None:
    made = workload.load("metadata_own", ("metadata.files=7", "metadata.phases=[create, stat, unlink]"))
    request = planning.Request(runs=tmp_path, data=tmp_path / "data", nodes=3, ranks_per_node=1)
    plan = planning.make(made, site.load("slurm"), request)
    run, slowest = plan.runs[-1], SlowestRank(rank=0, host="a", busy_s=1.0, ratio=1.0)
    lasted: dict[Phase, float] = {"create": 0.04, "stat": 0.01, "unlink": 0.1}
    phases = tuple(
        PhaseSummary(phase, 42, 42 / wall_s, 42 / wall_s, (42 / wall_s,), wall_s, None, slowest)
        for phase, wall_s in lasted.items()
    )
    result = studies.result(plan, run, 1.0, {"metadata": phases})
    assert result.summary is not None
    text = dict(job_rows.facts(RunOutcome(run, result, None, None), result.summary))["short"]
    assert text.startswith("create 40 ms, stat 10 ms: ranks start a phase within some milliseconds")
    assert text.endswith("-S metadata.files=70")
