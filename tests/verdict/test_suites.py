"""A suite is a study with a verdict at its end, and a line for a mail's subject."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from msgspec.structs import replace

from dlio_hpc.analysis.study import file_system_pairs
from dlio_hpc.base import units
from dlio_hpc.config import shipped, site
from dlio_hpc.files import archive
from dlio_hpc.plan import study, study_file
from dlio_hpc.records.outcomes import OUTCOMES, Outcome
from dlio_hpc.reports import ab_rows
from dlio_hpc.verdict import acceptance, baseline_comparison, criteria_file, suite, validity_criteria
from dlio_hpc.verdict.acceptance import Acceptance
from dlio_hpc.verdict.baseline_comparison import Judgement
from dlio_hpc.verdict.baselines import Accepted
from tests.conftest import BIN, Run
from tests.support import nights, studies
from tests.support.judged import KEY, repeats

_SUITE = """
name: tiny
workload: small.yaml
repeat: 3
set: {reader.direct: true, compute.time: 50 ms, dataset.sample: {bytes: 64 KiB}}
parts: {one: {}, two: {set: {reader.read_threads: 3}}}
verdict: {criteria: mine.yaml, tolerance: 60 %}
"""
_CRITERIA = """
name: mine
criteria: {shape: {min_steps: 1, min_measured_runs: 3}}
"""


@pytest.mark.parametrize("name", shipped.names(shipped.SUITES))
@pytest.mark.parametrize("machine", ["local", "slurm"])
def test_each_shipped_suite_is_planned_and_its_criteria_are_there(run: Run, name: str, machine: str) -> None:
    done = run("dlio-submit", "--suite", name, "-s", machine, "-d", "data", "-t", "12h", "--dry-run", "--json")
    assert done.code == 0, done.err
    script = done.json["jobs"][0]["script"]
    assert ("#SBATCH --nodes=" in script) == (machine == "slurm")
    asked = study_file.load(str(shipped.find(shipped.SUITES, name))).verdict
    assert asked is not None
    assert asked.criteria is not None
    assert criteria_file.load(asked.criteria).name == name


def test_a_suite_is_small_on_a_laptop_and_whole_elsewhere(tmp_path: Path) -> None:
    file = study_file.load(str(shipped.find(shipped.SUITES, "nightly")))
    small = study.make(
        "s", study_file.asked_of(file, site.load("local"), study_file.FileChanges()), study.JobRequest(tmp_path)
    )
    assert max(point.workload.dataset.size for point in small.points) <= 1 << 30
    whole = study_file.asked_of(file, site.load("slurm"), study_file.FileChanges(full=True))
    assert {part.nodes for part in whole} == {(2,)}
    assert whole[1].dataset_size == 64 << 30


def _study(folder: Path, folders: tuple[str, ...] = ()) -> study.Study:
    made = studies.make(folder, studies.asked(folders=folders), name="nightly-20261121-010203-abcdef", repeat=4)
    return replace(made, verdict=study.Judging(tolerance=units.Share(0.05)))


def _judged(*verdicts: tuple[Outcome, float | None]) -> Judgement:
    return baseline_comparison.summed(
        [
            baseline_comparison.Verdict(
                f"job-{number}",
                "samples_per_s",
                outcome,
                OUTCOMES[outcome].exit_code,
                "why",
                0.02,
                ratio=ratio,
                before=1,
            )
            for number, (outcome, ratio) in enumerate(verdicts)
        ]
    )


def _accepted(absent: Sequence[validity_criteria.Absent] = ()) -> Acceptance:
    return acceptance.judge(criteria_file.Criteria(name="x"), [repeats("samples_per_s", [100.0] * 3)], absent)


@pytest.mark.parametrize(
    ("outcomes", "missing", "code", "word"),
    [
        ((("pass", 1.0),), 0, 0, "pass"),
        ((("not_comparable", None),), 0, 0, "pass; no baseline"),
        ((("pass", 1.0), ("regression", 0.9)), 0, 1, "regression"),
        ((("inconclusive", 0.9), ("pass", 1.0)), 0, 5, "inconclusive"),
        ((("inconclusive", 0.9), ("regression", 0.8)), 0, 1, "regression"),
        ((("cached", None), ("regression", 0.8)), 0, 4, "cached"),
        ((("invalid", None), ("cached", None)), 0, 3, "invalid"),
        ((("pass", 1.0),), 2, 7, "incomplete; 1 pass (tolerance 2 %); criteria: "),
        ((("infrastructure", None),), 3, 6, "infrastructure"),
        ((("infrastructure", None), ("invalid", None), ("bug", None)), 0, 70, "bug"),
    ],
)
def test_the_gravest_is_the_verdict(tmp_path: Path, outcomes: Any, missing: int, code: int, word: str) -> None:
    absent = [validity_criteria.Absent("", number, None, "lost") for number in range(missing)]
    outcome = suite.judge(_study(tmp_path), _judged(*outcomes), _accepted(absent), (), ())
    assert outcome.exit_code == code
    assert outcome.summary.startswith(f"nightly on local: {word}")
    assert "\n" not in outcome.summary


def test_a_suite_that_is_its_own_baseline_is_judged_by_its_criteria_alone(tmp_path: Path) -> None:
    itself = replace(_judged(("inconclusive", 1.0)).verdicts[0], before=0)
    outcome = suite.judge(_study(tmp_path), baseline_comparison.summed([itself]), _accepted(), (), ())
    assert (outcome.exit_code, outcome.outcome) == (0, "pass")
    assert "; it is the baseline itself, so nothing is compared; criteria: " in outcome.summary
    mixed = baseline_comparison.summed([itself, *_judged(("regression", 0.8)).verdicts])
    assert suite.judge(_study(tmp_path), mixed, _accepted(), (), ()).exit_code == 1


def test_a_regression_is_named_in_the_summary(tmp_path: Path) -> None:
    outcome = suite.judge(_study(tmp_path), _judged(("regression", 0.93), ("regression", 0.8)), _accepted(), (), ())
    assert "-20.0 %" in outcome.summary
    assert len(outcome.summary) < 120


def _baseline(**key: Any) -> Accepted:
    return nights.accepted(nights.entry(0, [100.0], replace(KEY, **key)))


def test_a_baseline_of_another_key_is_no_silent_pass(tmp_path: Path) -> None:
    """After an upgrade, or with other nodes, the accepted baseline no longer holds, and the summary says so."""
    verdict = baseline_comparison.Verdict(
        "job", "samples_per_s", "not_comparable", 2, "why", 0.02, key=KEY, reference="old"
    )
    judged = baseline_comparison.summed([verdict])
    outcome = suite.judge(_study(tmp_path), judged, _accepted(), (), [_baseline(version="0.9")])
    assert (outcome.exit_code, outcome.is_first) == (2, False)
    assert "not comparable; all baselines are of other configurations" in outcome.summary
    for renamed in ({"site": "other"}, {"workload": "other"}):
        assert suite.judge(_study(tmp_path), judged, _accepted(), (), [_baseline(**renamed)]).exit_code == 2
    unlike = _baseline(workload="other", settings="1" * 12)
    assert suite.judge(_study(tmp_path), judged, _accepted(), (), [unlike]).exit_code == 0


def test_a_suite_names_what_it_no_longer_measures(tmp_path: Path) -> None:
    made = _study(tmp_path)
    lost = _baseline(site="local", nodes=7)
    lost = replace(lost, group=replace(lost.group, study=made.study))
    outcome = suite.judge(made, _judged(("pass", 1.0)), _accepted(), (), [lost])
    assert (outcome.exit_code, outcome.outcome) == (7, "incomplete")
    assert f"; not measured although it has a baseline: {lost.group.key.title}; retire" in outcome.summary


def test_sides_with_different_metrics_are_all_judged(tmp_path: Path) -> None:
    """No effect covers all settings: an open one must not hide behind one that shows no difference."""
    effect = file_system_pairs.PairedEffect("read", "samples_per_s", 4, 1.0, 0.6, (0.6,), 0.6, 0.2, 2.0, None)
    writing = replace(effect, setting="write", metric="checkpoint_write_MBps", ratio=1.0, low=0.99, high=1.01)
    made = _study(tmp_path, ("/old", "/new"))
    for effects in ((effect, writing), (writing, effect)):
        outcome = suite.judge(made, _judged(("pass", 1.0)), _accepted(), effects, ())
        assert outcome.exit_code == 5
        assert "B / A " in outcome.summary
        text = ab_rows.verdict(made, effects)
        assert text.count("No difference beyond noise between A and B") == 2
    assert suite.judge(made, _judged(("pass", 1.0)), _accepted(), (writing, writing), ()).exit_code == 0


@pytest.mark.parametrize(
    ("values", "sd", "code"),
    [((100, 90), 0.002, 1), ((100, 97), 0.002, 0), ((100, 120), 0.002, 0), ((100, 100), 0.2, 5), ((100, 100), 0.0, 5)],
)
def test_a_new_file_system_must_not_be_slower_beyond_the_tolerance(
    tmp_path: Path, values: tuple[float, float], sd: float, code: int
) -> None:
    """The verdict is inconclusive if the noise is too large, or if it is 0 and so unknown."""
    made = _study(tmp_path, ("/old", "/new"))
    noise = np.random.default_rng(1).normal(0, sd, (2, 4))
    measured = studies.measured(made, lambda point, repeat: float(values[point] * np.exp(noise[point, repeat])))
    outcome = suite.judge(made, _judged(("pass", 1.0)), _accepted(), file_system_pairs.effects(made, measured), ())
    assert outcome.exit_code == code
    assert "B / A" in outcome.summary


@pytest.fixture
def tiny(small: Path, tmp_path: Path) -> Path:
    assert small == tmp_path / "small.yaml"
    (tmp_path / "suite.yaml").write_text(_SUITE)
    (tmp_path / "mine.yaml").write_text(_CRITERIA)
    return tmp_path


def test_night_after_night(run: Run, tiny: Path) -> None:
    """A night without a baseline is accepted, later ones are compared with it; the first line is a mail's subject."""
    asked = ("dlio-submit", "--suite", "suite.yaml", "-s", "local", "--ppn", 1, "--wait")
    first = run(*asked, "--quiet", "--junit", "night.xml")
    assert first.code == 0, first.out + first.err
    (report,) = ElementTree.parse(tiny / "night.xml").getroot()
    assert (report.get("errors"), report.get("failures")) == ("0", "0"), "a first night without a baseline is no error"
    assert "dlio-hpc.accept" in {case.get("classname") for case in report}
    assert first.out.splitlines()[0].startswith("Good: tiny on local: pass; no baseline; criteria: ")
    assert "dlio-hpc baseline accept" in " ".join(first.out.split())
    name = next(path.name for path in (tiny / "dlio-runs").iterdir() if (path / "job.json").exists())
    assert run("dlio-hpc", "baseline", "accept", name, "--message", "first night").code == 0
    second = run(*asked, "--json")
    verdict = second.json["verdict"]
    assert second.code == verdict["exit_code"]
    assert len(verdict["comparisons"]) == 2
    assert {one["outcome"] for one in verdict["comparisons"]} <= {"pass", "improved", "inconclusive"}
    assert all(one["there"]["values"] for one in verdict["comparisons"])
    again = run("dlio-hpc", "wait", second.json["study"])
    assert again.out.splitlines()[0].endswith(f": {verdict['summary']}.")
    assert run("dlio-hpc", "accept", second.json["study"]).code == 0
    job = max((path for path in (tiny / "dlio-runs").iterdir() if (path / "job.json").exists()), key=_submitted)
    for named in (second.json["study"], job, tiny / "dlio-runs" / "archive" / (job.name + archive.SUFFIX)):
        done = run("dlio-hpc", "compare", named, "--json")
        assert done.code in (0, 5), done.out + done.err
        compared = done.json["verdicts"]
        assert {one["tolerance"] for one in compared} == {0.6}, named
    asked_for = run("dlio-hpc", "compare", job, "--tolerance", "7%", "--json").json["verdicts"]
    assert {one["tolerance"] for one in asked_for} == {0.07}
    shutil.rmtree(job)
    assert {one["tolerance"] for one in run("dlio-hpc", "compare", job.name, "--json").json["verdicts"]} == {0.6}


def _submitted(folder: Path) -> float:
    return (folder / "plan.json").stat().st_mtime


def test_a_cached_suite_is_no_pass(run: Run, tiny: Path) -> None:
    done = run(
        "dlio-submit", "--suite", "suite.yaml", "-s", "local", "--ppn", 1, "--wait", "-S", "reader.direct=false",
        "--repeat", 3, "--junit", "cached.xml",
    )  # fmt: skip
    assert done.code == 4, done.out
    cases = ElementTree.parse(tiny / "cached.xml").getroot()[0]
    assert "cached" in {error.get("type") for case in cases for error in case.findall("error")}
    assert done.out.splitlines()[0].startswith("Not measured: tiny on local: cached")
    assert "-S reader.direct=true" in done.out


def test_a_suite_may_stand_where_a_workload_does(run: Run) -> None:
    done = run("dlio-submit", "nightly", "-s", "local", "--ab", "a", "b", "--dry-run", "--json")
    assert done.code == 0, done.err
    assert "nightly" in done.json["study"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("verdict: {criteria: nowhere}", "no criteria 'nowhere'"),
        ("verdict: {tolerance: 3}", "tolerance"),
        ("verdict: {metrics: [speed]}", "metrics"),
    ],
)
def test_a_suite_that_cannot_be_judged_is_refused_before_it_runs(run: Run, tiny: Path, text: str, message: str) -> None:
    (tiny / "suite.yaml").write_text(_SUITE.partition("verdict:")[0] + text + "\n")
    done = run("dlio-submit", "--suite", "suite.yaml", "-s", "local")
    assert done.code == 2
    assert message in done.err
    assert not (tiny / "dlio-runs").exists()


def test_reframe_runs_the_shipped_test(tiny: Path) -> None:
    """ReFrame from PyPI runs on the local site; with a baseline its references are the baseline's."""
    reframe = shutil.which("reframe", path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    assert reframe is not None
    test = shipped.root() / "share" / "reframe" / "dlio_hpc_suite.py"
    report = tiny / "report.json"
    asked = [
        reframe, "-c", str(test), "-r", "-S", f"suite={tiny / 'suite.yaml'}", "-S", "passing=0,5", "-S",
        "options=--ppn 1", f"--report-file={report}",
    ]  # fmt: skip
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(tiny)}
    done = subprocess.run(asked, cwd=tiny, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (case,) = json.loads(report.read_text())["runs"][0]["testcases"]
    assert case["result"] == "pass"
    assert {"one", "two"} <= {name.rpartition(":")[2] for name in case["perfvalues"]}, case["perfvalues"]
    assert (tiny / "dlio-runs" / "archive").is_dir()
