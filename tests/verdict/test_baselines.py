"""Baselines are decisions: who, when, why. A key has one active baseline, and no decision is ever changed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.files import rundir
from dlio_hpc.plan.study import Judging, Study
from dlio_hpc.verdict import baselines, criteria_file, history
from dlio_hpc.verdict.baselines import Accepted, Decisions, Retired
from dlio_hpc.verdict.history_entry import Entry
from tests.conftest import Run
from tests.support import nights, studies

OTHER = structs.replace(nights.KEY, nodes=4, settings="0" * 12)


def _states(folder: Path) -> list[tuple[str, str]]:
    return [(one.accepted.group.job, one.state) for one in baselines.baselines(baselines.read(folder))]


def test_a_job_becomes_the_baseline_of_each_of_its_keys(tmp_path: Path) -> None:
    made = nights.entry(1, [100.0, 101.0])
    both = structs.replace(made, measurements=(*made.measurements, nights.measurement(2, 50.0, OTHER)))
    one, other = baselines.accept(tmp_path, both, "quiet night")
    assert [decision.group.key for decision in (one, other)] == [nights.KEY, OTHER]
    assert one.group.values("samples_per_s") == (100.0, 101.0)
    assert "@" in one.who
    assert set(map(str, baselines.active(baselines.read(tmp_path)))) == {str(one), str(other)}


def test_the_newest_holds_and_the_others_are_kept(tmp_path: Path) -> None:
    files: dict[Path, bytes] = {}
    for night in range(3):
        baselines.accept(tmp_path, nights.entry(night, [100.0 + night]), "better")
        now = {path: path.read_bytes() for path in (tmp_path / rundir.BASELINES).iterdir()}
        assert files.items() <= now.items()
        files = now
    assert _states(tmp_path) == [("nightly-000", "replaced"), ("nightly-001", "replaced"), ("nightly-002", "active")]
    baselines.retire(tmp_path, "nightly-002", "new disks")
    assert [state for _, state in _states(tmp_path)] == ["replaced", "replaced", "retired"]
    assert baselines.active(baselines.read(tmp_path)) == ()
    with pytest.raises(ConfigError, match="is retired already"):
        baselines.retire(tmp_path, "nightly-002", "again")
    baselines.accept(tmp_path, nights.entry(1, [101.0]), "as before")
    assert _states(tmp_path)[-1] == ("nightly-001", "active")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=12))
def test_at_most_one_a_key_holds_whatever_was_decided(steps: list[tuple[bool, int]]) -> None:
    """Compare with a model that takes one decision after the other."""
    accepted: list[Accepted] = []
    retired: list[Retired] = []
    holds: str | None = None
    for number, (is_accept, which) in enumerate(steps):
        if is_accept:
            accepted.append(nights.accepted(nights.entry(which, [100.0]), number))
            holds = accepted[-1].id
        elif accepted and (one := accepted[which % len(accepted)]).id not in {decision.id for decision in retired}:
            retired.append(Retired(one.id, "why", "me", f"2026-10-01T00:00:{number:02}.000Z"))
            holds = None if holds == one.id else holds
    active = baselines.active(Decisions(tuple(accepted), tuple(retired)))
    assert [one.id for one in active] == ([holds] if holds else [])


@pytest.mark.parametrize("storage", ["cached", "unknown"])
def test_what_was_not_of_the_storage_is_refused_unless_forced(tmp_path: Path, storage: str) -> None:
    made = nights.entry(1, [100.0], storage=storage)
    with pytest.raises(ConfigError, match=r"should not be a baseline: the storage was not measured: .*--force"):
        baselines.accept(tmp_path, made, "why not")
    assert not (tmp_path / rundir.BASELINES).exists()
    (one,) = baselines.accept(tmp_path, made, "there is no other", force=True)
    assert len(one.warnings) == 1
    assert baselines.read(tmp_path).accepted == (one,)


def test_faulty_jobs_and_jobs_without_a_good_run_are_refused(tmp_path: Path) -> None:
    made = nights.entry(1, [100.0, 101.0])
    half = structs.replace(made.measurements[1], fault="steps are missing", exit_code=7)
    faulty = structs.replace(made, measurements=(made.measurements[0], half))
    with pytest.raises(ConfigError, match="02-measure is not valid: steps are missing"):
        baselines.accept(tmp_path, faulty, "why")
    assert len(baselines.accept(tmp_path, faulty, "why", force=True)[0].group.good) == 1
    with pytest.raises(ConfigError, match=r"cannot be a baseline: it has no good run \(02-measure: steps are missing"):
        baselines.accept(tmp_path, structs.replace(made, measurements=(half,)), "why", force=True)
    with pytest.raises(ConfigError, match=r"cannot be a baseline: it measured nothing \(no node\)"):
        baselines.accept(tmp_path, structs.replace(made, measurements=(), fault="no node"), "why", force=True)
    with pytest.raises(ConfigError, match="the job failed: no node"):
        baselines.accept(tmp_path, structs.replace(made, fault="no node"), "why")
    with pytest.raises(ConfigError, match="--message"):
        baselines.accept(tmp_path, made, "  ")


def _levels(*values: float) -> list[Entry]:
    factors = [1.004, 0.997, 1.0, 0.998, 1.001]
    return [nights.entry(night, [value * factors[night % 5]] * 3) for night, value in enumerate(values)]


@pytest.mark.parametrize("lasted", [1, 2, 3])
def test_a_drop_of_a_few_nights_is_no_baseline_unless_forced(tmp_path: Path, lasted: int) -> None:
    past_nights = _levels(*[100.0] * 12, *[60.0] * lasted)
    nights_words = "1 night" if lasted == 1 else f"{lasted} nights"
    with pytest.raises(ConfigError, match=rf"is 40\.\d % worse than before, for {nights_words} so far;"):
        baselines.accept(tmp_path, past_nights[-1], "good", past=past_nights)
    (forced,) = baselines.accept(tmp_path, past_nights[-1], "good", force=True, past=past_nights)
    assert len(forced.warnings) == 1
    baselines.accept(tmp_path, past_nights[3], "good", past=past_nights)


def test_a_drop_that_lasts_a_rise_and_a_first_night_may_be_baselines(tmp_path: Path) -> None:
    for past_nights in (_levels(*[100.0] * 12, *[60.0] * 4), _levels(*[100.0] * 12, 140.0), _levels(100.0)):
        assert baselines.accept(tmp_path, past_nights[-1], "good", past=past_nights)[0].warnings == ()
        assert baselines.accept(tmp_path, past_nights[-1], "good", past=past_nights[:-1])[0].warnings == ()


def test_a_decision_is_not_dated_before_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not count, although the command says that it replaces the earlier one."""
    baselines.accept(tmp_path, nights.entry(0, [100.0]), "first")
    monkeypatch.setattr(units, "utc_now", lambda fraction=False: "2026-01-01T00:00:00.000Z")
    for decide in (
        lambda: baselines.accept(tmp_path, nights.entry(1, [100.0]), "second"),
        lambda: baselines.retire(tmp_path, "nightly-000", "old"),
    ):
        with pytest.raises(ConfigError, match="a new decision would have no effect"):
            decide()
    assert _states(tmp_path) == [("nightly-000", "active")]


def test_several_datasets_of_one_key_are_no_baseline(tmp_path: Path) -> None:
    made = nights.entry(1, [100.0, 101.0])
    elsewhere = structs.replace(made.measurements[1], data="/scratch/other")
    with pytest.raises(ConfigError, match="was measured on several datasets"):
        baselines.accept(tmp_path, structs.replace(made, measurements=(made.measurements[0], elsewhere)), "why")


def test_a_decision_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    baselines.accept(tmp_path, nights.entry(1, [100.0]), "why")
    (path,) = (tmp_path / rundir.BASELINES).iterdir()
    path.write_text(path.read_text().replace('"message"', '"reason"'))
    with pytest.raises(InvalidRun, match=path.name):
        baselines.read(tmp_path)


TITLE = "cosmoflow on theta, 2 x 4 ranks"


def _suite(folder: Path, criteria: Path) -> Study:
    """Return a suite of an earlier version, whose criteria are only in their file."""
    return structs.replace(studies.make(folder / "runs", name="suite"), verdict=Judging(criteria=str(criteria)))


def test_a_changed_criteria_file_does_not_change_the_verdict_on_a_past_night(tmp_path: Path) -> None:
    text = "name: x\nnight_spread: 0\ncriteria: {spread: {title: repeatability, max_spread: 25%}}\n"
    criteria = tmp_path / "criteria.yaml"
    criteria.write_text(text)
    suite = structs.replace(_suite(tmp_path, criteria), criteria=serialization.read_yaml(criteria))
    criteria.write_text(text.replace("25%", "99%"))
    noisy = nights.entry(1, [100.0, 30.0, 104.0])
    with pytest.raises(ConfigError, match="fails the criterion repeatability"):
        baselines.accept(tmp_path, noisy, "first", study=suite)
    criteria.unlink()
    kept = criteria_file.of_study(suite)
    assert kept is not None
    assert kept.criteria["spread"].max_spread == 0.25


def test_a_night_with_far_fewer_runs_than_the_baseline_needs_force(tmp_path: Path) -> None:
    """A member of the group measured one run, with the archive of the facility."""
    baselines.accept(tmp_path, nights.entry(1, [100.0, 101.0, 100.5]), "quiet night")
    with pytest.raises(ConfigError, match=r"has 1 run, and nightly-001-\w+, which it would replace, has 3; --force"):
        baselines.accept(tmp_path, nights.entry(2, [100.0]), "mine")
    (made,) = baselines.accept(tmp_path, nights.entry(2, [100.0]), "mine", force=True)
    assert "which it would replace, has 3" in made.warnings[0]
    baselines.accept(tmp_path, nights.entry(3, [100.0, 100.1]), "two are enough after one")


def test_a_night_that_is_a_regression_against_the_baseline_needs_force(tmp_path: Path) -> None:
    good, slow = nights.entry(1, [100.0, 101.0, 99.0]), nights.entry(2, [3.0, 3.1, 2.9])
    baselines.accept(tmp_path, good, "first", past=[good])
    with pytest.raises(ConfigError, match=f"{TITLE} is 9[67]"):
        baselines.accept(tmp_path, slow, "second", past=[good, slow])
    lasting = [nights.entry(night, [3.0, 3.1, 2.9]) for night in range(2, 12)]
    assert baselines.accept(tmp_path, lasting[-1], "after the repair", past=[good, *lasting])


def test_a_criterion_of_no_measurement_needs_force_too(tmp_path: Path) -> None:
    criteria = tmp_path / "criteria.yaml"
    criteria.write_text("name: x\nworkloads: [unet3d*]\nnight_spread: 0\ncriteria: {spread: {max_spread: 25%}}\n")
    with pytest.raises(ConfigError, match="it fails the criterion workloads: cosmoflow is not among the allowed"):
        baselines.accept(tmp_path, nights.entry(1, [100.0] * 3), "first", study=_suite(tmp_path, criteria))


def test_a_night_that_fails_the_criteria_of_its_suite_needs_force(tmp_path: Path) -> None:
    """A baseline is a promise on the storage; a night whose repeats differ by 74 % is none."""
    noisy, quiet = nights.entry(1, [100.0, 30.0, 104.0]), nights.entry(2, [100.0, 101.0, 99.0])
    criteria = tmp_path / "criteria.yaml"
    criteria.write_text("name: nightly\nnight_spread: 0\ncriteria: {spread: {title: repeatability, max_spread: 25%}}\n")
    study = _suite(tmp_path, criteria)
    with pytest.raises(ConfigError, match=rf"{TITLE} fails the criterion repeatability: .*; --force accepts it"):
        baselines.accept(tmp_path, noisy, "first", study=study)
    (forced,) = baselines.accept(tmp_path, noisy, "first", force=True, study=study)
    assert forced.warnings[0].startswith(f"{TITLE} fails the criterion repeatability")
    (good,) = baselines.accept(tmp_path, quiet, "second", study=study)
    assert good.warnings == ()
    with pytest.raises(ConfigError, match="it is unknown whether it meets the criteria of its suite"):
        baselines.accept(tmp_path, quiet, "third", study=_suite(tmp_path, tmp_path / "gone.yaml"))


def test_the_commands(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "dlio-runs" / "archive"
    folder.mkdir(parents=True)
    for entry in nights.entries([100.0, 110.0], 0.01):
        history.enter(folder, entry)
    assert run("dlio-hpc", "baseline", "accept", "nightly-000").code == 2
    assert "accept one: dlio-hpc baseline accept JOB --message" in run("dlio-hpc", "baseline", "list").err
    said = run("dlio-hpc", "baseline", "accept", "nightly-000", "--message", "before the upgrade").out
    assert said.startswith("accepted nightly-000-")
    assert said.endswith(f" as the baseline of {TITLE} in dlio-runs/archive\n")
    first = said.split()[1]
    second = run("dlio-hpc", "baseline", "accept", "nightly-001", "--message", "after the upgrade")
    assert second.out.endswith(f", in place of {first}\n")
    listed = run("dlio-hpc", "baseline", "list").out
    assert "after the upgrade" in listed
    assert "before the upgrade" not in listed
    every = run("dlio-hpc", "baseline", "list", "--all", "--json").json["baselines"]
    assert [(one["message"], one["state"]) for one in every] == [
        ("before the upgrade", "replaced"), ("after the upgrade", "active"),
    ]  # fmt: skip
    shown = run("dlio-hpc", "baseline", "show", "nightly-001").out
    for text in ("after the upgrade", "lustre /scratch", "8 stripes of 1 MiB", "active", "samples_per_s"):
        assert text in shown
    assert run("dlio-hpc", "baseline", "retire", "nightly-001", "--message", "disks replaced").code == 0
    assert "disks replaced" in run("dlio-hpc", "baseline", "show", "nightly-001").out
    assert run("dlio-hpc", "history", "--export").out.count('{"decision":') == 3
    unknown = run("dlio-hpc", "baseline", "show", "nobody")
    assert (unknown.code, unknown.out) == (2, "")
    assert run("dlio-hpc", "baseline", "accept", "nobody", "--message", "x").code == 2
