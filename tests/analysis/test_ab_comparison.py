"""Old against new: one job measures two file systems in turns, and reports the ratio of one to the other."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from dlio_hpc.analysis import students_t
from dlio_hpc.analysis.study import file_system_pairs, stragglers
from dlio_hpc.analysis.timeline_reader import Recorded
from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.darshan.log import Log
from dlio_hpc.documents import studies as studies_document
from dlio_hpc.lustre import layout_record
from dlio_hpc.lustre.lfs import LayoutComponent
from dlio_hpc.plan import packing, study
from dlio_hpc.records import study_outcome
from dlio_hpc.reports import ab_rows, ab_stragglers, study_report
from dlio_hpc.results.metrics import MetricName
from tests.conftest import Run
from tests.support import studies, throttle

FOLDERS = ("/old", "/new")


def _study(folder: Path, *axes: str, repeat: int = 4, **rest: Any) -> study.Study:
    return studies.make(folder, studies.asked("demo", *axes, folders=FOLDERS, **rest), repeat=repeat)


def test_pairs_lie_side_by_side_and_take_turns(tmp_path: Path) -> None:
    made = _study(tmp_path, "reader.read_threads=1,2,4")
    units = packing.order(made)
    for one, other in zip(units[::2], units[1::2], strict=True):
        assert one.point // 2 == other.point // 2
        assert one.repeat == other.repeat
        first = "/old" if one.repeat % 2 == 0 else "/new"
        assert made.points[one.point].data == first


def test_the_order_of_one_setting_is_abba(tmp_path: Path) -> None:
    made = _study(tmp_path)
    assert [made.points[unit.point].data for unit in packing.order(made)] == [*FOLDERS, *FOLDERS[::-1]] * 2


def test_both_file_systems_are_in_one_job_however_short_it_is(tmp_path: Path) -> None:
    made = studies.make(
        tmp_path, studies.asked("demo", "reader.read_threads=1,2,4", folders=FOLDERS), repeat=4, walltime=60
    )
    (job,) = packing.plans(made)
    assert job.folders == FOLDERS
    generated = [run.dataset for run in job.runs if run.kind == "generate"]
    assert sorted(path.split("/")[1] for path in generated) == ["new", "old"]
    assert {run.outputs.split("/")[1] for run in job.runs} == {"new", "old"}


def test_scales_have_a_job_each(tmp_path: Path) -> None:
    made = _study(tmp_path, ranks_per_node=(1, 2))
    assert [job.folders for job in packing.plans(made)] == [FOLDERS, FOLDERS]


def _effects(made: study.Study, values: studies.Values, metric: MetricName | None = None) -> tuple[Any, ...]:
    return file_system_pairs.effects(made, studies.measured(made, values), metric)


def test_the_slower_side_is_named_with_an_interval(tmp_path: Path) -> None:
    made = _study(tmp_path)
    noise = np.random.default_rng(1).normal(0, 0.01, (2, 4))
    (effect,) = _effects(made, lambda point, repeat: float((100, 80)[point] * np.exp(noise[point, repeat])))
    assert effect.better == "A"
    assert effect.low < 0.8 < effect.high < 1
    assert effect.ratio == pytest.approx(0.8, rel=0.03)
    assert ab_rows.verdict(made, (effect,)).startswith("B (/new) is slower: 0.8")
    assert _effects(made, lambda point, _: (100.0, 80.0)[point], "wall_s")[0].ratio == pytest.approx(0.8)


def test_what_drifts_meanwhile_is_no_difference(tmp_path: Path) -> None:
    """The rate halves from pair to pair. Within a pair both sides are alike, but for noise."""
    made = _study(tmp_path)
    noise = np.random.default_rng(2).normal(0, 0.01, (2, 4))
    (effect,) = _effects(made, lambda point, repeat: float(100 * 0.5**repeat * np.exp(noise[point, repeat])))
    assert effect.better is None
    assert 0.95 < effect.low < 1 < effect.high < 1.05
    assert "No difference beyond noise" in ab_rows.verdict(made, (effect,))


def test_several_settings_come_to_one_effect(tmp_path: Path) -> None:
    made = _study(tmp_path, "reader.read_threads=1,2")
    noise = np.random.default_rng(4).normal(0, 0.005, (4, 4))
    one, two, whole = _effects(
        made, lambda point, repeat: float((100, 90, 300, 240)[point] * np.exp(noise[point, repeat]))
    )
    assert (one.setting, two.setting, whole.setting) == ("reader.read_threads=1", "reader.read_threads=2", "")
    assert whole.ratio == pytest.approx(np.sqrt(0.9 * 0.8), rel=0.01)
    assert whole.low < whole.ratio < whole.high < 1
    assert (whole.pairs, whole.a) == (8, None)


def _noisy(made: study.Study, *noises: float) -> tuple[Any, ...]:
    """Return the effects of settings without any difference. noises: standard deviation of each setting."""
    logs = np.random.default_rng(8).normal(0, 1, (len(made.points), made.repeat))
    return _effects(made, lambda point, repeat: float(100 * np.exp(noises[point // 2] * logs[point, repeat])))


def test_intervals_of_several_settings_are_said_to_be_simultaneous(tmp_path: Path) -> None:
    """Two settings with four pairs have 6 degrees of freedom; each interval is wrong with a probability of 1.25 %."""
    made = _study(tmp_path, "reader.read_threads=1,2")
    one, two, whole = _noisy(made, 0.05, 0.05)
    assert one.is_noise_shared
    assert one.noise == two.noise == whole.noise
    half = students_t.quantile(1 - 0.0125 / 2, 6) * np.log1p(one.noise) / np.sqrt(4)
    assert np.log(one.high / one.low) / 2 == pytest.approx(half)
    (text,) = ab_rows.noise((one, two, whole))
    assert text.startswith("Intervals are simultaneous")
    assert "noise that the settings share" in text
    assert ab_rows.noise((one,)) == []


def test_settings_that_do_not_share_their_noise_have_their_own(tmp_path: Path) -> None:
    made = _study(tmp_path, "reader.read_threads=1,2")
    quiet, noisy, whole = _noisy(made, 0.01, 0.3)
    assert not whole.is_noise_shared
    assert (whole.noise, whole.low is None) == (None, False)
    assert noisy.noise > 10 * quiet.noise
    half = students_t.quantile(1 - 0.0125 / 2, 3) * np.log1p(noisy.noise) / np.sqrt(4)
    assert np.log(noisy.high / noisy.low) / 2 == pytest.approx(half)
    assert "The noise of the settings may differ" in ab_rows.noise((quiet, noisy, whole))[0]


def test_a_single_slower_setting_is_in_the_verdict(tmp_path: Path) -> None:
    made = _study(tmp_path, "reader.read_threads=1,2")
    noise = np.random.default_rng(9).normal(0, 0.01, (4, 4))
    effects = _effects(made, lambda point, repeat: float((100, 80, 80, 100)[point] * np.exp(noise[point, repeat])))
    assert [effect.better for effect in effects] == ["A", "B", None]
    verdict = ab_rows.verdict(made, effects)
    assert "No difference beyond noise between A and B over all settings" in verdict
    assert "But B is slower with reader.read_threads=1 (B / A 0.8" in verdict


def test_one_pair_or_pairs_without_noise_claim_nothing(tmp_path: Path) -> None:
    (effect,) = _effects(_study(tmp_path, repeat=1), lambda point, _: (100.0, 50.0)[point])
    assert (effect.better, effect.low, effect.pairs) == (None, None, 1)
    (effect,) = _effects(_study(tmp_path), lambda point, _: (100.0, 50.0)[point])
    assert effect.better is None


def test_a_missing_half_leaves_its_pair_out(tmp_path: Path) -> None:
    made = _study(tmp_path)
    (effect,) = _effects(made, lambda point, repeat: None if (point, repeat) == (1, 2) else 100.0 + point + repeat)
    assert effect.pairs == 3
    assert _effects(made, lambda point, _: 100.0 if point == 0 else None) == ()


def test_a_plain_study_has_no_sides(tmp_path: Path) -> None:
    made = studies.make(tmp_path, studies.asked("demo", "reader.read_threads=1,2"))
    assert _effects(made, lambda *_: 1.0) == ()
    assert ab_stragglers.of_study(made, []) == ()


def test_a_node_that_is_slow_every_time_is_a_straggler_and_one_bad_night_is_none() -> None:
    runs = [{"n1": 100.0, "n2": 101.0, "n3": 60.0, "n4": 99.0} for _ in range(4)]
    runs[0]["n1"] = 20.0
    slowest, *others = stragglers.members(runs)
    assert (slowest.name, slowest.is_straggler, slowest.runs) == ("n3", True, 4)
    assert slowest.ratio == pytest.approx(0.6, rel=0.02)
    assert not any(member.is_straggler for member in others)
    assert stragglers.members([{"n1": 1.0}]) == ()
    assert stragglers.members([]) == ()


def test_nodes_are_told_by_what_their_ranks_read_while_they_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file.create_group("activity").attrs["timed"] = True
        file["ranks/host"] = [b"n1", b"n1", b"n2"]
        file["ranks/bytes_read"] = np.array([4, 2, 3], np.uint64) * 10**6
        file["ranks/io_time"] = [1.0, 2.0, 3.0]
        assert stragglers.by_node(Recorded(file)) == {"n1": 2.0, "n2": 1.0}
        file["activity"].attrs["timed"] = False
        assert stragglers.by_node(Recorded(file)) == {}


def test_targets_are_told_by_the_files_on_them() -> None:
    kind = np.dtype([("id", "<u8"), ("rank", "<i8"), ("BYTES_READ", "<i8"), ("F_READ_TIME", "<f8")])
    rows = np.array([(1, 0, 8_000_000, 1.0), (1, 1, 8_000_000, 1.0), (2, 0, 8_000_000, 4.0), (9, 0, 5, 5.0)], kind)
    log = Log(
        Path("x"), "", None, {}, {1: "/d/a.npz", 2: "/d/b.npz", 9: "/lib"}, {"POSIX": rows}, {}, [], {}  # type: ignore[arg-type]
    )  # fmt: skip
    bandwidths = stragglers.by_target(log, {"a.npz": (0, 1), "b.npz": (1, 2)})
    assert bandwidths == {"OST 0": 8.0, "OST 1": pytest.approx(12 / 3), "OST 2": 2.0}
    assert stragglers.by_target(log._replace(counted={}), {"a.npz": (0,)}) == {}


def test_targets_of_each_file_are_recorded_unless_they_are_too_many() -> None:
    few, many = (LayoutComponent(None, count, 1 << 20, "raid0", None, 0, tuple(range(count))) for count in (2, 9))
    assert layout_record.targets({"/d/a": (few,), "/d/b": (few, few)}) == {"a": (0, 1), "b": (0, 1)}
    assert layout_record.targets({"/d/a": (few,), "/d/b": (many,)}) == {}


def test_the_report_says_which_is_which(tmp_path: Path) -> None:
    made = _study(tmp_path)
    noise = np.random.default_rng(5).normal(0, 0.01, (2, 4))
    studies.write(made, lambda point, repeat: float((100, 200)[point] * np.exp(noise[point, repeat])))
    report = study_report.make(study_outcome.outcome(made, study_outcome.jobs(made)))
    content = serialization.plain(studies_document.of_study(report))
    assert content["effects"][0]["better"] == "B"
    assert [side["data"] for side in content["stragglers"]] == list(FOLDERS)
    assert ab_rows.sides(report.sides) == ["A is /old", "B is /new"]
    assert "A (/old) is slower: 0.498 x B by samples/s (B / A 2.01, 95 % interval" in ab_rows.verdict(
        made, report.effects
    )
    assert report.advice == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--ab", "a", "a"), "are the same folder"),
        (("--ab", "a", "b", "-d", "c"), "leave --data out"),
    ],
)
def test_what_cannot_be_compared_is_refused(run: Run, options: tuple[str, ...], complaint: str) -> None:
    done = run("dlio-submit", "demo", "-s", "local", *options, "--dry-run")
    assert done.code == 2
    assert complaint in done.err


def test_a_throttled_file_system_is_named(run: Run, small: Path, tmp_path: Path) -> None:
    """Each read below B takes 20 ms more, as on a slow disk."""
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow/sitecustomize.py").write_text(throttle.below(tmp_path / "new"))
    environment = f"site.environment={{PYTHONPATH: {tmp_path / 'slow'}}}"
    done = run(
        "dlio-submit", small, "-s", "local", "--ppn", 2, "--ab", tmp_path / "old", tmp_path / "new",
        "-S", environment, "-S", "compute.time=0", "--wait", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    (effect,) = done.json["effects"]
    assert (effect["better"], effect["pairs"]) == ("A", 4)
    assert effect["high"] < 0.8
    folder = next(path for path in (tmp_path / "dlio-runs").iterdir() if (path / "study.json").exists())
    shown = run("dlio-hpc", "report", folder if not (folder / "job.json").exists() else folder.name.rpartition("-")[0])
    assert f"B ({tmp_path / 'new'}) is slower" in " ".join(shown.out.split())


def test_a_half_of_one_side_cannot_be_a_study(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing would be read"):
        packing.plans(studies.make(tmp_path, studies.asked(
            "demo", settings=("reader.drop_last=true", "reader.batch_size=1000"), folders=FOLDERS)))  # fmt: skip
