"""What commands print about metadata workloads."""

import re

import pytest

from tests.conftest import Run

_SMALL = ("-S", "metadata.files=60", "-S", "train.epochs=2")


@pytest.mark.job
def test_a_job_with_repeats_is_shown_by_phases(run: Run) -> None:
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
    history = run("dlio-hpc", "history")
    assert "create/s" in history.out
    assert "samples" not in history.out


@pytest.mark.job
def test_a_study_compares_rates_of_phases(run: Run) -> None:
    made = run(
        "dlio-submit", "metadata_own", "-s", "local", "--sweep", "metadata.folders=own,shared", "--repeat", 2, *_SMALL,
        "--wait",
    )  # fmt: skip
    assert re.search(r"folders\s+n\s+create/s\s+stat/s\s+open_read_close/s\s+unlink/s", made.out)
    assert "samples" not in made.out
