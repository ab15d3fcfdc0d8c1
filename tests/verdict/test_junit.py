"""Verdicts are written as JUnit's XML."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_hpc.batch.schedulers.scheduler import State
from dlio_hpc.records import job_outcome
from dlio_hpc.reports import junit_cases
from dlio_hpc.verdict import junit
from dlio_hpc.verdict.junit import Case
from tests.conftest import Run
from tests.support import studies

_KINDS = st.sampled_from(["pass", "failure", "error", "skipped"])
_CASES = st.builds(Case, st.text(), st.text(), _KINDS, st.text(), st.text(), st.text(), st.floats(0, 1e6))


def test_kinds_are_elements_with_their_type_message_and_evidence() -> None:
    cases = [
        Case("cosmoflow", "compare", "pass", "", "pass", "ratio 1.00", 1.5),
        Case("unet3d", "compare", "failure", "regression", "5 % less", "100 -> 95", 2),
        Case("resnet50", "compare", "error", "cached", "from memory", "", 0),
        Case("bert", "compare", "skipped", "", "not today", "", 0),
    ]
    root = ElementTree.fromstring(junit.document("nightly", cases))
    (suite,) = root
    assert root.tag == "testsuites"
    assert {name: suite.get(name) for name in ("name", "tests", "failures", "errors", "skipped", "time")} == {
        "name": "nightly", "tests": "4", "failures": "1", "errors": "1", "skipped": "1", "time": "3.500",
    }  # fmt: skip
    fine, failed, error, skipped = suite
    assert (fine.get("name"), fine.get("classname"), fine.get("time")) == ("cosmoflow", "compare", "1.500")
    assert [(element.tag, element.text) for element in fine] == [("system-out", "ratio 1.00")]
    assert [(element.tag, element.attrib, element.text) for element in failed] == [
        ("failure", {"type": "regression", "message": "5 % less"}, "100 -> 95")
    ]
    assert [(element.tag, element.get("type")) for element in error] == [("error", "cached")]
    assert [(element.tag, element.attrib) for element in skipped] == [("skipped", {"message": "not today"})]


@given(st.text(), st.lists(_CASES))
def test_any_text_makes_xml_that_can_be_read(suite: str, cases: list[Case]) -> None:
    root = ElementTree.fromstring(junit.document(suite, cases))
    assert len(root[0]) == len(cases)
    assert [len(list(case)) for case in root[0] if case.find("failure") is not None] == [
        1 for case in cases if case.kind == "failure"
    ]


def test_control_characters_are_told_as_such() -> None:
    root = ElementTree.fromstring(junit.document("s", [Case("a\x00b\x1b", "c", "failure", "t", "m\ud800", "é\n", 0)]))
    (case,) = root[0]
    assert case.get("name") == "a\ufffdb\ufffd"
    assert case[0].get("message") == "m\ufffd"
    assert case[0].text == "é\n"


def test_each_run_of_a_job_is_a_case(tmp_path: Path) -> None:
    folder = studies.write(studies.make(tmp_path / "runs", studies.asked()), lambda *_: 50.0)
    cases = junit_cases.of_jobs(job_outcome.load_all([folder]))
    assert {case.kind for case in cases} == {"pass"}
    generate, *measured = cases
    assert (generate.name, len(measured)) == ("00-generate", 3)
    assert measured[0].seconds == 10
    assert "samples/s: 50\n" in measured[0].text
    assert f"log: {tmp_path}/runs/tune/job.err" in measured[0].text


@pytest.mark.parametrize(("state", "kind"), [
    ("failed", "infrastructure"), ("timeout", "incomplete"), ("completed", "invalid"), ("running", "incomplete"),
])  # fmt: skip
def test_a_run_without_a_result_is_an_error_with_its_reason(tmp_path: Path, state: State, kind: str) -> None:
    made = studies.make(tmp_path / "runs", studies.asked())
    folder = studies.write(made, lambda _, repeat: None if repeat == 2 else 50.0, state)
    (folder / "job.err").write_text("no such device\n")
    cases = [case for case in junit_cases.of_jobs(job_outcome.load_all([folder])) if case.kind != "pass"]
    assert [(case.kind, case.type) for case in cases] == [("error", kind)]
    assert "job tune" in cases[0].message
    assert "no such device" in cases[0].text


def test_a_fault_of_the_job_alone_is_a_case_of_its_own(tmp_path: Path) -> None:
    folder = studies.write(studies.make(tmp_path / "runs", studies.asked()), lambda *_: 50.0, "failed")
    *runs, job = junit_cases.of_jobs(job_outcome.load_all([folder]))
    assert {run.kind for run in runs} == {"pass"}
    assert (job.name, job.classname, job.kind, job.type) == ("the job", "tune", "error", "infrastructure")


def _cases(path: Path) -> dict[str | None, str]:
    """Return the name of each case, with its element: passed cases have system-out."""
    return {case.get("name"): case[0].tag for case in ElementTree.parse(path).getroot()[0]}


def test_submit_writes_what_became_of_its_runs(run: Run, small: Path, tmp_path: Path) -> None:
    asked = (
        "dlio-submit", small, "-s", "local", "-d", "data", "--ppn", 1, "--wait", "--quiet", "--junit", "ci/out.xml",
    )  # fmt: skip
    assert run(*asked).code == 0
    assert _cases(tmp_path / "ci/out.xml") == {"00-generate": "system-out", "01-measure": "system-out"}
    (tmp_path / "file").write_text("")
    assert run(*asked, "--archive", "file/archive").code == 6
    assert _cases(tmp_path / "ci/out.xml") == {"submission": "error"}, "the archive cannot be written"
    assert run(*asked, "-S", "site.setup=['exit 9']").code == 6
    assert _cases(tmp_path / "ci/out.xml") == {"00-generate": "error", "01-measure": "error"}
    assert run(*asked, "-S", "reader.no_key=1").code == 2
    assert _cases(tmp_path / "ci/out.xml") == {"submission": "error"}, "no file of an earlier run is left"
    assert "no_key" in (tmp_path / "ci/out.xml").read_text(), "the reason is in the file"


def test_a_junit_file_that_cannot_be_written_is_refused_before_jobs_run(run: Run, tmp_path: Path) -> None:
    done = run("dlio-submit", "demo", "-s", "local", "-d", "data", "--wait", "--junit", "/proc/out.xml")
    assert (done.code, "cannot write /proc/out.xml" in done.err) == (6, True)
    done = run("dlio-submit", "demo", "-s", "local", "-d", "data", "--junit", "out.xml")
    assert (done.code, "--junit needs --wait" in done.err) == (2, True)
    done = run("dlio-submit", "demo", "-s", "local", "-d", "data", "--dry-run", "--wait", "--junit", "out.xml")
    assert done.code == 0
    assert not list(tmp_path.iterdir()), "nothing is written"
