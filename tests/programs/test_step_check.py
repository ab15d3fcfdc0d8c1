"""characterize --check of a recording: steps of the program against those of a run."""

from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.cli import characterize_check
from dlio_hpc.programs import emulated_steps, step_check
from dlio_hpc.programs.characterize import characterize
from dlio_hpc.programs.recordings import recorded_character
from dlio_hpc.programs.reports import check_page, program_profiles
from dlio_hpc.programs.reports.check_page import Checked, NotDerived
from dlio_hpc.programs.step_check import KeptBytes, StepProfile, StepVerdict
from tests.conftest import Run
from tests.support.places import LOGS

RECORDING = LOGS / "recorded" / "torch_loader" / "recording"
_PROGRAM = StepProfile(steps=40, bytes=600_000, compute_s=0.03, wait_s=0.002)


def _judged(tolerance: float = 0.95, program: StepProfile = _PROGRAM, **changes: float) -> StepVerdict:
    run: Any = _PROGRAM._asdict() | changes
    return step_check.judge(program, StepProfile(**run), tolerance)


def _line(verdict: StepVerdict) -> str:
    return check_page.banner_of_both(Checked(NotDerived({}, [], 0, []), None, verdict)).line


def test_equal_steps_pass_and_the_sentence_says_what_is_compared() -> None:
    verdict = _judged()
    assert (verdict.outcome, verdict.exit_code, verdict.differing) == ("pass", 0, [])
    assert _line(verdict) == (
        "Good: steps of an epoch, bytes of a step, computation of a step agree with the recorded program within 5 %. "
        "Requests are not compared: there is no log of the program."
    )


@pytest.mark.parametrize(
    ("name", "within", "beyond", "shown"),
    [
        ("steps", 42, 43, "steps of an epoch (40 against 43)"),
        ("steps", 38, 37, "steps of an epoch (40 against 37)"),
        ("bytes", 630_000, 640_000, "bytes of a step (585.9 KiB against 625 KiB)"),
        ("compute_s", 0.0315, 0.0332, "computation of a step (30 ms against 33.2 ms)"),
    ],
)
def test_a_figure_that_differs_by_more_than_the_tolerance_fails(
    name: str, within: float, beyond: float, shown: str
) -> None:
    other: Any = {name: within}
    assert _judged(**other).outcome == "pass"
    other = {name: beyond}
    failed = _judged(**other)
    assert (failed.outcome, failed.exit_code) == ("fail", 1)
    assert [factor.name for factor in failed.differing] == [name]
    assert _line(failed).startswith(f"Bad: {shown} differs.")
    assert _judged(tolerance=0.5, **other).outcome == "pass"


def test_small_differences_of_small_figures_are_none() -> None:
    """The kernel counts messages and small files, too."""
    small = _PROGRAM._replace(bytes=2000, compute_s=0.0002)
    assert step_check.judge(small, small._replace(bytes=2500), 0.95).outcome == "pass"
    assert step_check.judge(small, small._replace(bytes=2600), 0.95).outcome == "fail"
    in_memory = small._replace(bytes=0)
    assert step_check.judge(small._replace(bytes=16_000), in_memory, 0.95).outcome == "pass"
    assert step_check.judge(small._replace(bytes=17_000), in_memory, 0.95).outcome == "fail"
    assert step_check.judge(small, small._replace(compute_s=0.0006), 0.95).outcome == "pass"
    assert step_check.judge(small, small._replace(compute_s=0.0008), 0.95).outcome == "fail"


def test_the_wait_is_shown_and_not_judged() -> None:
    verdict = _judged(wait_s=0.2)
    assert verdict.outcome == "pass"
    (wait,) = (factor for factor in verdict.factors if factor.name == "wait_s")
    assert not wait.is_judged
    assert wait.apart == pytest.approx(0.99)


def test_one_figure_that_agrees_is_no_verdict_but_one_that_differs_is() -> None:
    alone = StepProfile(40, None, None, 0.002)
    verdict = _judged(program=alone)
    assert (verdict.outcome, verdict.exit_code) == ("incomplete", 7)
    assert _line(verdict).startswith("Not measured: too few values of a step are known for a verdict: steps of an")
    assert _judged(program=alone, steps=80).outcome == "fail"
    assert _judged(program=alone._replace(bytes=600_000)).outcome == "pass"
    assert _judged(program=StepProfile(None, None, None, None)).outcome == "incomplete"
    without = _judged(program=StepProfile(40, None, 0.02, 0.002), compute_s=0.02)
    assert without.outcome == "incomplete"
    assert "without the bytes of a step, data are not compared" in _line(without)


def test_a_recording_that_lacks_events_is_in_doubt_and_not_bad() -> None:
    cut = _PROGRAM._replace(bytes=500_000, lost="2 processes were killed", lacking=frozenset({"bytes"}))
    verdict = _judged(program=cut)
    assert (verdict.outcome, verdict.exit_code) == ("incomplete", 7)
    assert _line(verdict).startswith(
        "Not measured: the recording is in doubt: 2 processes were killed; bytes of a step (488.3 KiB against 585.9 "
        "KiB) differs. Record the program again."
    )
    assert _judged(program=cut, bytes=500_000).outcome == "pass"
    other = _judged(program=cut, steps=80)
    assert (other.outcome, _line(other).startswith("Bad: steps of an epoch (40 against 80), bytes")) == ("fail", True)
    assert _judged(program=cut._replace(lacking=frozenset({"steps", "bytes"})), steps=80).outcome == "incomplete"


def test_a_check_names_the_cause_of_bytes_that_differ_and_no_other() -> None:
    kept = _PROGRAM._replace(bytes=300_000, cause="the later passes read nothing")
    assert _line(_judged(program=kept)).startswith(
        "Bad: bytes of a step (293 KiB against 585.9 KiB) differs. The cause: the later passes read nothing. Requests"
    )
    assert "cause" not in _line(_judged(program=kept, bytes=300_000, steps=80))


@pytest.mark.parametrize(
    ("is_in_memory", "epochs", "size"), [(False, 2, 300_000), (False, 1, 600_000), (True, 2, 100), (True, 1, 100)]
)
def test_bytes_of_samples_in_memory_are_those_of_the_passes_that_the_workload_has(
    is_in_memory: bool, epochs: int, size: int
) -> None:
    kept = _PROGRAM._replace(bytes=300_000, kept=KeptBytes(600_000, 100))
    assert kept.compared_with(is_in_memory, epochs).bytes == size
    assert _PROGRAM.compared_with(is_in_memory, epochs) == _PROGRAM


def test_the_settings_of_a_check_determine_which_bytes_are_compared(
    run: Run, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = recorded_character.load(RECORDING)
    steps = mine.steps
    assert steps is not None
    assert steps.bytes is not None
    kept = steps._replace(bytes=steps.bytes / 2, kept=KeptBytes(steps.bytes, 0), cause="kept in memory")
    monkeypatch.setattr(recorded_character, "load", lambda *rest: mine._replace(steps=kept))
    emulated(steps)
    bad = run("dlio-hpc", "characterize", RECORDING, "--check")
    assert (bad.code, "differs. The cause: kept in memory." in bad.out) == (1, True)
    assert run("dlio-hpc", "characterize", RECORDING, "--check", "-S", "train.epochs=1").code == 0
    emulated(steps._replace(bytes=0))
    assert run("dlio-hpc", "characterize", RECORDING, "--check", "-S", "reader.load=memory").code == 0


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let a check have these steps instead of those of a job."""

    def become(steps: StepProfile) -> None:
        monkeypatch.setattr(characterize_check, "_submit", lambda options: Path("the-job"))
        monkeypatch.setattr(emulated_steps, "of_job", lambda *rest: steps)

    return become


def test_the_command_ends_with_the_verdict_on_steps(run: Run, emulated: Any) -> None:
    mine = recorded_character.load(RECORDING).steps
    assert mine is not None
    emulated(mine)
    good = run("dlio-hpc", "characterize", RECORDING, "--check")
    assert (good.code, good.out.startswith("Good: steps of an epoch, bytes of a step")) == (0, True)
    assert "wait of a step" in good.out
    assert "not judged" in good.out
    emulated(mine._replace(steps=16))
    bad = run("dlio-hpc", "characterize", RECORDING, "--check", "--json")
    assert (bad.code, bad.json["check"]) == (1, None)
    check = bad.json["step_check"]
    assert (check["verdict"], check["exit_code"]) == ("fail", 1)
    assert check["summary"].startswith("Bad: steps of an epoch (32 against 16) differs.")
    assert [factor["name"] for factor in check["factors"] if factor["is_judged"]] == ["steps", "bytes", "compute_s"]


_IMAGES = ("dataset.format=jpeg", "reader.loader=native")
_UNDONE = "what the program does to samples, such as decoding, which the workload may not do."


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ((), _UNDONE),
        ((*_IMAGES, "reader.mode=framework"), "decoding. The workload decodes images, too, but not the same images."),
        ((*_IMAGES, "reader.mode=posix"), _UNDONE),
    ],
)
def test_the_wait_depends_on_decoding_as_the_workload_has_it(
    run: Run, emulated: Any, settings: tuple[str, ...], text: str
) -> None:
    steps = recorded_character.load(RECORDING).steps
    assert steps is not None
    emulated(steps)
    options = [part for setting in settings for part in ("-S", setting)]
    done = run("dlio-hpc", "characterize", RECORDING, "--check", *options)
    assert done.code == 0, done.err
    sentence = f"The wait is not judged: it depends on storage, on caches, and on {text}"
    assert sentence in " ".join(done.out.split())


def test_steps_and_requests_have_a_verdict_each_and_the_graver_counts(
    run: Run, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = sorted((LOGS / "recorded" / "torch_loader").glob("*.darshan"))
    mine = recorded_character.load(RECORDING).steps
    assert mine is not None
    assert mine.bytes is not None
    emulated(mine._replace(bytes=2 * mine.bytes))
    same = program_profiles.of_character(characterize.load(logs, None, True), "run")
    monkeypatch.setattr(program_profiles, "load", lambda *rest: same)
    done = run("dlio-hpc", "characterize", RECORDING, *logs, "--check")
    assert done.code == 1
    assert done.out.startswith("Bad: bytes of a step (")
    assert "Good: pattern similarity 1.000" in done.out
    emulated(mine)
    assert run("dlio-hpc", "characterize", RECORDING, *logs, "--check").code == 0


def test_a_loop_of_the_programs_own_has_no_steps_to_compare(run: Run) -> None:
    done = run("dlio-hpc", "characterize", LOGS / "recorded" / "csv_chunks" / "recording", "--check")
    assert done.code == 2
    assert "reads without a loader, so its steps are not recorded; for --check, give a Darshan log" in done.err


@pytest.mark.job
def test_a_recorded_program_is_reproduced_by_a_job(run: Run) -> None:
    """The bytes of a step are the kernel's count of the program's reads, and the job's own count."""
    done = run("dlio-hpc", "characterize", RECORDING, "--check", "--json")
    assert done.code == 0, done.err
    factors = {factor["name"]: factor for factor in done.json["step_check"]["factors"]}
    assert (factors["steps"]["program"], factors["steps"]["run"]) == (32, 32)
    assert 8 * 76_800 <= factors["bytes"]["run"] < 8 * 76_800 * 1.01
    assert factors["compute_s"]["apart"] < 0.05
    assert factors["wait_s"]["run"] > 0
    other = run("dlio-hpc", "characterize", RECORDING, "--check", "--json", "-S", "reader.batch_size=4")
    assert other.code == 1
    assert "steps of an epoch (32 against 64)" in other.json["step_check"]["summary"]
