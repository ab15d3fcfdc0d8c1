"""The measurements of a site show how much its nights differ; compare, suites and acceptance start from it."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.plan.study import Judging
from dlio_hpc.records import job_outcome, study_outcome
from dlio_hpc.reports import history_rows
from dlio_hpc.verdict import acceptance, baseline_comparison, history, history_entry, site_spread, suite
from dlio_hpc.verdict.history_entry import Entry, Key
from dlio_hpc.verdict.variation import ASSUMED
from tests.support import facilities, nights

OTHER = structs.replace(nights.KEY, nodes=8)
_ELSEWHERE = structs.replace(nights.KEY, site="aurora", nodes=8)


def _quiet(key: Key, count: int = 30, noise: float = 0.002, **rest: object) -> list[Entry]:
    """Return single jobs of nights whose level differs by about this noise."""
    values = [50 * math.exp(noise * math.sin(9 * night)) for night in range(count)]
    made = [
        nights.entry(night - count, [value], key, job=f"{key.digest}-{night}") for night, value in enumerate(values)
    ]
    return [
        structs.replace(entry, measurements=tuple(structs.replace(run, **rest) for run in entry.measurements))
        for entry in made
    ]


def test_other_keys_of_a_site_show_its_nights() -> None:
    entries = [*_quiet(OTHER), *_quiet(_ELSEWHERE, noise=0.3)]
    for prior in (site_spread.of_others(entries), site_spread.of_site(entries)):
        spread = prior(nights.KEY, "samples_per_s")
        assert (spread.source, spread.sd < 0.003) == ("site", True)
        assert prior(structs.replace(nights.KEY, site="nowhere"), "samples_per_s") == ASSUMED


def test_only_an_acceptance_uses_earlier_nights_of_the_key_itself() -> None:
    entries = _quiet(OTHER)
    assert site_spread.of_others(entries)(OTHER, "samples_per_s") == ASSUMED
    assert site_spread.of_site(entries)(OTHER, "samples_per_s").source == "site"


def test_each_metric_has_its_own_spread() -> None:
    values = [1.0, 1.4, 0.8, 1.3, 0.9, 1.2]
    entries = [
        structs.replace(entry, measurements=(nights.measurement(0, 50.0, OTHER, metrics={"samples_per_s": 50.0 + number,
                                                                                       "read_p99_s": value}),))
        for number, (entry, value) in enumerate(zip(_quiet(OTHER, len(values)), values, strict=True))
    ]  # fmt: skip
    prior = site_spread.of_others(entries)
    assert prior(nights.KEY, "read_p99_s").sd > 5 * prior(nights.KEY, "samples_per_s").sd > 0
    assert prior(nights.KEY, "au") == ASSUMED


@pytest.mark.parametrize("entries", [
    _quiet(OTHER, fault="the node died"),
    _quiet(OTHER, storage=nights.entry(0, [1.0], storage="cached").measurements[0].storage),
    [structs.replace(one, measurements=(*one.measurements, structs.replace(one.measurements[0], data="/scratch/other")))
     for one in _quiet(OTHER)],
    _quiet(OTHER, count=1),
], ids=["faulty", "cached", "several datasets", "one night"])  # fmt: skip
def test_what_shows_no_nights_of_storage_leaves_the_assumption(entries: Sequence[Entry]) -> None:
    assert site_spread.of_site(entries)(nights.KEY, "samples_per_s") == ASSUMED


def test_judged_jobs_are_no_knowledge_about_themselves() -> None:
    entries = _quiet(OTHER)
    assert acceptance.prior_of(entries, entries)(nights.KEY, "samples_per_s") == ASSUMED
    assert acceptance.prior_of(entries, entries[:1])(nights.KEY, "samples_per_s").source == "site"


def test_nights_of_a_study_show_the_nights_of_a_site() -> None:
    entries = [
        structs.replace(
            entry, job=f"s-night{night}-{night}", study="s", night=night,
            measurements=(structs.replace(entry.measurements[0], repeat=night),),
        )
        for night, entry in enumerate(_quiet(OTHER), 1)
    ]  # fmt: skip
    assert acceptance.prior_of(entries, ())(nights.KEY, "samples_per_s").source == "site"
    past = [nights.entry(1, [100.0] * 3)]
    judgement = baseline_comparison.judge([nights.entry(2, [99.0] * 3)], [*entries, *past], [nights.accepted(past[0])])
    assert judgement.verdicts[0].noise_source == "site"


def test_compare_and_history_say_what_the_site_shows() -> None:
    past = [nights.entry(1, [100.0, 100.2, 99.9])]
    base = [nights.accepted(past[0])]
    judged = [nights.entry(2, [95.0, 95.2, 94.9])]
    (alone,) = baseline_comparison.judge(judged, past, base).verdicts
    (known,) = baseline_comparison.judge(judged, [*past, *_quiet(OTHER)], base).verdicts
    assert (alone.outcome, alone.noise_source) == ("inconclusive", "assumed")
    assert "nights are assumed to differ by 5." in alone.why
    assert (known.outcome, known.noise_source) == ("regression", "site")
    assert "other measurements of the site differ by 0.2 % between nights" in known.why
    blocks = {
        block.key: block.site.source for block in history_rows.blocks([*past, *_quiet(OTHER)], base, "samples_per_s")
    }
    assert blocks == {nights.KEY: "site", OTHER: "assumed"}


def test_a_suite_is_accepted_by_the_nights_of_its_site(tmp_path: Path) -> None:
    criteria = tmp_path / "mine.yaml"
    criteria.write_text("name: mine\ncriteria:\n  rate: {min_samples_per_s: 97}\n")
    archives = tmp_path / "archive"
    path = facilities.suite(archives, "nightly", 40, [100.0])
    loaded = [job_outcome.load_archive(path)]
    made = study_outcome.held(loaded)
    assert made is not None
    judging = Judging(tolerance=units.Share(0.05), criteria=str(criteria))
    outcome = study_outcome.of_jobs(structs.replace(made, verdict=judging, archive=str(archives)), loaded)

    def text() -> str:
        judged = suite.judge_study(outcome, (), lambda _: None).acceptance
        (check,) = (check for check in judged.checks if check.key == "min_samples_per_s")
        return f"{check.outcome}: {check.text}"

    assert text().startswith("inconclusive")
    assert "are assumed to differ by 5 %" in text()
    key = history_entry.of(loaded[0]).measurements[0].key
    for entry in _quiet(structs.replace(key, workload="another")):
        history.enter(archives, entry)
    assert text().startswith("pass")
    assert "nights at this site differ by 0.2" in text()
