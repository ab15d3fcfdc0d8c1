"""The I/O of two programs is compared by the paper's measure and by sharper ones; known pairs score as expected."""

import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlio_hpc.base.errors import ConfigError, DlioError, InvalidRun
from dlio_hpc.config import shipped
from dlio_hpc.programs.reports import program_profiles, similarity_rows
from dlio_hpc.programs.similarity import io_profile, reference_profile, request_distance, similarity
from dlio_hpc.programs.similarity.io_profile import SLACK, Profile
from dlio_hpc.programs.similarity.request_distance import Grain, RequestDistribution
from dlio_hpc.programs.similarity.similarity import FACTORS, PAPER, PATTERN, Score, Similarity
from tests.conftest import Run, runner
from tests.support.places import LOGS
from tests.support.standins import darshanlog, libdarshan
from tests.support.standins.darshanlog import Traced

KIB = 1024


def _profile(title: str = "x", **factors: Any) -> Profile:
    return Profile(title, "reference", "", "made up", **factors)


def _published(name: str) -> dict[str, Profile]:
    return {reference.name: io_profile.of_reference(reference) for reference in reference_profile.load(name)}


def _loaded(path: Path | str, run: str | None = None, only: str | None = None) -> Profile:
    return program_profiles.load(str(path), Path(path), run, only)


def test_the_papers_arithmetic() -> None:
    """The vectors are (1, 0.5) and (0.5, 1)."""
    comparison = similarity.compare(_profile(io_s=10.0, bytes=3.0), _profile(io_s=5.0, bytes=6.0))
    assert comparison.paper.cosine == pytest.approx((1 * 0.5 + 0.5 * 1) / (1 + 0.25))
    assert {factor.name: factor.difference for factor in comparison.factors if factor.difference is not None} == {
        "io_s": 0.5,
        "bytes": -0.5,
    }
    assert comparison.paper.ratio == pytest.approx(0.5)


def test_figure_8_is_signed_as_its_caption_says() -> None:
    """(Baseline - DLIO) / max: a benchmark with less of something has a positive difference."""
    factor = next(
        candidate
        for candidate in similarity.compare(_profile(files=100), _profile(files=134)).factors
        if candidate.difference is not None
    )
    assert factor.difference == pytest.approx(-34 / 134)


def test_what_is_zero_in_both_is_equal_and_turns_no_vector() -> None:
    comparison = similarity.compare(
        _profile(request_min=0, request_max=4, files=1), _profile(request_min=0, request_max=1, files=1)
    )
    one, other = np.array([1.0, 1.0]), np.array([0.25, 1.0])
    assert comparison.paper.cosine == pytest.approx(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
    assert comparison.pattern.ratio == pytest.approx((1 + 0.25) / 2)
    nothing = similarity.compare(_profile(io_s=0.0), _profile(io_s=0.0)).paper
    assert (nothing.cosine, nothing.ratio) == (1.0, 1.0)
    assert similarity.compare(_profile(io_s=0.0), _profile(io_s=1.0)).paper.cosine == 0.0


def _of_sizes(sizes: list[int]) -> Profile:
    return _profile(**io_profile.of_lengths(np.array(sizes)))


def test_one_request_in_a_hundred_makes_no_other_pattern() -> None:
    """Shares below one in a hundred count as that; a median counts where one in a hundred requests would move it."""

    def apart(name: str, a: Profile, b: Profile) -> tuple[float | None, float | None]:
        (factor,) = (candidate for candidate in similarity.compare(a, b).factors if candidate.name == name)
        (swapped,) = (candidate for candidate in similarity.compare(b, a).factors if candidate.name == name)
        assert factor.apart == swapped.apart
        return factor.difference, factor.apart

    assert apart("consecutive", _profile(consecutive=0.002), _profile(consecutive=0.004)) == (-0.5, 0.0)
    assert apart("sequential", _profile(sequential=0.0), _profile(sequential=0.05))[1] == pytest.approx(0.8)
    halves, one_more = (_of_sizes([0] * count + [9600] * 5 + [76_800] * 500) for count in (500, 506))
    assert (halves.request_median, one_more.request_median) == (9600, 0)
    assert apart("request_median", halves, one_more) == (1.0, 0.0)
    assert apart("request_median", halves, _of_sizes([4096] * 600 + [76_800] * 400))[1] == 0.0
    assert apart("request_median", _of_sizes([4096] * 520 + [76_800] * 480), _of_sizes([76_800] * 10))[1] == (
        pytest.approx(1 - 4096 / 76_800)
    )


def test_what_one_of_them_lacks_is_left_out_and_said() -> None:
    comparison = similarity.compare(_profile(io_s=1.0, request_max=5), _profile(request_max=5, files=3))
    assert comparison.paper == Score(1.0, 1.0, tuple(name for name in PAPER if name != "request_max"))
    assert similarity.compare(_profile(io_s=1.0), _profile(files=1)).paper == Score(None, None, PAPER)


_VALUES = st.one_of(st.none(), st.just(0.0), st.floats(1e-6, 1e15))
_PROFILES = st.builds(lambda values: _profile(**values), st.fixed_dictionaries(dict.fromkeys(FACTORS, _VALUES)))


def _scores(comparison: Similarity) -> list[float | None]:
    return [comparison.paper.cosine, comparison.paper.ratio, comparison.pattern.cosine, comparison.pattern.ratio]


@given(_PROFILES, _PROFILES)
def test_scores_lie_between_none_and_one_whoever_comes_first(a: Profile, b: Profile) -> None:
    comparison, swapped = similarity.compare(a, b), similarity.compare(b, a)
    assert _scores(comparison) == pytest.approx(_scores(swapped))
    assert all(score is None or -1e-12 <= score <= 1 for score in _scores(comparison))
    for one, other in zip(comparison.factors, swapped.factors, strict=True):
        assert (one.a, one.b) == (other.b, other.a)
        assert one.difference is None or one.difference == -(other.difference or 0.0)


@given(_PROFILES)
def test_everything_is_like_itself(a: Profile) -> None:
    assert all(score is None or score == pytest.approx(1) for score in _scores(similarity.compare(a, a)))


@given(_PROFILES, _PROFILES)
def test_pattern_is_one_for_equal_patterns_alone(a: Profile, b: Profile) -> None:
    comparison = similarity.compare(a, b)
    known = [name for name in PATTERN if name not in comparison.pattern.left_out]
    least = {"sequential": SLACK, "consecutive": SLACK}
    pairs = [[max(getattr(profile, name), least.get(name, 0.0)) for profile in (a, b)] for name in known]
    if comparison.pattern.ratio is not None:
        equal = all(math.isclose(one, other, rel_tol=1e-9) for one, other in pairs)
        assert (comparison.pattern.ratio > 1 - 1e-10) == equal


@given(_PROFILES, _PROFILES, st.floats(0.01, 100))
def test_units_do_not_matter(a: Profile, b: Profile, scale: float) -> None:
    def scaled(profile: Profile) -> Profile:
        values: dict[str, Any] = {name: getattr(profile, name) for name in FACTORS}
        has_none = ("sequential", "consecutive")
        return _profile(
            "x",
            **{name: value if value is None or name in has_none else scale * value for name, value in values.items()},
        )

    assert _scores(similarity.compare(scaled(a), scaled(b))) == pytest.approx(_scores(similarity.compare(a, b)))


def _sizes(*sizes: int, grain: Grain = Grain.EXACT) -> RequestDistribution:
    return request_distance.of_sizes(np.array(sizes), np.ones(len(sizes)), grain)


def test_distances_are_octaves() -> None:
    small, large = _sizes(4 * KIB), _sizes(64 * KIB)
    distance = request_distance.distance(small, large)
    assert distance is not None
    assert (distance.octaves, distance.closeness, distance.grain) == (4.0, 1 / 16, Grain.EXACT)
    mixed = request_distance.distance(small, _sizes(4 * KIB, 64 * KIB, 64 * KIB, 4 * KIB))
    assert mixed is not None
    assert mixed.octaves == pytest.approx(2.0), "half of the requests go four octaves"
    assert request_distance.distance(_sizes(), small) is None


_MANY = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=30)


@given(_MANY, _MANY, _MANY)
def test_distances_are_distances(one: list[int], other: list[int], third: list[int]) -> None:
    def apart(a: list[int], b: list[int]) -> float:
        distance = request_distance.distance(_sizes(*a), _sizes(*b))
        assert distance is not None
        return distance.octaves

    assert apart(one, list(reversed(one))) == pytest.approx(0)
    assert apart(one, one + one) == pytest.approx(0), "shares count, not numbers"
    assert apart(one, other) == pytest.approx(apart(other, one))
    assert apart(one, third) <= apart(one, other) + apart(other, third) + 1e-9


@given(st.lists(st.integers(1, 1 << 39), min_size=1, max_size=30))
def test_the_same_requests_known_less_well_are_no_way_apart(sizes: list[int]) -> None:
    edges = 2.0 ** (np.arange(161) / 4)
    counts, _ = np.histogram(sizes, edges)
    quarters = request_distance.of_sizes(edges[:-1], counts, Grain.QUARTER)
    last = np.array([100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30, 1 << 62])
    bins = np.bincount(np.searchsorted(last, sizes), minlength=10)
    for coarse in (quarters, request_distance.of_sizes(last, bins, Grain.DARSHAN)):
        distance = request_distance.distance(_sizes(*sizes), coarse)
        assert distance is not None
        assert distance.grain == coarse.grain
        assert distance.octaves == pytest.approx(0, abs=1e-9)


def test_unrelated_applications_score_as_the_documentation_says() -> None:
    """Scores on 128 nodes are 0.30 to 0.76, CosmoFlow and ImageNet 0.91; two scales of one application 0.79 or more."""
    large, small = _published("theta_128_nodes"), _published("theta_8_nodes")
    names = list(large)
    cosines = {
        (one, other): similarity.compare(large[one], large[other]).paper.cosine or 0.0
        for at, one in enumerate(names)
        for other in names[at + 1 :]
    }
    assert round(cosines.pop(("cosmoflow", "imagenet")), 2) == 0.91
    assert (round(min(cosines.values()), 2), round(max(cosines.values()), 2)) == (0.30, 0.76)
    known = similarity.yardsticks()
    assert (known.paper.strangers.pairs, known.paper.kindred.pairs) == (21, len(small))
    assert round(known.paper.kindred.least, 2) == 0.79


def test_patterns_tell_apart_what_the_papers_cosine_does_not() -> None:
    known = similarity.yardsticks()
    assert known.pattern.kindred.median > 0.98
    assert known.pattern.strangers.median < 0.4 < known.pattern_cosine.strangers.median
    assert known.pattern.strangers.most < 0.92, "three that stream 256 KiB, told apart by their samples"


def test_pairs_are_held_against_others_by_the_same_factors() -> None:
    """Without their samples, programs that stream 256 KiB cannot be told apart, and the yardstick says so."""
    assert similarity.yardsticks(("bytes_per_sample",)).pattern.strangers.most > 0.99
    assert similarity.yardsticks(PATTERN).pattern == similarity.yardsticks().pattern, "where nothing is left"
    assert similarity.yardsticks(("io_s",)).paper != similarity.yardsticks().paper


def test_each_published_application_is_nearest_to_itself_at_another_scale() -> None:
    small, large = (list(_published(name).values()) for name in ("theta_8_nodes", "theta_128_nodes"))
    assert all(row.finds_own for row in similarity.matrix(small, large).rows)


def test_the_papers_own_emulation_of_candle_is_far_from_candle() -> None:
    """The emulation reads 8 KiB a request where pandas reads 256 KiB; its cosine does not show that."""
    comparison = similarity.compare(_published("theta_8_nodes_dlio")["candle"], _published("theta_8_nodes")["candle"])
    assert comparison.pattern.ratio is not None
    assert comparison.pattern.ratio < 0.4


def test_what_was_asked_for_is_told_from_what_was_seen() -> None:
    """Bytes per sample tell streams of 256 KiB apart; observed factors do not."""
    large = list(_published("theta_128_nodes").values())
    candle = next(profile for profile in large if profile.application == "candle")
    emulation = replace(candle, title="mine")
    made = similarity.matrix([emulation], large)
    (row,), (observed,) = made.rows, similarity.as_seen(made).rows
    assert (row.finds_own, row.is_tied) == (True, False)
    assert (observed.finds_own, observed.is_tied, len(observed.nearest)) == (True, True, 3)
    assert similarity_rows.found_own(made) == (
        "1 of 1 are nearest to their own application. Compared by observed factors only, without the bytes per "
        "sample, which the workload specifies: 1 of 1 (1 of them tied)."
    )


def test_a_row_is_judged_by_what_all_columns_know() -> None:
    """Otherwise a profile with fewer factors would be nearer."""
    one = _profile("one", request_max=100, request_mean=100)
    full, poor = _profile("full", request_max=100, request_mean=50), _profile("poor", request_max=90)
    made = similarity.matrix([one], [full, poor])
    (row,) = made.rows
    assert made.left_out == set(PATTERN) - {"request_max"}
    assert row.scores == [1.0, pytest.approx(0.9)]
    assert (row.nearest, "request_mean" in row.left_out) == ([0], True)
    assert (row.finds_own, row.own) == (None, [])


def test_a_log_is_like_itself_and_like_another_of_the_same_program() -> None:
    """The same npz run is alike under Darshan's release and its main branch; a run on TFRecords is not."""
    npz, again, other = (_loaded(LOGS / f"{name}.darshan") for name in ("mpi4_npz", "main_dxtv2_npz", "mpi4_tfrecord"))
    itself = similarity.compare(npz, npz)
    assert itself.paper.cosine == pytest.approx(1)
    assert itself.pattern.ratio == 1.0
    assert [part.octaves for part in (itself.sizes, itself.volumes, itself.jumps) if part] == [0.0, 0.0, 0.0]
    same = similarity.compare(npz, again)
    assert same.sizes is not None
    assert same.jumps is not None
    assert same.pattern.ratio == pytest.approx(1, abs=0.01)
    assert same.sizes.octaves == pytest.approx(0, abs=0.05)
    assert same.jumps.octaves == pytest.approx(0, abs=0.5)
    strange = similarity.compare(npz, other)
    assert strange.sizes is not None
    assert strange.pattern.ratio is not None
    assert strange.pattern.ratio < 0.6
    assert strange.sizes.octaves > 2


def _log(path: Path, traces: list[Traced], **changes: Any) -> Path:
    """Shares are those of the traces: the first request of each is neither sequential nor consecutive."""
    rows = darshanlog.counters_of(traces)
    for trace, (_, _, values) in zip(traces, rows, strict=True):
        reads = trace.reads
        gaps = [after[0] - before[0] - before[1] for before, after in itertools.pairwise(reads)]
        values["SEQ_READS"] = sum(gap >= 0 for gap in gaps)
        values["CONSEC_READS"] = sum(gap == 0 for gap in gaps)
    darshanlog.write(path, 2, traces, counted=rows, **changes)
    return path


def _stream(file: str, rank: int, size: int, count: int, stride: int | None = None) -> Traced:
    step = size if stride is None else stride
    return Traced(file, rank, [[at * step, size, 0.1 * at, 0.1 * at + 0.01] for at in range(count)])


def test_offsets_between_requests_are_of_one_file_and_rank(tmp_path: Path) -> None:
    """Requests of 100 bytes jump by 0, 900 and -1100 bytes; another rank and file do not mix in."""
    reads = [[0, 100, 0.0, 0.1], [100, 100, 0.2, 0.3], [1100, 100, 0.4, 0.5], [100, 100, 0.6, 0.7]]
    traces = [Traced("/d/a", 0, reads), _stream("/d/a", 1, 100, 3), Traced("/d/b", 0, [[7, 100, 0.15, 0.16]])]
    profile = _loaded(_log(tmp_path / "x.darshan", traces))
    assert profile.jumps is not None
    expected = {0.0: 3 / 5, math.log2(901): 1 / 5, -math.log2(1101): 1 / 5}
    assert dict(zip(profile.jumps.at.tolist(), profile.jumps.weight.tolist(), strict=True)) == pytest.approx(expected)
    assert (profile.request_min, profile.request_max, profile.request_median, profile.files) == (100, 100, 100, 2)
    assert profile.sequential == pytest.approx(4 / 8)
    assert profile.consecutive == pytest.approx(3 / 8)
    assert profile.rate_mean == pytest.approx((4 * 100 / 0.1 + 4 * 100 / 0.01) / 8 / 1e6, rel=0.001)


def test_order_in_time_is_what_counts(tmp_path: Path) -> None:
    backwards = Traced("/d/a", 0, [[100, 100, 0.5, 0.6], [0, 100, 0.1, 0.2]])
    profile = _loaded(_log(tmp_path / "x.darshan", [backwards]))
    assert profile.jumps is not None
    assert profile.jumps.at.tolist() == [0.0]


def test_candle_against_frnn_scores_low_in_the_sharper_measures(tmp_path: Path) -> None:
    """The negative control: one program streams 256 KiB, the other reads 4 MiB and often 255 bytes."""
    candle = _log(tmp_path / "candle.darshan", [_stream("/d/train.csv", rank, 256 * KIB, 500) for rank in (0, 1)])
    archives = [_stream(f"/d/{number}.npz", number % 2, 4 << 20, 2) for number in range(20)]
    lists = [_stream("/d/signals", rank, 255, 100, 40_000) for rank in (0, 1)]
    comparison = similarity.compare(_loaded(candle), _loaded(_log(tmp_path / "frnn.darshan", [*archives, *lists])))
    assert comparison.pattern.ratio is not None
    assert comparison.pattern.ratio < 0.5
    assert comparison.sizes is not None
    assert comparison.sizes.closeness < 0.05
    assert comparison.jumps is not None
    assert comparison.jumps.octaves > 5


def test_the_same_program_at_another_scale_has_the_same_pattern(tmp_path: Path) -> None:
    few, many = (
        _log(tmp_path / f"{count}.darshan", [_stream("/d/a.csv", rank, 256 * KIB, count) for rank in (0, 1)])
        for count in (400, 4000)
    )
    comparison = similarity.compare(_loaded(few), _loaded(many))
    assert comparison.pattern.ratio == pytest.approx(1, abs=0.001)
    assert comparison.sizes is not None
    assert comparison.sizes.octaves == 0
    assert comparison.paper.cosine is not None
    assert comparison.paper.cosine < 0.95, "the paper's has bytes and time in it"


def test_programs_and_libraries_are_no_data(tmp_path: Path) -> None:
    data = _stream("/d/a.h5", 0, 4096, 10)
    others = ["/opt/lib/python3.11/os.pyc", "/v/lib/python3.11/site-packages/h5py/defs.txt", "/lib/libz.so.1",
              "/usr/lib/libc.so", "/proc/self/maps", "/home/me/train.py"]  # fmt: skip
    path = _log(tmp_path / "x.darshan", [data, *(_stream(other, 0, 10, 10) for other in others)])
    assert (_loaded(path).files, _loaded(path).bytes) == (1, 40960)
    assert _loaded(path, only="[.]py").files == 2
    with pytest.raises(ConfigError, match=r"no I/O on files whose path has 'nowhere'; select the files with --only"):
        _loaded(path, only="nowhere")
    programs = _log(tmp_path / "y.darshan", [_stream("/home/me/train.py", 0, 10, 10)])
    with pytest.raises(ConfigError, match="no I/O on files other than programs and libraries"):
        _loaded(programs)


def test_counters_alone_know_sizes_by_darshans_bins(tmp_path: Path) -> None:
    traces = [_stream("/d/a", 0, 256 * KIB, 50)]
    rows = darshanlog.counters_of(traces)
    rows[0][2].update({"SIZE_READ_100K_1M": 50, "SEQ_READS": 49, "CONSEC_READS": 49})
    darshanlog.write(tmp_path / "counters.darshan", 1, [], counted=rows)
    counted, traced = _loaded(tmp_path / "counters.darshan"), _loaded(_log(tmp_path / "traced.darshan", traces))
    assert (counted.request_mean, counted.request_median, counted.rate_mean) == (256 * KIB, None, None)
    assert any(note.startswith("DXT missing") for note in counted.notes)
    comparison = similarity.compare(counted, traced)
    assert comparison.sizes is not None
    assert (comparison.sizes.octaves, comparison.sizes.grain) == (0.0, Grain.DARSHAN)
    assert comparison.jumps is None
    assert comparison.pattern.ratio == pytest.approx(1)
    assert comparison.pattern.left_out == ("request_min", "request_max", "request_median", "bytes_per_sample")


@pytest.mark.parametrize(("few", "apart"), [(0, 0.0), (9, 0.0), (30, 1 - 8 / 4096)])
def test_a_few_small_requests_are_no_difference(few: int, apart: float) -> None:
    """One program reads 1,000 blocks, the other some small pieces as well, such as the end of each file."""
    blocks = np.full(1000, 4096)
    one, other = (
        replace(Profile("x", "log", "x", "x"), **io_profile.of_lengths(lengths))
        for lengths in (blocks, np.concatenate((blocks, np.full(few, 8))))
    )
    factors = {factor.name: factor for factor in similarity.compare(one, other).factors}
    assert factors["request_min"].apart == pytest.approx(apart)
    binned = similarity.compare(io_profile.by_bins(one), io_profile.by_bins(other))
    assert {factor.name: factor.apart for factor in binned.factors}["request_min"] == pytest.approx(apart, abs=0.01)


@pytest.mark.parametrize(
    ("log", "message"), [("mpi4_forkcorrupt", "counters disagree"), ("mpi4_npz_truncated", "truncated")]
)
def test_a_log_that_is_not_whole_is_not_compared(log: str, message: str) -> None:
    with pytest.raises(InvalidRun, match=f"is incomplete, so it is not compared: {message}"):
        _loaded(LOGS / f"{log}.darshan")


def test_a_trace_that_is_cut_leaves_the_counters() -> None:
    profile = _loaded(LOGS / "mpi4_dxtpartial.darshan")
    assert profile.source == "Darshan's counters (no complete trace)"
    assert any(note.startswith("DXT cut") for note in profile.notes)
    assert (profile.request_median, profile.jumps) == (None, None)


GOOD = """\
profiles:
  mine: {io_time_s: 2, request_bytes: {mean: 5, max: 10}, sequential_pct: 90, consecutive_pct: 80, note: by hand}
"""


def test_a_study_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(ConfigError, match="is a study of several jobs; give the directory or archive of one of them"):
        _loaded(tmp_path)


def test_all_logs_of_a_program_are_one_profile(run: Run, tmp_path: Path) -> None:
    """A folder of logs or a pattern in quotes stands for a program without MPI."""
    for log in (LOGS / "apps").glob("torch_loader*"):
        shutil.copy(log, tmp_path)
    parts = [_loaded(log) for log in sorted(tmp_path.glob("*.darshan"))[1:]]  # the first reads no data
    whole = _loaded(tmp_path)
    assert whole.bytes == sum(part.bytes or 0 for part in map(_loaded, tmp_path.glob("*.darshan")))
    assert (whole.files or 0) > max(part.files or 0 for part in parts)
    assert whole.notes[0] == "3 logs, read as the logs of the processes of one program"
    matched = _loaded(f"{tmp_path}/torch*")
    assert (matched.bytes, matched.jumps is not None) == (whole.bytes, True)
    assert similarity.compare(matched, whole).paper.cosine == pytest.approx(1)
    done = run("dlio-hpc", "similarity", ".", "torch_*.darshan")
    assert done.code == 0, done.err
    assert "Note on B: 3 logs, read as the logs of the processes of one program" in done.out
    rows = run("dlio-hpc", "similarity", "--matrix", ".", LOGS / "mpi4_npz.darshan", "--json").json["rows"]
    assert [row["title"] for row in rows] == [".", str(LOGS / "mpi4_npz.darshan")]


def test_what_stands_for_no_program_is_told(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no log matches 'none_\*'"):
        _loaded("none_*")
    with pytest.raises(ConfigError, match="comes from an MPI program: pass it on its own"):
        _loaded(LOGS)
    odd = tmp_path / "a[1].darshan"
    shutil.copy(LOGS / "mpi4_npz.darshan", odd)
    assert _loaded(odd).ranks == 4, "a file of that name is nearer than a pattern"
    done = run("dlio-hpc", "similarity", "a", "b", "c")
    assert "Several logs of one program: give their folder, or a pattern in quotes" in done.err


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(GOOD)
    profile = _loaded(path)
    assert (profile.title, profile.application, profile.notes) == (f"{path}:mine", "mine", ("by hand",))
    assert (profile.sequential, profile.request_median, profile.bytes) == (0.9, None, None)
    assert _loaded(f"{path}:mine") == profile


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("io_time_s", "io_time"), "profiles.mine: unknown key 'io_time'; did you mean 'io_time_s'?"),
        (GOOD.replace("mean: 5", "mean: 50"), "profiles.mine.request_bytes: mean 50 is more than max 10"),
        (GOOD.replace("mean: 5", "mean: x"), "profiles.mine.request_bytes.mean: found text"),
        (GOOD.replace("pct: 90", "pct: 190"), "profiles.mine.sequential_pct: found 190; use a number from 0 to 100"),
        (
            GOOD.replace("pct: 80", "pct: 95"),
            "consecutive_pct 95 is more than sequential_pct 90, which",
        ),
        (
            "profiles: {mine: {ranks: 4}}",
            "profiles.mine: the profile has no metrics; give at least one, such as io_time_s",
        ),
        ("profiles: {}", "profiles: empty"),
        ("nothing: 1", "unknown key 'nothing'; known keys: profiles, description, source"),
        ("- 1", "found the list [1]; use a mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_what_is_wrong_with_a_profile_is_told_by_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as fault:
        _loaded(path)
    assert str(fault.value).startswith(str(path))
    assert message in str(fault.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "no job or study 'nowhere' in .; give a name in that folder, or"),
        ("theta_128_nodes", "has several profiles (candle, climate"),
        ("theta_128_nodes:alexnet", "has no profile 'alexnet'; it has: candle, climate"),
        ("nowhere.yaml:x", "cannot read nowhere.yaml"),
        (".", "is not a job directory"),
    ],
)
def test_names_that_are_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DlioError) as fault:
        _loaded(name)
    assert message in str(fault.value)


def test_all_that_is_shipped_is_sound_and_has_a_source() -> None:
    assert shipped.names(shipped.REFERENCES) == ["theta_128_nodes", "theta_8_nodes", "theta_8_nodes_dlio"]
    for name in shipped.names(shipped.REFERENCES):
        for entry in reference_profile.load(name):
            assert "vanidl" in entry.source
            assert None not in (entry.reference.ranks, entry.reference.files, entry.reference.request_bytes.median)


def test_a_file_of_the_same_name_is_nearer_than_what_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(LOGS / "mpi4_npz.darshan", tmp_path / "theta_128_nodes")
    assert _loaded("theta_128_nodes").kind == "log"


def test_a_pair_on_the_terminal_and_as_a_page(run: Run, tmp_path: Path) -> None:
    done = run(
        "dlio-hpc", "similarity", LOGS / "mpi4_npz.darshan", LOGS / "mpi4_tfrecord.darshan", "--html", "pair.html",
        "--figures", "pictures",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines()[1:])) <= 100  # the first line may be the subject of a mail
    for text in ("(A-B)/larger", "cosine of the DLIO paper", "0.30 to 0.91", "doublings apart", "unknown for A or B"):
        assert text in done.out
    page = (tmp_path / "pair.html").read_text()
    assert page.count("<svg") == 3
    assert "share of all requests" in page
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert names == {f"similarity-{what}.{kind}" for what in ("sizes", "volumes", "jumps") for kind in ("svg", "png")}


def test_a_reference_beside_a_log_is_drawn_as_lines_and_its_note_is_told(run: Run, tmp_path: Path) -> None:
    done = run("dlio-hpc", "similarity", "theta_128_nodes:ffn", LOGS / "mpi4_npz.darshan", "--html", "pair.html")
    assert done.code == 0, done.err
    assert "Note on A: the trace ran out of memory" in done.out
    assert "Whole distributions: not compared; only summary numbers are known for A." in " ".join(done.out.split())
    page = (tmp_path / "pair.html").read_text()
    assert "A has summary numbers only: lines are its median, mean and largest request" in page
    assert "the trace ran out of memory" in page


def test_the_same_as_one_document(run: Run) -> None:
    done = run("dlio-hpc", "similarity", "theta_128_nodes:cosmoflow", "theta_128_nodes:imagenet", "--json")
    document = done.json
    assert round(document["paper"]["cosine"], 2) == 0.91
    assert document["published"]["paper"]["different"]["pairs"] == 21
    assert document["distances"] == {"sizes": None, "volumes": None, "jumps": None}
    assert {factor["name"] for factor in document["factors"]} == set(FACTORS)
    assert document["a"]["factors"]["files"] == 1026
    logs = run("dlio-hpc", "similarity", LOGS / "mpi4_npz.darshan", LOGS / "mpi4_npz.darshan", "--json").json
    assert logs["distances"]["sizes"] == {"octaves": 0.0, "near": 1.0, "resolution": "single requests"}
    assert logs["a"]["octaves"]["sizes"]["p50"] > 0


def test_a_matrix_says_who_is_nearest(run: Run, tmp_path: Path) -> None:
    command = ("dlio-hpc", "similarity", "--matrix", "theta_8_nodes", "--against", "theta_128_nodes")
    done = run(*command, "--html", "matrix.html")
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) <= 100
    assert "6 of 6 (3 of them tied) are nearest to their own application." in done.out
    assert "Note on theta_128_nodes:frnn: 27 GiB are too few" in done.out
    assert "6 of 6 (3 of them tied) are nearest" in (tmp_path / "matrix.html").read_text()
    rows = {row["application"]: row for row in run(*command, "--json").json["rows"]}
    assert rows["ffn"]["nearest"] == ["theta_128_nodes:ffn"]
    assert rows["frnn"]["nearest_is_own"] is True
    assert rows["ffn"]["scores"]["theta_128_nodes:ffn"] > 0.9


def test_rows_with_long_names_keep_to_the_width(run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{'a' * 60}-of-npz.darshan"
    shutil.copy(LOGS / "mpi4_npz.darshan", path)
    done = run("dlio-hpc", "similarity", "--matrix", path, "--against", "theta_128_nodes")
    line = next(line for line in done.out.splitlines() if line.startswith("...") and "of-npz " in line)
    assert len(line) <= 100


def test_a_matrix_of_everybody_leaves_out_what_a_log_does_not_know(run: Run) -> None:
    done = run("dlio-hpc", "similarity", "--matrix", "theta_128_nodes", LOGS / "mpi4_npz.darshan")
    assert done.code == 0, done.err
    assert "unknown for some programs, left out: bytes per sample" in done.out
    assert " 8  " in done.out
    assert done.out.startswith("Inconclusive: 8 programs compared with 8: nearest are ")
    assert "no row's application is among the columns" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("theta_128_nodes:ffn",), "give two programs to compare, not 1; --matrix compares any number"),
        (("theta_128_nodes:ffn", "x", "y"), "give two programs to compare, not 3"),
        (("a", "b", "--against", "c"), "--against needs --matrix"),
        (("--matrix", "theta_128_nodes:ffn"), "a matrix needs at least two programs"),
        (("--matrix", "theta_128_nodes", "--figures", "x"), "--figures draws two programs"),
        (("a", "b", "--only", "("), "is not a regular expression"),
    ],
)
def test_options_that_do_not_go_together(run: Run, arguments: tuple[str, ...], message: str) -> None:
    done = run("dlio-hpc", "similarity", *arguments)
    assert done.code == 2
    assert message in done.err


WORKLOAD = """\
name: {name}
dataset: {{format: npz, files: {files}, samples_per_file: 4, sample: {{shape: [256, 256], dtype: float32}}}}
reader: {{batch_size: 2, read_threads: 1}}
compute: {{time: 1 ms}}
train: {{epochs: 1}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run one emulation as jobs at two scales under Darshan, and once without."""
    made = tmp_path_factory.mktemp("jobs")
    library = libdarshan.install(made / "lib")
    site = ("-s", "local", "-S", f"site.darshan={library}", "-S", libdarshan.rank_environment())
    # The stand-in does not see what Python's own files write: datasets are made without it.
    for name, ranks, files, options in (
        ("bare", 1, 2, ("--no-darshan",)),
        ("small", 1, 2, ()),
        ("dataset", 2, 8, ("--no-darshan", "--generate", "only")),
        ("large", 2, 8, ()),
    ):
        (made / "w.yaml").write_text(WORKLOAD.format(name="ffn", files=files))
        done = runner(made)(
            "dlio-submit", "w.yaml", *site, "--ppn", ranks, "-d", "data", "-o", name, "--wait", "--json", *options
        )
        assert done.code == 0, done.err
    return made


def _job(folder: Path, name: str) -> Path:
    (directory,) = (folder / name).glob("ffn-*")
    return directory


def test_a_job_at_two_scales_has_one_pattern(folder: Path) -> None:
    small, large = (_loaded(_job(folder, name)) for name in ("small", "large"))
    assert (small.application, small.kind, small.ranks, large.ranks) == ("ffn", "job", 1, 2)
    assert (large.files, small.bytes_per_sample) == (8, 256 * KIB)
    comparison = similarity.compare(small, large)
    assert comparison.pattern.ratio == pytest.approx(1, abs=0.02)
    assert comparison.sizes is not None
    assert comparison.sizes.octaves == pytest.approx(0, abs=0.01)


def test_an_archive_tells_the_same_as_the_directory(folder: Path) -> None:
    (archive,) = (folder / "large/archive").glob("*.tar.zst")
    comparison = similarity.compare(_loaded(_job(folder, "large")), _loaded(archive))
    assert comparison.paper.cosine == pytest.approx(1)
    assert comparison.pattern.ratio == 1.0


def test_a_run_without_a_log_tells_what_the_core_counted(folder: Path) -> None:
    bare, watched = (_loaded(_job(folder, name)) for name in ("bare", "small"))
    assert bare.source == "the benchmark's own measurements"
    assert bare.notes[0].startswith("no Darshan log (Darshan was not used in this run)")
    comparison = similarity.compare(bare, watched)
    assert comparison.pattern.left_out == ("sequential", "consecutive")
    assert comparison.pattern.ratio == pytest.approx(1, abs=0.02)
    assert comparison.sizes is not None
    assert comparison.sizes.octaves == pytest.approx(0, abs=0.05)
    assert comparison.sizes.grain == Grain.QUARTER
    assert bare.bytes == pytest.approx(watched.bytes or 0, rel=0.01)


def test_runs_of_a_job_by_name(folder: Path) -> None:
    job = _job(folder, "small")
    assert _loaded(job, "measure").title == _loaded(job).title
    with pytest.raises(ConfigError, match=r"has no run 'other'; it has: 01-measure"):
        _loaded(job, "other")


def test_jobs_in_a_matrix_by_their_short_names(folder: Path) -> None:
    done = runner(folder)(
        "dlio-hpc", "similarity", "--matrix", _job(folder, "small").name, "-o", "small", "--against",
        "theta_128_nodes", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    (row,) = json.loads(done.out)["rows"]
    assert (row["application"], row["kind"]) == ("ffn", "job")
    assert isinstance(row["nearest_is_own"], bool)


def test_a_run_that_is_invalid_is_not_compared(folder: Path, tmp_path: Path) -> None:
    job = Path(shutil.copytree(_job(folder, "small"), tmp_path / "job"))
    path = job / "runs/01-measure/result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "faults": ["reads came from nowhere"]}))
    with pytest.raises(InvalidRun, match="reads came from nowhere"):
        _loaded(job)
