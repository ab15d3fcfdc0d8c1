"""The report of a study says what was measured, found and missing: terminal, JSON, CSV, page and pictures alike."""

import csv
import io
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from msgspec import structs

from dlio_hpc.base import serialization
from dlio_hpc.batch.schedulers.scheduler import State
from dlio_hpc.documents import studies as studies_document
from dlio_hpc.files import archive
from dlio_hpc.plan import packing
from dlio_hpc.plan.study import Study
from dlio_hpc.records import job_outcome, study_outcome
from dlio_hpc.records.study_outcome import StudyOutcome
from dlio_hpc.reports import (
    html_page,
    pictures,
    study_banner,
    study_page,
    study_report,
    study_rows,
    study_text,
    terminal,
)
from dlio_hpc.reports.figures import study_plots
from dlio_hpc.reports.page import Picture
from dlio_hpc.reports.study_report import StudyReport
from dlio_hpc.results.run_result import CheckpointSummary, Distribution
from tests.bench import study_rates
from tests.conftest import Run
from tests.reports.test_pictures import _browse, _Reader, browser
from tests.support import studies

NONE: tuple[Any, ...] = ()


def _values(
    made: Study, effects: Mapping[str, Sequence[float]], sd: float = 0.02, base: float = 150.0
) -> studies.Values:
    """Return samples/s with the effect of each key's level (a logarithm), a round's drift, and noise."""
    drift = np.random.default_rng(3).normal(0, 0.05, made.repeat)

    def value(number: int, repeat: int) -> float:
        point = made.points[number]
        effect = sum(levels[point.places[key]] for key, levels in effects.items() if key in point.places)
        noise = np.random.default_rng([number, repeat]).normal(0, sd)
        return float(base * point.nodes**0.9 * np.exp(effect + drift[repeat] + noise))

    return value


def _report(made: Study, values: studies.Values, metric: Any = None, **summary: Any) -> StudyReport:
    """Make the report of a study without files."""
    measured = studies.measured(made, values, **summary)
    have = {(measurement.point, measurement.repeat) for measurement in measured}
    missing = [
        study_outcome.MissingMeasurement(unit, None, "no job was submitted for it", False)
        for unit in packing.order(made)
        if unit not in have
    ]
    return study_report.make(StudyOutcome(made, [], measured, missing, 0), metric)


def _shown(report: StudyReport) -> str:
    file = io.StringIO()
    terminal.show(study_page.of_study(report), file)
    return file.getvalue()


def _pictures(report: StudyReport) -> dict[str, Picture]:
    return {picture.stem: picture for picture in study_plots.draw(report)}


THREADS = {"reader.read_threads": [-0.3, 0.0, 0.3, 0.3]}


def _threads(folder: Path, repeat: int = 3, name: str = "tune") -> Study:
    return studies.make(folder, studies.asked("demo", "reader.read_threads=1,2,4,8"), repeat=repeat, name=name)


@pytest.fixture
def threads(tmp_path: Path) -> StudyReport:
    made = _threads(tmp_path)
    return _report(made, _values(made, THREADS))


def test_the_terminal_says_what_is_best_and_by_how_much(threads: StudyReport) -> None:
    text = _shown(threads)
    assert max(map(len, text.splitlines())) <= 100
    shown = " ".join(text.split())
    assert re.search(
        r"4 points x 3 measurements in rounds, shuffled with seed 7; \d jobs? on local, 1 node x 4 ranks", shown
    )
    assert re.search(r"1 3 .* worse\b", shown)
    assert re.search(
        r"Best: read_threads=[48], 1\.[34]\d x the reference \(read_threads=2\); 95 % interval 1\.[23]", shown
    )
    assert "confidence > 99.9 %" in shown
    assert "1 of 3 others are not significantly different from the best." in shown
    assert "Noise of a single measurement: " in shown
    assert "demo (NumPy): change these settings (measured: 1.3" in shown
    assert "read with 4 threads per rank" in shown, "the smaller one of two that are equally good"
    assert "Missing" not in shown


def test_without_repeats_nothing_is_claimed(tmp_path: Path) -> None:
    made = _threads(tmp_path, repeat=1)
    report = _report(made, _values(made, THREADS))
    shown = " ".join(_shown(report).split())
    assert (
        "Whether the difference is more than noise is unknown: too few measurements were repeated; use --repeat 3"
        in shown
    )
    assert "Best" not in shown
    assert report.advice == []
    assert set(re.findall(r"(worse|same|best|\?) *$", _shown(report), re.MULTILINE)) == {"?"}


def test_noise_is_called_noise(tmp_path: Path) -> None:
    made = _threads(tmp_path)
    report = _report(made, _values(made, {}, sd=0.05))
    shown = " ".join(_shown(report).split())
    assert "No difference beyond noise: the reference (read_threads=2)" in shown or "Best: the reference" in shown
    assert "Keep the present settings." in shown
    assert "Noise of this size hides differences" not in shown
    assert "Noise of this size hides differences" in " ".join(_shown(_report(made, _values(made, {}, sd=0.5))).split())
    assert report.advice == [
        "demo (NumPy): keep the present settings (reader.read_threads=2); "
        "no other setting is better by more than the noise."
    ]


def test_no_share_of_noise_is_stated(tmp_path: Path) -> None:
    """If all differences are noise, no share of the variance is stated, neither of a parameter nor of interaction."""
    part = studies.asked("demo", "reader.read_threads=1,2,4", "reader.batch_size=4,8")
    made = studies.make(tmp_path, part)
    shown = " ".join(_shown(_report(made, _values(made, {}, sd=0.05))).split())
    assert "interaction" not in shown
    assert not re.search(r"\d % of the variance", shown)
    assert re.search(r"batch_size \d \d 1\.\d\d - no", shown)


def _drawn(made: Study, random: Any) -> StudyReport:
    """Make the report of a study whose effects, interaction, noise and missing measurements are drawn."""
    sd = float(random.choice([0.02, 0.05, 0.1]))
    size = random.choice([0.0, 0.0, 0.1, 0.3], 2)
    effects = [dict.fromkeys(range(4), 0.0) | {int(random.integers(0, 3)): float(size[0])}, {0: float(size[1])}]
    both = float(random.choice([0.0, 0.0, 0.5])) * sd * 3
    lost = random.random((len(made.points), made.repeat)) < random.choice([0.0, 0.15])
    lost[made.parts[0].reference] = False
    noise = random.normal(0, sd, lost.shape)

    def value(number: int, repeat: int) -> float | None:
        places = list(made.points[number].places.values())
        effect = sum(levels.get(place, 0.0) for levels, place in zip(effects, places, strict=False))
        level = effect + both * (places[0] == places[1]) + noise[number, repeat]
        return None if lost[number, repeat] else float(100 * np.exp(level))

    measured = [run._replace(origin="storage") for run in studies.measured(made, value)]
    return study_report.make(StudyOutcome(made, [], measured, [], 0))


_NO_COMPUTATION = ("reader.prefetch=null", "compute.time=0")


@pytest.mark.parametrize(
    ("axes", "settings", "is_clear"),
    [
        (["reader.batch_size=4,10"], ("compute.time=50ms",), False),
        (["reader.read_threads=1,2", "reader.batch_size=4,10,6"], ("compute.time=50ms",), False),
        (["reader.batch_size=4,10"], _NO_COMPUTATION, True),
        (["reader.batch_size=4,10", "compute.time=50ms,100ms"], (), False),
        (["reader.batch_size=4,10", "compute.time=50ms,125ms"], ("zip",), True),
        (["reader.read_threads=1,2"], ("compute.time=50ms",), True),
    ],
    ids=str,
)
def test_batches_that_compute_equally_long_are_no_comparison_of_reading(
    tmp_path: Path, axes: list[str], settings: tuple[str, ...], is_clear: bool
) -> None:
    is_zipped = settings == ("zip",)
    asked = studies.asked("demo", *axes, settings=() if is_zipped else settings, zipped=is_zipped)
    made = studies.make(tmp_path, asked, repeat=3)
    noise = np.random.default_rng(3).normal(0, 0.002, (len(made.points), 3))
    values = [[100 * (1 + number) * np.exp(level) for level in row] for number, row in enumerate(noise)]
    measured = studies.measured(made, lambda number, repeat: float(values[number][repeat]))
    report = study_report.make(StudyOutcome(made, [], [run._replace(origin="storage") for run in measured], [], 0))
    banner = study_banner.of_study(report)
    assert (banner.state == "good") == bool(report.advice) == is_clear
    reason = (
        "compute.time is 50 ms a step for several batch sizes, so a sample takes 12.5 ms of computation with "
        "batch_size=4 and 5 ms with batch_size=10; to compare how batches are read, set compute.time=0"
    )
    assert (reason in banner.text) == (reason in " ".join(_shown(report).split())) == (not is_clear)


def test_sentences_tables_banner_and_json_agree(tmp_path: Path) -> None:
    """In studies of many kinds, no sentence contradicts the table of parameters, the banner, the advice or the JSON."""
    axes = ["reader.read_threads=2,1,4", "reader.batch_size=4,8", "reader.preprocess_threads=1,2"]
    random = np.random.default_rng(11)
    kinds: set[str] = set()
    with study_rates.simulated_once():
        for number in range(240):
            asked = studies.asked("demo", *axes[: 2 + number % 2], settings=_NO_COMPUTATION)
            made = studies.make(tmp_path, asked, repeat=2 + number % 3 // 2)
            kinds |= _checked(_drawn(made, random))
    assert kinds == {"change", "keep", "best", "interaction", "effect kept", "no difference"}


def _checked(report: StudyReport) -> set[str]:
    """Check that parts of a report agree. Return the kinds of conclusions that it has."""
    (finding,) = report.findings
    (comparison,) = finding.comparisons
    study = report.outcome.study
    assert comparison.ranking is not None
    assert comparison.reference is not None
    assert comparison.recommended is not None
    text = " ".join(study_text.first(study, finding))
    table = study_rows.ranking(comparison.ranking)
    beyond = {row[0]: row[1] for row in table if row[-1] == "yes"}
    shown = " ".join(_shown(report).split())
    banner = study_banner.of_study(report)
    plain = serialization.plain(studies_document.of_study(report))["findings"][0]["comparisons"][0]
    is_kept = comparison.recommended == comparison.reference
    assert text in shown
    assert text in banner.text
    assert ("keep the present settings" in "\n".join(report.advice)) == is_kept
    assert ("interaction" in shown) == comparison.ranking.has_interaction == bool(plain["ranking"]["interaction"])
    kinds = {"interaction"} if comparison.ranking.has_interaction else set()
    if "No difference beyond noise" in text:
        kinds.add("no difference")
        assert not beyond
        assert not comparison.ranking.has_interaction
        assert {point.verdict for point in comparison.points} <= {"best", "same as best"}
    if comparison.change is not None:
        settings = study_rows.short(list(study.labels(study.points[0])))
        changed = {settings[key]: label for key, label in comparison.change.settings.items()}
        usual, wanted = (study.labels(study.points[place]) for place in (comparison.reference, comparison.recommended))
        assert wanted == usual | comparison.change.settings
        assert changed.items() <= beyond.items(), "the table has the same values"
        assert comparison.change.low > 1
        assert (
            f"Recommended: the reference with {', '.join(f'{key}={label}' for key, label in changed.items())}" in text
        )
        assert "Keep" not in text
        assert banner.state == "good"
        assert plain["change"]["settings"] == comparison.change.settings
        return kinds | {"change"}
    assert "Recommended" not in text
    assert plain["change"] is None
    assert ("Keep the present settings." in text) == is_kept
    if is_kept and beyond and not comparison.ranking.has_interaction:
        kinds.add("effect kept")
        assert "does not differ from the best by more than the noise" in text
    if not is_kept:
        assert beyond or comparison.ranking.has_interaction or "No single parameter has an effect larger" in text
    return kinds | {"keep" if is_kept else "best"}


def test_parameters_are_ranked_and_drawn(tmp_path: Path) -> None:
    part = studies.asked("demo", "reader.read_threads=1,2,4", "reader.batch_size=4,8", "reader.preprocess_threads=1,2")
    made = studies.make(tmp_path, part)
    effects = {"reader.read_threads": [0.0, 0.2, 0.4], "reader.batch_size": [0.0, 0.1]}
    report = _report(made, _values(made, effects))
    shown = " ".join(_shown(report).split())
    order = [shown.index(f"{name} {levels}") for name, levels in (("read_threads", "4 1"), ("batch_size", "8 4"))]
    assert order == sorted(order)
    assert re.search(r"preprocess_threads \d \d 1\.0\d 0 % no", shown)
    assert "interaction" not in shown
    (picture,) = _pictures(report).values()
    assert picture.stem == "effects"
    assert "preprocess_threads 1.0" in picture.caption
    assert "within noise" in picture.caption
    labels = [axes.get_xlabel() for axes in picture.figure.axes]
    assert labels == ["reader.read_threads", "reader.batch_size", "reader.preprocess_threads"]
    means = np.asarray(picture.figure.axes[0].lines[1].get_ydata())
    assert means[-1] / means[0] == pytest.approx(np.exp(0.4), rel=0.03)


def test_one_parameter_is_a_curve_with_every_measurement(threads: StudyReport) -> None:
    (picture,) = _pictures(threads).values()
    upper, lower = picture.figure.axes
    assert (upper.get_ylabel(), lower.get_ylabel(), lower.get_xlabel()) == (
        "time (s)",
        "read bandwidth (MB/s)",
        "reader.read_threads",
    )
    assert lower.get_xscale() == "log"
    assert [tick.get_text() for tick in lower.get_xticklabels()] == ["1", "2", "4", "8"]
    line, dots, *_ = lower.lines
    assert len(np.asarray(dots.get_xdata())) == 12
    (finding,) = threads.findings
    medians = [point.metrics["read_MBps"].median for point in finding.points]
    assert np.asarray(line.get_ydata()).tolist() == medians
    rings = {str(line.get_label()): float(np.asarray(line.get_xdata())[0]) for line in lower.lines[2:]}
    assert rings["reference"] == 2
    assert rings["best"] in {4, 8}


@pytest.mark.parametrize(
    ("axis", "scale", "labels"),
    [
        ("reader.transfer_size=64KiB,1MiB,3MiB", "log", ["64 KiB", "1 MiB", "3 MiB"]),
        ("reader.read_threads=1,2,3", "linear", ["1", "2", "3"]),
        ("dataset.compression=none,gzip", "linear", ["none", "gzip"]),
    ],
)
def test_sizes_and_powers_of_two_lie_on_a_logarithmic_axis(
    tmp_path: Path, axis: str, scale: str, labels: list[str]
) -> None:
    made = studies.make(tmp_path, studies.asked("demo", axis))
    axes = _pictures(_report(made, _values(made, {})))["sweep"].figure.axes[-1]
    assert axes.get_xscale() == scale
    assert [tick.get_text() for tick in axes.get_xticklabels()] == labels


def test_two_parameters_are_a_map(tmp_path: Path) -> None:
    made = studies.make(tmp_path, studies.asked("demo", "reader.read_threads=1,2,4", "reader.batch_size=4,8"))
    effects = {"reader.read_threads": [0.0, 0.2, 0.4], "reader.batch_size": [0.0, 0.3]}
    report = _report(made, _values(made, effects))
    drawn = _pictures(report)
    assert list(drawn) == ["map", "effects"]
    (axes,) = drawn["map"].figure.axes
    (finding,) = report.findings
    cells = {text.get_text() for text in axes.texts}
    assert cells == {f"{point.metrics['samples_per_s'].median:.4g}" for point in finding.points}
    frames = {str(patch.get_label()): patch for patch in axes.patches if isinstance(patch, Rectangle)}
    best, reference = (np.floor(frames[name].get_xy()).tolist() for name in ("best", "reference"))
    assert (best, reference) == ([2, 1], [1, 0])
    assert _report(made, lambda point, _: None if point == 3 else 5.0 + point).findings[0].comparisons
    holed = _report(made, lambda point, repeat: None if point == 3 else 5.0 + point + 0.01 * repeat)
    assert "-" in {text.get_text() for text in _pictures(holed)["map"].figure.axes[0].texts}


@pytest.mark.parametrize("weak", [False, True])
def test_scaling_has_a_table_and_a_picture(tmp_path: Path, weak: bool) -> None:
    part = studies.asked("demo", "reader.read_threads=1,2", nodes=(1, 2, 4), ranks_per_node=(4,), weak=weak)
    made = studies.make(tmp_path, part)
    report = _report(made, _values(made, {"reader.read_threads": [0.0, 0.2]}))
    text = _shown(report)
    kind = "Weak" if weak else "Strong"
    assert f"{kind} scaling of read_threads=1" in text
    assert re.search(r"4 x 4 +16 .* 3\.\d\d .* 4 +\d\d\.\d %", text)
    assert "On 4 nodes x 4 ranks: Best: " in text
    picture = _pictures(report)["scaling"]
    upper, lower = picture.figure.axes
    assert upper.get_xscale() == upper.get_yscale() == "log"
    legend = upper.get_legend()
    assert legend is not None
    assert lower.get_xlabel() == "ranks"
    assert {label.get_text() for label in legend.get_texts()} == {"read_threads=1", "read_threads=2", "ideal"}
    assert re.search(r"read_threads=2: On 16 ranks the speed-up is 3\.\d\d .*, \d\d\.\d % of linear", picture.caption)
    assert lower.get_ylabel() == "efficiency (%)"


# Samples/s of three repeats on one, two and four ranks, of FFN of fig. 15 on a busy laptop.
_FFN = {
    "On 4 ranks, it is below linear by more than the noise.": [(100, 131, 76), (173, 136, 154), (300, 212, 173)],
    "It does not differ from linear by more than the noise.": [(100, 139, 72), (190, 133, 154), (330, 212, 163)],
}


@pytest.mark.parametrize("conclusion", _FFN)
def test_a_scaling_study_tells_how_it_scales_and_nothing_else(tmp_path: Path, conclusion: str) -> None:
    """The terminal, JSON, the page and the caption have the same speed-up, interval and conclusion."""
    made = studies.make(tmp_path, studies.asked("demo", nodes=(1,), ranks_per_node=(1, 2, 4)))
    report = _report(made, lambda point, repeat: _FFN[conclusion][point][repeat])
    (finding,) = report.findings
    (scaling,) = finding.scalings
    last = scaling.steps[-1]
    assert last.low is not None
    assert last.high is not None
    interval = f"{last.low:.2f} to {last.high:.2f}"
    html = "".join(_text(html_page.render(study_page.of_study(report))))
    caption = _pictures(report)["scaling"].caption
    for text in (_shown(report), html, caption):
        joined = " ".join(text.split())
        assert f"speed-up is {last.speed_up:.2f} (95 % interval {interval})" in joined
        intervals = set(re.findall(r"95 % interval (\d+\.\d+ to \d+\.\d+)", joined))
        assert intervals == {interval}
        assert [sentence for sentence in _FFN if sentence in joined] == [conclusion]
        assert not re.search(r"\b([Bb]est|same(?! amount)|worse|x ref|reference)\b|[Kk]eep", joined), joined
    content = serialization.plain(studies_document.of_study(report))
    assert content["advice"] == []
    assert content["findings"][0]["comparisons"] == ()
    step = content["findings"][0]["scalings"][0]["steps"][-1]
    assert (step["low"], step["high"]) == (last.low, last.high)
    jobs = (
        "All repeats of a number of ranks ran in one job; jobs are assumed to differ by 5 %; submit on several nights"
    )
    assert jobs in " ".join(_shown(report).split())
    assert jobs in caption
    sd = scaling.noise.sd
    assert sd is not None
    assert f"Noise of a single measurement: {100 * sd:.2g} % (6 degrees of freedom)" in " ".join(html.split())


def test_several_jobs_of_a_scale_show_how_much_jobs_differ(tmp_path: Path) -> None:
    made = studies.make(tmp_path, studies.asked("demo", nodes=(1, 2), ranks_per_node=(2,)), repeat=4)
    rates = {0: [100, 101, 110, 111], 1: [200, 201, 181, 182]}
    measured = [
        run._replace(job=f"tune-{run.point}-{run.repeat // 2}")
        for run in studies.measured(made, lambda point, repeat: float(rates[point][repeat]))
    ]
    report = study_report.make(StudyOutcome(made, [], measured, [], 0))
    (curve,) = report.findings[0].scalings
    assert (curve.between_jobs.df, curve.between_jobs.is_assumed) == (2, False)
    assert curve.between_jobs.sd == pytest.approx(0.07, abs=0.005)
    assert "Jobs with the same number of ranks differ by 7" in " ".join(_shown(report).split())
    assert curve.steps[1].speed_up == pytest.approx(np.sqrt(200.5 * 181.5 / (100.5 * 110.5)))


def _text(html: str) -> list[str]:
    """Return the text of a page without styles and drawings; captions stay."""
    return re.findall(r">([^<]+)<", re.sub(r"(?s)<(style|svg).*?</\1>", "", html))


def test_parts_that_scale_are_drawn_together(tmp_path: Path) -> None:
    demo = studies.asked("demo", nodes=(1, 2, 4), ranks_per_node=(2,))
    parts = [structs.replace(demo, name="a"), structs.replace(demo, name="b", nodes=(2, 8), weak=True)]
    made = studies.make(tmp_path, *parts)
    report = _report(made, _values(made, {}))
    drawn = _pictures(report)
    assert list(drawn) == ["a-scaling", "b-scaling", "scaling"]
    _, lower = drawn["scaling"].figure.axes
    assert lower.get_xlabel() == "ranks / fewest ranks"
    assert re.search(
        r"a: strong scaling: On 8 ranks .* is 3\..* b: weak scaling: On 16 ranks .* is 3\.", drawn["scaling"].caption
    )
    assert html_page.render(study_page.of_study(report)).count("<svg ") == 3


def test_however_much_or_little_there_is_it_fits(tmp_path: Path) -> None:
    asked = studies.asked
    many = asked("demo", "reader.read_threads=1..40", "reader.batch_size=1,2")
    keys = ["read_threads=1,2", "batch_size=2,4", "preprocess_threads=1,2", "shuffle.seed=1,2", "drop_last=true,false"]
    wide = asked("demo", *(f"reader.{key}" for key in keys))
    layout = asked("cosmic_tagger", "site.layout.stripe_count=1,8", "dataset.chunk=2KiB,3MiB", settings=())
    for part in (asked(), many, wide, layout):
        made = studies.make(tmp_path, part)
        for values in (
            _values(made, {}),
            lambda *_: None,
            lambda *_: 5.0,
            lambda point, _: 5.0 if point == 0 else None,
        ):
            report = _report(made, values)
            text = _shown(report)
            lines = [line for line in text.splitlines()[1:] if "--resume" not in line]
            assert max(map(len, lines)) <= 100, "a path stays whole"
            assert ("Nothing was measured yet." in text) == (not report.outcome.measured)
            html = html_page.render(study_page.of_study(report))
            assert made.study in html
            for picture in study_plots.draw(report):
                ET.fromstring(pictures.svg(picture.figure))
            json.dumps(serialization.plain(studies_document.of_study(report)), allow_nan=False)


def test_a_figure_that_is_unknown_is_said_to_be(tmp_path: Path) -> None:
    made = _threads(tmp_path)
    report = _report(made, _values(made, THREADS), "io_time_s", io_time_s=None, au=None)
    text = _shown(report)
    assert "io_time_s is unknown or 0 in 12 measurements" in " ".join(text.split())
    html_page.render(study_page.of_study(report))
    assert _pictures(report) == {}
    pair = studies.make(tmp_path, studies.asked("demo", "reader.read_threads=1,2", "reader.batch_size=4,8"))
    for known, stems in ((1, []), (2, ["map", "effects"])):  # in most repeats 0, and in few of them
        some = [
            measurement
            if measurement.repeat < known
            else measurement._replace(summary=structs.replace(measurement.summary, read_MBps=0.0))
            for measurement in studies.measured(pair, _values(pair, {}))
        ]
        assert list(_pictures(study_report.make(StudyOutcome(pair, [], some, [], 0), "read_MBps"))) == stems
    judged = _report(made, _values(made, THREADS), "io_time_s")
    assert [axes.get_ylabel() for axes in _pictures(judged)["sweep"].figure.axes][-1] == "I/O time (s)"


def test_the_page_holds_all_of_it_and_asks_for_nothing(tmp_path: Path, threads: StudyReport) -> None:
    parts = [
        structs.replace(studies.asked("demo", "reader.read_threads=1,2"), name="<a>", title="threads & more"),
        structs.replace(studies.asked("demo", "reader.batch_size=4,8"), name="b"),
    ]
    made = studies.make(tmp_path, *parts)
    for report, count in ((threads, 1), (_report(made, _values(made, {"reader.batch_size": [0, 0.3]})), 2)):
        html = html_page.render(study_page.of_study(report))
        reader = _Reader()
        reader.feed(html)
        assert reader.tags.count("svg") == count
        assert len(reader.ids) == len(set(reader.ids))
        assert not {"script", "link", "iframe", "img", "a>"} & set(reader.tags)
        shown = " ".join("".join(reader.text).split())
        assert "Noise of a single measurement" in shown
        assert "For the application" in shown
        assert all(line.strip() in shown for line in report.advice)
    assert "<a>: threads & more" in shown
    assert {picture.stem for picture in study_plots.draw(report)} == {"-a--sweep", "b-sweep"}


@browser
def test_a_browser_shows_the_page(tmp_path: Path, threads: StudyReport) -> None:
    file = tmp_path / "study.html"
    file.write_text(html_page.render(study_page.of_study(threads)))
    assert _browse(file, f"--screenshot={tmp_path / 'study.png'}", "--window-size=1100,2000") == ([], [])


def test_the_same_study_gives_the_same_bytes(tmp_path: Path, threads: StudyReport) -> None:
    for name in ("a", "b"):
        pictures.save(study_page.of_study(threads), tmp_path / name)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["sweep.png", "sweep.svg"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    again = study_report.make(threads.outcome)
    assert again.findings == threads.findings


def _written(folder: Path, state: State = "completed", lost: tuple[Any, ...] = NONE) -> Path:
    made = _threads(folder)
    values = _values(made, THREADS)
    return studies.write(made, lambda *place: None if place in lost else values(*place), state)


def test_a_study_is_reported_by_folder_and_by_name(run: Run, tmp_path: Path) -> None:
    folder = _written(tmp_path / "dlio-runs")
    by_folder, by_name = run("dlio-hpc", "report", folder), run("dlio-hpc", "report", "tune")
    assert by_folder.code == by_name.code == 0, by_folder.err
    assert by_folder.out == by_name.out
    assert "Best: read_threads=" in by_folder.out
    elsewhere = run("dlio-hpc", "report", "tune", "-o", "dlio-runs", cwd=tmp_path)
    assert elsewhere.out == by_name.out
    assert run("dlio-hpc", "report", "tune", DLIO_HPC_RUNS=str(tmp_path / "dlio-runs"), cwd=Path("/")).code == 0
    assert run("dlio-hpc", "report", "nothing").code == 2
    job = run("dlio-hpc", "report", "tune-1")
    assert "state     completed" in job.out
    assert "\nreader.read_threads=1\nrun " in job.out, "the table of the runs of a point"
    assert len(re.findall(r"^\d\d-p\d-measure-\d: ", job.out, re.MULTILINE)) == 1, "the run with the median rate"
    full = run("dlio-hpc", "report", "--full", "tune-1")
    assert "01-p0-measure-1: reader.read_threads=1" in full.out
    assert "the first of 4 points of the study tune" in job.out
    assert run("dlio-hpc", "report", "tune", "tune-1").code == 2


def test_json_is_one_document(run: Run, tmp_path: Path) -> None:
    _written(tmp_path / "dlio-runs", lost=((2, 1),))
    done = run("dlio-hpc", "report", "tune", "--json")
    keys = [
        "study",
        "description",
        "notes",
        "seed",
        "repeat",
        "points",
        "missing",
        "broken",
        "findings",
        "advice",
        "jobs",
        "schema",
    ]
    assert list(done.json) == keys
    assert done.code == 3, "a job that ended well without a result"
    assert [len(point["measurements"]) for point in done.json["points"]] == [3, 3, 2, 3]
    assert [point["is_reference"] for point in done.json["points"]] == [False, True, False, False]
    (missing,) = done.json["missing"]
    assert (missing["point"], missing["repeat"], missing["job"]) == (2, 1, "tune-1")
    (finding,) = done.json["findings"]
    assert finding["comparisons"][0]["gain"]["is_beyond_noise"]
    assert [job["job"] for job in done.json["jobs"]] == ["tune-1"]
    by_time = run("dlio-hpc", "report", "tune", "--json", "--metric", "wall_s")
    assert by_time.json["findings"][0]["metric"] == "wall_s"
    assert run("dlio-hpc", "report", "tune", "--metric", "speed").code == 2


def test_csv_has_a_row_for_each_measurement(run: Run, tmp_path: Path) -> None:
    _written(tmp_path / "dlio-runs")
    header, *rows = csv.reader(io.StringIO(run("dlio-hpc", "report", "tune", "--csv").out))
    assert header[:4] == ["study", "part", "point", "reader.read_threads"]
    assert len(rows) == 12
    assert {row[3] for row in rows} == {"1", "2", "4", "8"}
    assert all(float(row[header.index("wall_s")]) > 0 for row in rows)


def test_page_and_pictures_are_written(run: Run, tmp_path: Path) -> None:
    _written(tmp_path / "dlio-runs")
    done = run("dlio-hpc", "report", "tune", "--html", "out/tune.html", "--figures", "out/figures")
    assert done.code == 0
    assert done.err.splitlines() == ["report: out/tune.html", "figures: out/figures"]
    assert sorted(path.name for path in (tmp_path / "out/figures").iterdir()) == ["sweep.png", "sweep.svg"]
    assert "Jobs and runs" in (tmp_path / "out/tune.html").read_text()
    refused = run("dlio-hpc", "report", "tune", "--perfetto", "trace.json")
    assert refused.code == 2
    assert "give the directory or archive of a job" in refused.err


@pytest.mark.parametrize(
    ("state", "code", "message"),
    [("timeout", 7, "close to its time limit"), ("cancelled", 7, "was cancelled"), ("failed", 6, "ended as failed")],
)
def test_what_is_missing_decides_the_exit_code(run: Run, tmp_path: Path, state: State, code: int, message: str) -> None:
    _written(tmp_path / "dlio-runs", state, lost=((2, 1), (3, 2)))
    done = run("dlio-hpc", "report", "tune")
    assert done.code == code
    assert "Missing: 2 of 12 measurements." in done.out
    assert f"To measure what is missing: dlio-submit --resume {tmp_path / 'dlio-runs' / 'tune'}\n" in done.out
    assert message in done.out + done.err
    assert "Best: " in done.out, "figures are shown anyway"


def test_archives_alone_are_enough(run: Run, tmp_path: Path) -> None:
    part = studies.asked("demo", "reader.read_threads=1,2,4,8", nodes=(1, 2), ranks_per_node=(2,))
    made = studies.make(tmp_path / "dlio-runs", part)
    studies.write(made, _values(made, THREADS))
    whole = run("dlio-hpc", "report", "tune").out
    folders = sorted((tmp_path / "dlio-runs").glob("tune-*"))
    assert len(folders) == 2
    kept = []
    for folder in folders:
        kept.append(tmp_path / f"{folder.name}{archive.SUFFIX}")
        archive.create(folder, kept[-1])
    for paths in (kept, folders, [kept[0], folders[1]]):
        done = run("dlio-hpc", "report", *paths)
        assert done.code == 0, done.err
        assert done.out == whole
    one = run("dlio-hpc", "report", kept[0])
    assert "state     completed" in one.out
    other = _written(tmp_path / "other").parent / "tune-1"
    record = other / "study.json"  # of the same name, but of another day
    record.write_text(re.sub(r'"created": ?"[^"]*"', '"created": "2026-01-01T00:00:00Z"', record.read_text()))
    mixed = run("dlio-hpc", "report", kept[0], other)
    assert "Best" not in mixed.out, "of two studies: each job by itself"


def test_a_part_of_a_studys_jobs_is_not_all(run: Run, tmp_path: Path) -> None:
    part = studies.asked("demo", "reader.read_threads=1,2", nodes=(1, 2, 4), ranks_per_node=(2,))
    made = studies.make(tmp_path / "dlio-runs", part)
    studies.write(made, _values(made, {}))
    done = run("dlio-hpc", "report", *sorted((tmp_path / "dlio-runs").glob("tune-*"))[:2])
    assert done.code == 7
    assert "6 x not planned in any of the given jobs" in done.out


def test_runs_made_once_more_are_left_out_and_told(tmp_path: Path) -> None:
    folder = _written(tmp_path)
    made = study_outcome.load(folder)
    outcomes = [job_outcome.load(path) for path in study_outcome.jobs(made)]
    assert job_outcome.load_all([outcomes[0].directory or folder]) == outcomes
    twice = study_outcome.of_jobs(made, [*outcomes, *outcomes])
    assert twice.others == 12
    assert "12 duplicates left out" in " ".join(_shown(study_report.make(twice)).split())
    assert study_outcome.held(outcomes) == made


COSMOFLOW = ("reader.interleave=16", "reader.prefetch=16")


@pytest.mark.parametrize(
    ("name", "axes", "settings", "wanted"),
    [
        (
            "cosmoflow",
            ["reader.transfer_size=256KiB,1MiB"],
            (),
            ["CosmoFlow (TFRecord through tf.data): change these settings",
             "tf.data.TFRecordDataset(files, buffer_size=1048576, num_parallel_reads=4)"],
        ),
        (
            "cosmoflow",
            ["reader.read_threads=4,8"],
            COSMOFLOW,
            ["tf.data.TFRecordDataset(files, buffer_size=262144, num_parallel_reads=8)"],
        ),
        ("cosmoflow", ["reader.preprocess_threads=4,8"], (), ["dataset.map(preprocess, num_parallel_calls=8)"]),
        ("cosmoflow", ["reader.prefetch=8,16"], (), ["dataset.batch(1).prefetch(16)"]),
        (
            "cosmic_tagger",
            ["dataset.chunk=2KiB,4MiB"],
            (),
            ["Cosmic Tagger (HDF5): change these settings", 'file.create_dataset("x", ..., chunks=(4194304,))  # 4 MiB',
             "h5repack -l x:CHUNK=4194304 OLD NEW", 'h5py.File(name, "r", rdcc_nbytes=16777216)'],
        ),
        (
            "cosmic_tagger",
            ["dataset.compression=none,gzip"],
            (),
            ['create_dataset("x", ..., compression="gzip", compression_opts=4)', "h5repack -f x:GZIP=4 OLD NEW"],
        ),
        ("cosmic_tagger", ["dataset.compression=none,lzf"], (), ['compression="lzf"']),
        (
            "cosmic_tagger",
            ["site.layout={stripe_count: 1},{stripe_count: 8, stripe_size: 1MiB}"],
            ("dataset.chunk=3 MiB",),
            ["lfs setstripe -c 8 -S 1048576 DIR  # 8 stripes of 1 MiB", "then copy the files into DIR again",
             "a multiple of the chunk (3 MiB)"],
        ),
        (
            "demo",
            ["reader.read_threads=2,4"],
            ("reader.prefetch=null", "reader.loader=pytorch"),
            ['DataLoader(dataset, batch_size=4, num_workers=4, prefetch_factor=2, multiprocessing_context="fork")'],
        ),
        ("demo", ["dataset.compression=none,gzip"], (), ["numpy.savez_compressed(...)"]),
        ("demo", ["dataset.compression=none,zlib"], ("dataset.format=tfrecord",),
            ['tf.io.TFRecordWriter(name, tf.io.TFRecordOptions(compression_type="ZLIB", compression_level=4))',
             "dataset.compression_ratio or random_bits sets how compressible"]),
        ("demo", ["compute.mode=sleep,spin"], (), ["compute.mode: spin"]),
    ],
)  # fmt: skip
def test_advice_is_in_the_applications_words(
    tmp_path: Path, name: str, axes: list[str], settings: tuple[str, ...], wanted: list[str]
) -> None:
    made = studies.make(tmp_path, studies.asked(name, *axes, settings=settings))
    key = made.parts[0].axes[0].key
    assert made.points[made.parts[0].reference].places[key] == 0
    advice = "\n".join(_report(made, _values(made, {key: [0.0, 0.3]})).advice)
    for text in wanted:
        assert text in advice
    kept = "\n".join(_report(made, _values(made, {key: [0.3, 0.0]})).advice)
    assert "keep the present settings" in kept or "no change from" in kept
    assert wanted[-1] not in kept


def test_advice_names_what_is_kept(tmp_path: Path) -> None:
    part = studies.asked("cosmoflow", "reader.transfer_size=256KiB,40MiB", "reader.prefetch=8,16", settings=())
    made = studies.make(tmp_path, part)
    advice = _report(made, _values(made, {"reader.transfer_size": [0.0, 0.3]})).advice
    assert advice[-1] == "  Keep reader.prefetch=8."
    record = 128**3 * 4 * 2 + 16
    assert f"a multiple of a record ({record} bytes with its frame), for example {2 * record}" in "\n".join(advice)


def test_what_takes_long_to_import_is_imported_when_a_study_is_shown() -> None:
    program = "import dlio_hpc.cli.report, sys; print({'numpy', 'matplotlib', 'rich', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_study_is_not_taken_for_another_of_a_longer_name(run: Run, tmp_path: Path) -> None:
    """Studies are named after their workloads, followed by a date."""
    varied = studies.asked("demo", "reader.read_threads=1,2")
    made = studies.make(tmp_path / "dlio-runs", varied, name="demo-20261121-100000-abcdef")
    studies.write(made, lambda *_: 5.0)
    assert not study_outcome.is_study(tmp_path / "dlio-runs" / "demo")
    assert run("dlio-hpc", "estimate", "demo", "-s", "local").code == 0
    assert run("dlio-submit", "--resume", "demo").code == 2


def test_a_study_of_checkpoints_shows_the_rate_of_writing_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    some = Distribution(0.1, 0.1, 0.1, 0.1, 0.1)
    asked = studies.asked("llama3_8b", "checkpoint.transfer_size=1MiB,4MiB", settings=())
    made = studies.make(tmp_path, asked)

    def saved(rate: float) -> CheckpointSummary:
        return CheckpointSummary(3, 10**9, some, some, some, None, rate, None, some)

    measured = [
        measurement._replace(
            summary=structs.replace(measurement.summary, read_MBps=0.0, checkpoint=saved(100.0 + measurement.point))
        )
        for measurement in studies.measured(made, lambda point, repeat: 50.0)
    ]
    report = study_report.make(StudyOutcome(made, [], measured, [], 0))
    out = io.StringIO()
    terminal.show(study_page.of_study(report), out)
    assert re.search(r"transfer_size +n +time +checkpoint MB/s +checkpoint write bandwidth from-to", out.getvalue())
    assert "samples/s" not in out.getvalue()


def test_a_study_of_checkpoints_without_fsync_has_no_column_of_dashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    some, none = Distribution(0.1, 0.1, 0.1, 0.1, 0.1), Distribution(0.0, 0.0, 0.0, 0.0, 0.0)
    keys = ("checkpoint.fsync=false", "checkpoint.reads=0", "checkpoint.reorder=0")
    made = studies.make(tmp_path, studies.asked("llama3_8b", "checkpoint.transfer_size=1MiB,4MiB", settings=keys))
    saved = CheckpointSummary(3, 10**9, some, some, none, None, 100.0, None, None)
    measured = [
        measurement._replace(
            summary=structs.replace(
                measurement.summary, read_MBps=None, samples_per_s=None, au=None, au_mlperf=None, checkpoint=saved
            )
        )
        for measurement in studies.measured(made, lambda point, repeat: 50.0)
    ]
    out = io.StringIO()
    terminal.show(study_page.of_study(study_report.make(StudyOutcome(made, [], measured, [], 0))), out)
    text = " ".join(out.getvalue().split())
    assert "transfer_size n time time from-to x ref verdict" in text
    assert "checkpoint MB/s is measured only with checkpoint.fsync=true" in text
    assert not re.search(r" - +- ", out.getvalue())


@pytest.mark.parametrize(
    ("fsync", "first"),
    [
        ("true", "Inconclusive: Ahead: transfer_size="),
        ("false", "Not measured: The checkpoints may still be in memory: set checkpoint.fsync."),
    ],
)
def test_a_study_that_only_writes_checkpoints_opens_with_what_it_wrote(
    run: Run, tmp_path: Path, fsync: str, first: str
) -> None:
    some = Distribution(0.1, 0.1, 0.1, 0.1, 0.1)
    settings = ("checkpoint.reads=0", "checkpoint.reorder=0", "checkpoint.verify=false", f"checkpoint.fsync={fsync}")
    asked = studies.asked("llama3_8b", "checkpoint.transfer_size=1MiB,4MiB", settings=settings)
    made = studies.make(tmp_path / "dlio-runs", asked)
    saved = CheckpointSummary(3, 10**9, some, some, some, None, 100.0, None, some)
    studies.write(made, lambda *_: 50.0, read_MBps=0.0, bytes_read=0, checkpoint=saved)
    lines = run("dlio-hpc", "report", "tune").out.splitlines()
    assert any(line.startswith(first) for line in lines[:4]), lines[:6]
    assert "No measurement read" not in "\n".join(lines)
