"""characterize --check has a verdict: its first line, its exit code, and what was not derived from the log."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dlio_hpc.base.errors import InfrastructureError
from dlio_hpc.cli import characterize_check
from dlio_hpc.programs import emulation_check
from dlio_hpc.programs.characterize import characterize
from dlio_hpc.programs.emulation_check import CheckVerdict
from dlio_hpc.programs.reports import check_page, program_profiles, similarity_page
from dlio_hpc.programs.similarity import io_profile, similarity
from dlio_hpc.programs.similarity.io_profile import MEASURED, Profile
from tests.conftest import Run
from tests.programs.test_characterize import MIB, Call, _in_batches, _log
from tests.support.places import LOGS

KIB = 1024
_PATTERN: dict[str, Any] = {
    "request_min": 512, "request_max": 65536, "request_mean": 32768, "request_median": 65536, "sequential": 0.9,
    "consecutive": 0.8,
}  # fmt: skip


def _profile(**changes: Any) -> Profile:
    return Profile("x", "job", "", "Darshan's trace (DXT)", **{**_PATTERN, **changes})


def _judged(log: Profile, run: Profile, tolerance: float = 0.95) -> CheckVerdict:
    return emulation_check.judge(similarity.compare(log, run), tolerance)


def _line(log: Profile, run: Profile, tolerance: float = 0.95) -> str:
    return check_page.banner_of(_judged(log, run, tolerance), run).line


def test_a_run_below_the_tolerance_fails_and_the_largest_difference_is_named_first() -> None:
    log, run = _profile(request_median=4096, sequential=0.6), _profile()
    verdict = _judged(log, run)
    assert (verdict.outcome, verdict.exit_code) == ("fail", 1)
    assert [factor.name for factor in verdict.differing] == ["request_median", "sequential"]
    assert _line(log, run) == (
        "Bad: pattern similarity 0.788 is below 0.95: median request size (4 KiB against 64 KiB), share of sequential "
        "requests (60.00 % against 90.00 %) differ."
    )


def test_a_run_that_reaches_the_tolerance_passes() -> None:
    assert _line(_profile(), _profile()) == "Good: pattern similarity 1.000, at least 0.95."
    assert _judged(_profile(), _profile(), 1.0).exit_code == 0
    one = _profile(request_mean=32768 * 0.9)
    assert _line(one, _profile()) == (
        "Good: pattern similarity 0.983, at least 0.95, but mean request size (28.8 KiB against 32 KiB) differs."
    )
    assert _judged(one, _profile(), 0.99).exit_code == 1


def test_one_factor_that_agrees_is_no_verdict_but_one_that_differs_is() -> None:
    nothing = dict.fromkeys(_PATTERN)
    one, two = (
        _profile(**{**nothing, **part}) for part in ({"sequential": 0.9}, {"sequential": 0.9, "request_max": 9})
    )
    verdict = _judged(one, _profile())
    assert (verdict.outcome, verdict.exit_code, verdict.similarity) == ("incomplete", 7, 1.0)
    assert _line(one, _profile()) == (
        "Not measured: too few factors are compared for a verdict: pattern similarity 1.000; 1 of 6 factors are "
        "compared."
    )
    assert _judged(two, replace(two)).exit_code == 0
    assert _judged(one, _profile(sequential=0.5)).exit_code == 1


@pytest.mark.parametrize("least", [0.9, 0.95, 0.96, 0.983])
def test_a_score_never_seems_to_be_on_the_other_side(least: float) -> None:
    """A score that rounds to the tolerance is shown with more digits."""
    log = _profile(request_mean=32768 * (1 - 6 * (1 - least) - 6e-5))
    verdict = _judged(log, _profile(), least)
    shown = float(_line(log, _profile(), least).split()[3].rstrip(","))
    assert verdict.outcome == "fail"
    assert shown < least


@pytest.mark.parametrize("tolerance", [0.0, 0.5, 0.9, 0.95, 0.999, 1.0])
def test_a_failed_check_always_names_a_factor(tolerance: float) -> None:
    log = _profile(**{name: value * 0.94 for name, value in _PATTERN.items()})
    verdict = _judged(log, _profile(), tolerance)
    assert (verdict.outcome == "fail") == bool(verdict.differing)
    assert verdict.exit_code == (1 if tolerance > 0.94 else 0)


def test_without_anything_to_compare_nothing_is_measured() -> None:
    bare = Profile("x", "job", "", MEASURED)
    verdict = _judged(_profile(), bare)
    assert (verdict.outcome, verdict.exit_code, verdict.similarity) == ("incomplete", 7, None)
    assert _line(_profile(), bare).startswith("Not measured: nothing can be compared")


def test_a_good_verdict_by_few_factors_says_so() -> None:
    run = Profile("x", "job", "", MEASURED, request_max=65536, request_mean=32768)
    assert _line(_profile(), run) == (
        "Good: pattern similarity 1.000, at least 0.95; 2 of 6 factors are compared, because the check run has no "
        "Darshan log."
    )


def test_a_run_without_a_log_is_compared_by_its_reads_of_the_dataset(tmp_path: Path) -> None:
    """Its checkpoints are not known by request, and sizes are known to a quarter of an octave."""
    files = [[Call(0, f"/d/{number}.jpg", 0, 100_000, 0.0)] for number in range(40)]
    calls = _in_batches([*files, *files], 4, 0.02)
    calls += [Call(0, "/o/model.pt", 0, 4 * MIB, calls[-1].start + 0.1, write=True)]
    character = characterize.load([_log(tmp_path / "x.darshan", calls, ranks=1)], None, True)
    watched, bare = _profile(), replace(_profile(), source=MEASURED)
    whole, reads = (program_profiles.comparable(character, "log", run) for run in (watched, bare))
    assert (whole.request_max, whole.files) == (4 * MIB, 41)
    assert reads.request_max == pytest.approx(2 ** (66 / 4))
    assert reads.files == 40
    assert reads.request_mean == 100_000
    assert any(note.startswith("reads of the dataset alone") for note in reads.notes)
    binned = io_profile.by_bins(replace(_profile(), request_min=0, around_median=(1000, 65536)))
    assert binned.request_min == 0
    assert list(binned.around_median or ()) == pytest.approx([2 ** (39 / 4), 65536])


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let a check have a profile instead of a job."""

    def become(run: Profile) -> None:
        loaded = program_profiles.load
        monkeypatch.setattr(characterize_check, "_submit", lambda options: Path("the-job"))
        monkeypatch.setattr(
            program_profiles, "load", lambda name, *rest: run if name == "the-job" else loaded(name, *rest)
        )

    return become


def _of_log(log: Path) -> Profile:
    return program_profiles.of_character(characterize.load([log], None, True), "run")


def test_the_command_ends_with_the_verdict(run: Run, emulated: Any) -> None:
    log = LOGS / "mpi4_npz.darshan"
    emulated(_of_log(log))
    good = run("dlio-hpc", "characterize", log, "--force", "--check")
    assert (good.code, good.out.splitlines()[0]) == (0, "Good: pattern similarity 1.000, at least 0.95.")
    emulated(replace(_of_log(log), request_max=2 * MIB, request_mean=MIB))
    bad = run("dlio-hpc", "characterize", log, "--force", "--check")
    assert bad.code == 1
    assert bad.out.startswith(
        "Bad: pattern similarity 0.685 is below 0.95: mean request size (21.87 KiB against 1 MiB)"
    )
    assert run("dlio-hpc", "characterize", log, "--force", "--check", "--tolerance", "0.6").code == 0
    assert run("dlio-hpc", "characterize", log, "--force", "--check", "--tolerance", "60%").code == 0
    emulated(Profile("run", "job", "", MEASURED))
    nothing = run("dlio-hpc", "characterize", log, "--force", "--check")
    assert (nothing.code, nothing.out.startswith("Not measured: ")) == (7, True)


def test_the_document_has_the_verdict(run: Run, emulated: Any) -> None:
    log = LOGS / "mpi4_npz.darshan"
    emulated(replace(_of_log(log), request_mean=MIB))
    done = run("dlio-hpc", "characterize", log, "--force", "--check", "--json")
    check = done.json["check"]
    assert done.code == check["exit_code"] == 1
    assert (check["verdict"], check["tolerance"]) == ("fail", 0.95)
    assert check["similarity"] == check["pattern"]["similarity"] < 0.95
    assert [factor["name"] for factor in check["differing"]] == ["request_mean"]
    assert check["differing"][0]["b"] == MIB
    unknown = {key for key, made in done.json["estimates"].items() if made["confidence"] == "unknown"}
    assert set(check["not_derived"]["keys"]) == unknown


def test_what_was_not_derived_is_told(run: Run, emulated: Any, tmp_path: Path) -> None:
    """A trace through stdio, a library, and keys that a log without a trace does not show."""
    log = LOGS / "apps" / "tf_records.darshan"
    emulated(_of_log(log))
    done = run("dlio-hpc", "characterize", log, "--force", "--check")
    derived = characterize.load([log], None, True).derived.keys
    unknown = [key for key, made in derived.items() if made.confidence == "unknown"]
    (line,) = (line for line in done.out.splitlines() if line.startswith("Unknown, the workload has defaults: "))
    assert unknown[0] in line
    assert all(f"{key}: " in " ".join(done.out.split()) for key in unknown)
    assert "Not traced: 216 KiB through STDIO." in done.out
    files = [[Call(0, f"/d/{number}.npz", 0, 1000, 0.0)] for number in range(40)]
    calls = [*_in_batches([*files, *files], 4, 0.02), Call(0, "/usr/lib/libc.so", 0, 832, 0.5)]
    counted = _log(tmp_path / "x.darshan", calls, ranks=1, traced=False)
    emulated(_of_log(counted))
    report = " ".join(run("dlio-hpc", "characterize", counted, "--force", "--check").out.split())
    assert "Left out: 1 file, library (program or library, by its path): 832 B read, 0 B written." in report
    assert "Note: derived from counters alone" in report


def test_a_fault_is_no_verdict(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 says that the comparison is not met, and nothing else."""
    assert run("dlio-hpc", "characterize", LOGS / "mpi4_npz_truncated.darshan", "--check").code == 3
    assert run("dlio-hpc", "characterize", "nowhere.darshan", "--check").code == 2
    assert run("dlio-hpc", "characterize", LOGS / "apps" / "heat.darshan", "--check").code == 2

    def fail(options: Any) -> Path:
        raise InfrastructureError("the node is gone")

    monkeypatch.setattr(characterize_check, "_submit", fail)
    done = run("dlio-hpc", "characterize", LOGS / "mpi4_npz.darshan", "--force", "--check")
    assert (done.code, done.out) == (6, "")


def test_the_tolerance_is_a_share_and_not_the_one_of_compare(run: Run, emulated: Any) -> None:
    log = LOGS / "mpi4_npz.darshan"
    assert "default: 0.95" in run("dlio-hpc", "characterize", "--help").out
    for value in ("1.5", "-1", "much"):
        assert run("dlio-hpc", "characterize", log, "--force", "--check", "--tolerance", value).code == 2
    emulated(replace(_of_log(log), request_mean=MIB))
    assert run("dlio-hpc", "characterize", log, "--force", "--check", DLIO_HPC_TOLERANCE="2%").code == 1


@pytest.mark.parametrize(
    ("score", "state"), [(0.2, "bad"), (0.698, "inconclusive"), (0.93, "inconclusive"), (0.999, "good")]
)
def test_the_banner_of_a_pair_states_its_score_and_the_ranges(score: float, state: str) -> None:
    """With bytes per sample, published pairs of different applications have up to 0.910."""
    compared = similarity.compare(_profile(bytes_per_sample=1.0), _profile(bytes_per_sample=1.0))
    opening = similarity_page.banner_of_pair(
        replace(compared, pattern=replace(compared.pattern, ratio=score)), similarity.yardsticks()
    )
    assert opening.state == state
    assert f"Pattern similarity {score:.3f} " in opening.text
    assert "0.664 to 1.000" in opening.text
    assert "range of the same application" not in opening.text
