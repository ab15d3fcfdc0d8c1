"""Pictures show what the view holds. The page has the pictures and nothing from elsewhere; a browser agrees."""

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import jinja2
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import PathPatch, StepPatch
from matplotlib.text import Annotation, Text

from dlio_hpc.analysis.log.view import CallCost, HeatMap, Histogram, Lane, Ranks, Series, Steps, View
from dlio_hpc.base.units import seconds
from dlio_hpc.config import shipped
from dlio_hpc.reports import html_page, pictures
from dlio_hpc.reports.banner import Banner
from dlio_hpc.reports.figures import run_panels, study_plots
from dlio_hpc.reports.figures.canvas import COLOURS, style
from dlio_hpc.reports.page import Facts, Lines, Page, Picture, Pictures, Section, Table
from tests.support.places import ROOT

STEMS = ["heat_map", "costs", "bandwidth", "sizes", "ranks_bandwidth", "timeline", "steps", "latency", "spread"]
NASTY = '<b>&"\'</b> $x_1$ id="p1" url(#p1) \x1b\x00 \ud800 ]]> 訓練'
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def browser(test: Any) -> Any:
    """Mark a test that opens a page in Chromium."""
    skip = pytest.mark.skipif(BROWSER is None, reason="no chromium: apt-get install chromium")
    return pytest.mark.browser(skip(test))


def _lane(random: np.random.Generator, label: str, segments: int, seconds: float) -> Lane:
    both = (np.sort(random.uniform(0, seconds, 2 * segments)).reshape(-1, 2) for _ in range(2))
    shares = (np.ones(segments), random.uniform(0.05, 1, segments))
    compute, io = (np.column_stack((times, share)) for times, share in zip(both, shares, strict=True))
    return Lane(label, compute, io)


def _view(
    ranks: int = 8, bins: int = 40, steps: int = 30, segments: int = 20, requests: int = 5000, writes: bool = True
) -> View:
    """A run of a minute with checkpoints; all zero when there are no requests."""
    random = np.random.default_rng(7)
    edges = np.linspace(0, 60, bins + 1)
    read, wrote = random.gamma(4, 2e7, bins) * bool(requests), np.where(edges[:-1] > 50, 3e8, 0) * writes
    sizes, durations = np.append(0, 2.0 ** np.arange(41)), 1e-7 * 2 ** (np.arange(8 * 34 + 1) / 8)
    lengths = random.choice([512, 180_000, 300_000], requests)
    latencies = random.lognormal(np.log(1e-3), 0.8, requests)
    later = random.lognormal(np.log(3e-2), 0.5, requests // 20 * writes)
    some = bool(requests)
    return View(
        title="01-measure",
        source="timeline.h5 of dlio-hpc",
        duration_s=60.0,
        notes=["half of it came from the page cache"],
        series=Series(edges, read, wrote, np.ceil(read / 1e6), np.ceil(wrote / 1.6e7)),
        sizes=Histogram(
            sizes, np.histogram(lengths, sizes)[0], np.histogram([1 << 24] * (requests // 20 * writes), sizes)[0]
        ),
        latency=Histogram(durations, np.histogram(latencies, durations)[0], np.histogram(later, durations)[0]),
        ranks=Ranks(
            hosts=[f"nid{rank // 8:06}.example.org" for rank in range(ranks)],
            bytes_read=random.integers(4 * 10**9, 5 * 10**9, ranks) * some,
            bytes_written=np.full(ranks, 2 * 10**9) * writes * some,
            reads=np.full(ranks, 4000),
            writes=np.full(ranks, 100 * writes),
            io_s=random.normal(20, 1, ranks) * some,
            wait_s=random.gamma(4, 1, ranks) if steps else None,
        ),
        lanes=[_lane(random, f"rank {rank}", segments, 60.0) for rank in range(min(ranks, 4))],
        steps=Steps(
            np.linspace(0, 59, steps),
            random.gamma(2, 0.02, steps),
            random.normal(0.25, 0.01, steps),
            random.gamma(2, 0.005, steps),
            [0, steps // 2],
        )
        if steps
        else None,
    )


_NONE, _NO_COUNTS = np.zeros(0), np.zeros(0, np.int64)
EMPTY = View(
    title="00-none",
    source="nothing",
    duration_s=0.0,
    notes=[],
    series=Series(np.zeros(1), _NONE, _NONE, _NONE, _NONE),
    sizes=Histogram(np.ones(1), _NO_COUNTS, _NO_COUNTS),
    latency=None,
    ranks=Ranks([], _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NO_COUNTS, _NONE),
    lanes=[],
    steps=Steps(_NONE, _NONE, _NONE, _NONE, []),
)


def _drawn(view: View) -> dict[str, Picture]:
    return {picture.stem: picture for picture in run_panels.draw(view)}


def _stairs(figure: Figure, row: int = 0) -> dict[Any, StepPatch]:
    patches = [patch for patch in figure.axes[row].patches if isinstance(patch, StepPatch)]
    return {patch.get_label(): patch for patch in patches}


def _boxes(figure: Figure) -> dict[str, np.ndarray[Any, Any]]:
    """Return the boxes of each colour: (n, 4), left, right, bottom and top."""
    boxes: dict[str, list[np.ndarray[Any, Any]]] = {}
    for patch in figure.axes[0].patches:
        if isinstance(patch, PathPatch):
            corners = np.asarray(patch.get_path().vertices).reshape(-1, 5, 2)
            low, high = corners.min(axis=1), corners.max(axis=1)
            sides = np.column_stack((low[:, 0], high[:, 0], low[:, 1], high[:, 1]))
            boxes.setdefault(to_hex(patch.get_facecolor()).upper(), []).append(sides)
    return {colour: np.concatenate(sides) for colour, sides in boxes.items()}


def test_pictures_come_in_order_and_steps_only_where_they_are_known() -> None:
    assert list(_drawn(_view())) == STEMS
    assert list(_drawn(_view(steps=0))) == [stem for stem in STEMS if stem != "steps"]


def test_each_axis_says_what_it_shows_in_which_unit() -> None:
    labels = {
        stem: [(axes.get_xlabel(), axes.get_ylabel()) for axes in picture.figure.axes]
        for stem, picture in _drawn(_view()).items()
    }
    assert labels["bandwidth"] == [("", "MB/s"), ("time (s)", "requests/s")]
    assert labels["sizes"] == [("bytes of one request", "requests")]
    assert labels["timeline"] == [("time (s)", "")]
    assert labels["steps"] == [("step", "time per step (ms)")]
    assert labels["latency"] == [("duration of one request (log scale)", "requests (log scale)")]
    assert re.fullmatch(r"rank, fastest first; dashed: median \d+ MB/s", labels["ranks_bandwidth"][0][0])
    assert [label[0].partition(";")[0] for label in labels["spread"]] == [
        "I/O time (s)",
        "wait (s)",
        "bytes moved (GiB)",
    ]
    for picture in _drawn(_view()).values():
        assert picture.figure.axes[0].get_title(loc="left") == picture.title


@pytest.mark.parametrize("bins", [1, 40, 500, 501, 1777])
def test_bandwidth_over_time_holds_every_byte_and_request(bins: int) -> None:
    view = _view(bins=bins)
    figure = _drawn(view)["bandwidth"].figure
    rates, requests = _stairs(figure, 0), _stairs(figure, 1)
    for what, moved, count in (
        ("read", view.series.bytes_read, view.series.reads),
        ("written", view.series.bytes_written, view.series.writes),
    ):
        if moved.any():
            assert count is not None
            assert len(rates[what].get_data()[0]) <= 500
            for patch, whole, unit in ((rates[what], moved, 1e6), (requests[what], count, 1)):
                values, edges, _ = patch.get_data()
                assert (values * np.diff(edges)).sum() * unit == pytest.approx(whole.sum())
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim() == (0, 60)


@pytest.mark.parametrize("requests", [100, 5000, 1_000_000])
def test_bars_of_sizes_and_latencies_hold_every_request(requests: int) -> None:
    view = _view(requests=requests)
    pictures = _drawn(view)
    bars = _boxes(pictures["sizes"].figure)
    assert bars[COLOURS["read"]][:, 3].sum() == view.sizes.reads.sum() == requests
    assert bars[COLOURS["written"]][:, 3].sum() == view.sizes.writes.sum()
    small = bars[COLOURS["read"]][0]
    assert 512 <= small[0] < small[1] <= 1024
    assert view.latency is not None
    for what, counts in (("read", view.latency.reads), ("written", view.latency.writes)):
        assert _stairs(pictures["latency"].figure)[what].get_data()[0].sum() == counts.sum()


def test_quantiles_are_marked_where_they_are() -> None:
    picture = _drawn(_view(requests=100_000, writes=False))["latency"]
    axes = picture.figure.axes[0]
    marks = {text.get_text().split()[0]: text.xy[0] for text in axes.texts if isinstance(text, Annotation)}
    expected = {"p50": 1e-3, "p95": 1e-3 * np.exp(0.8 * 1.6449), "p99": 1e-3 * np.exp(0.8 * 2.3263)}
    assert marks == pytest.approx(expected, rel=0.06)
    quantiles = re.findall(r"p\d\d [\d.]+ \w+", picture.caption)
    assert [seconds(quantile[4:]) for quantile in quantiles] == pytest.approx(list(marks.values()), rel=0.01)


def test_ticks_of_sizes_are_powers_of_two() -> None:
    axes = _drawn(_view())["sizes"].figure.axes[0]
    ticks = [tick.get_text() for tick in axes.get_xticklabels()]
    assert "1 KiB" in ticks or "32 KiB" in ticks
    assert 3 <= len(ticks) <= 8


@pytest.mark.parametrize("ranks", [1, 64])
def test_a_bar_a_rank(ranks: int) -> None:
    view = _view(ranks=ranks)
    axes = _drawn(view)["ranks_bandwidth"].figure.axes[0]
    rates = (view.ranks.bytes_read + view.ranks.bytes_written) / view.ranks.io_s / 1e6
    read, written = axes.containers
    totals = np.array([patch.get_y() + patch.get_height() for patch in written.patches])  # type: ignore[attr-defined]
    assert totals == pytest.approx(np.sort(rates)[::-1])
    assert len(read) == ranks
    (median,) = axes.lines
    assert np.asarray(median.get_ydata()) == pytest.approx(np.median(rates))


def test_many_ranks_are_counted_and_idle_ones_named() -> None:
    view = _view(ranks=1000)
    view.ranks.io_s[:10] = 0
    picture = _drawn(view)["ranks_bandwidth"]
    (patch,) = picture.figure.axes[0].patches
    assert isinstance(patch, StepPatch)
    assert patch.get_data()[0].sum() == 990
    assert "10 of 1000 ranks neither read nor wrote" in picture.caption


@pytest.mark.parametrize("segments", [5, 400, 401, 20_000])
def test_the_timeline_covers_the_time_that_ranks_were_busy(segments: int) -> None:
    view = _view(ranks=1, segments=segments)
    (lane,) = view.lanes
    bars = _boxes(_drawn(view)["timeline"].figure)[COLOURS["compute"]]
    assert bars[:, 0].min() >= 0
    assert bars[:, 1].max() <= 60
    covered, busy = (bars[:, 1] - bars[:, 0]).sum(), (lane.compute[:, 1] - lane.compute[:, 0]).sum()
    if segments <= 400:
        assert covered == pytest.approx(busy)
    else:
        assert covered >= busy
        assert len(bars) <= 400


def test_what_is_always_so_is_one_bar() -> None:
    times = np.linspace(0, 60, 5001)
    even = Lane("rank 0", np.empty((0, 3)), np.column_stack((times[:-1], times[1:], np.full(5000, 0.6))))
    bars = _boxes(_drawn(_view()._replace(lanes=[even]))["timeline"].figure)
    assert list(bars) == [COLOURS["I/O"]]
    assert bars[COLOURS["I/O"]][:, :2].tolist() == [[0, 60]]


def test_many_short_requests_are_paler_and_stand_where_they_were() -> None:
    begin = np.linspace(15, 45, 6001)[:-1]
    brief = Lane("rank 0", np.column_stack((begin, begin + 0.0039, np.ones(6000))), np.empty((0, 3)))
    figure = _drawn(_view()._replace(lanes=[brief]))["timeline"].figure
    bars = _boxes(figure)[COLOURS["compute"]]
    assert (bars[:, 0].min(), bars[:, 1].max()) == pytest.approx((15, 45))
    shades = {to_rgba(patch.get_facecolor())[3] for patch in figure.axes[0].patches}
    assert list(shades) == pytest.approx([0.15 + 0.85 * 0.8], abs=0.01), "0.0039 of 0.005 s each: four shades of five"


def test_every_rank_has_its_dot_within_the_axes() -> None:
    for axes in _drawn(_view(ranks=50))["spread"].figure.axes:
        for dots in axes.collections:
            places = np.asarray(dots.get_offsets())
            assert places[:, 0].max() < axes.get_xlim()[1]
        assert len(np.asarray(axes.collections[0].get_offsets())) == 50


@pytest.mark.parametrize("steps", [1, 30, 20_000])
def test_steps_are_stacked_and_hold_all_time(steps: int) -> None:
    view = _view(steps=steps)
    assert view.steps is not None
    patches = _stairs(_drawn(view)["steps"].figure)
    below: Any = 0.0
    for what, whole in (("wait", view.steps.wait), ("compute", view.steps.compute), ("sync", view.steps.sync)):
        values, edges, base = patches[what].get_data()
        assert base == pytest.approx(below)
        assert ((values - base) * np.diff(edges)).sum() / 1e3 == pytest.approx(whole.sum())
        assert len(values) <= 500
        below = values


def test_a_step_that_dwarfs_the_others_is_cut_and_named() -> None:
    view = _view(steps=200)
    assert view.steps is not None
    view.steps.wait[3] = 100.0
    axes = _drawn(view)["steps"].figure.axes[0]
    assert axes.get_ylim()[1] < 1000
    assert axes.get_xlabel() == "step (highest at 3: 100 s, cut off)"
    assert [text.get_text() for text in axes.texts] == ["epoch 1", "epoch 2"]


def test_the_slowest_ranks_are_named_with_their_hosts() -> None:
    view = _view(ranks=100)
    view.ranks.io_s[77] = 99.0
    picture = _drawn(view)["spread"]
    assert "slowest: 77 on nid000009" in picture.figure.axes[0].get_xlabel()
    assert "I/O time rank 77 on nid000009.example.org (99 s)" in picture.caption


@pytest.mark.parametrize(
    "view", [EMPTY, _view(requests=0, writes=False, steps=0, segments=0), _view(ranks=1, bins=1, steps=1, requests=1)]
)
def test_with_little_or_nothing_there_is_still_something_to_see(view: View) -> None:
    for stem, picture in _drawn(view).items():
        texts = "".join(ET.fromstring(pictures.svg(picture.figure)).itertext())
        assert picture.title in texts
        if view is EMPTY:
            assert any(word in texts for word in ("Nothing", "No ", "not timed", "not recorded")), stem


def test_the_same_view_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        pictures.save(_page(_view()), tmp_path / folder)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted(f"{stem}.{kind}" for stem in STEMS for kind in ("svg", "png"))
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    code = "from tests.reports.test_pictures import _page, _view; from pathlib import Path; "
    code += "from dlio_hpc.reports import pictures;"
    code += f"pictures.save(_page(_view()), Path({str(tmp_path / 'c')!r}))"
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nxtick.direction: in\nfigure.facecolor: black\n")
    root = ROOT
    environment = {"MPLCONFIGDIR": str(tmp_path), "PATH": "/usr/bin", "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=root, check=True)
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "c" / name).read_bytes(), name


def _long(view: View) -> View:
    """Return a view with the data of all pictures, long names, and numbers of several digits."""
    moved = np.random.default_rng(2).integers(1, 5 * 10**11, (8, 30)).astype(float)
    lanes = [lane._replace(label=f"rank 1234567 on nid{number:020}") for number, lane in enumerate(view.lanes)]
    costs = tuple(CallCost(name, 900.0, 0.1, 3.0) for name in ("POSIX", "MPI-IO", "STDIO", "dlio-hpc"))
    heat = HeatMap(np.linspace(0, 60, 31), moved, 8192, 1024)
    return view._replace(lanes=lanes, heat=heat, costs=costs, title="01-a-measurement", duration_s=123_456.0)


_VIEWS = {
    "usual": _view,
    "long": lambda: _long(_view()),
    "one rank": lambda: _view(ranks=1, steps=4, requests=9),
    "many": lambda: _long(_view(ranks=8192, bins=900, segments=500, requests=10**6, steps=90_000)),
    "nothing": lambda: EMPTY,
}


def _texts(figure: Figure) -> list[Text]:
    """Return the texts that are drawn. Labels of ticks outside the axis are not."""
    hidden = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for label, place in zip(axis.get_majorticklabels(), axis.get_majorticklocs(), strict=False)
        if not min(axis.get_view_interval()) <= place <= max(axis.get_view_interval()) or not axes.axison
    }
    texts = [part for part in figure.findobj(Text) if isinstance(part, Text) and part.get_visible()]
    return [text for text in texts if text.get_text() and text not in hidden]


@pytest.mark.parametrize("view", _VIEWS.values(), ids=_VIEWS)
def test_all_texts_are_in_the_picture_and_cover_nothing(view: Any) -> None:
    """Matplotlib measures all texts of a picture."""
    for stem, picture in _drawn(view()).items():
        figure, canvas = picture.figure, cast(Any, FigureCanvasAgg)(picture.figure)
        with style():
            canvas.draw()
            texts = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in _texts(figure)]
        for name, box in texts:
            whole = figure.bbox.padded(1)
            assert whole.xmin <= box.xmin < box.xmax <= whole.xmax, (stem, name)
            assert whole.ymin <= box.ymin < box.ymax <= whole.ymax, (stem, name)
        for (one, box), (two, other) in combinations(texts, 2):
            assert not box.padded(-1).overlaps(other.padded(-1)), (stem, one, two)


def test_size_does_not_grow_with_the_run() -> None:
    view = _view(ranks=8192, bins=20_000, steps=100_000, segments=20_000, requests=1_000_000)
    view = view._replace(lanes=view.lanes * 30)
    sizes = {stem: len(pictures.svg(picture.figure)) for stem, picture in _drawn(view).items()}
    assert max(sizes.values()) < 400_000, sizes
    assert sum(sizes.values()) < 900_000, sizes


def test_pictures_name_nothing_outside() -> None:
    for picture in run_panels.draw(_view()):
        text = pictures.svg(picture.figure)
        ET.fromstring(text)
        links = set(re.findall(r'"https?://[^"]*"', text)) - {f'"{name}"' for name in _names(text)}
        assert not links
        assert "<metadata" not in text


def _names(text: str) -> list[str]:
    return re.findall(r'xmlns(?::\w+)?="([^"]*)"', text)


class _Reader(HTMLParser):
    """Collect what a browser makes of a page: tags, ids, and all text that is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.targets: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in {"href", "xlink:href"} and (value or "").startswith("#"):
                self.targets.add((value or "")[1:])
            self.targets.update(re.findall(r"url\(#([^)]*)\)", value or "") if name != "aria-label" else ())

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _section(view: View) -> Section:
    slowest = Table("Slowest ranks", ["rank", "host", "I/O time"], [["0", view.ranks.hosts[0], "20.1 s"]])
    epochs = Table("", ["epoch", "samples/s", "AU"], [["0", "1,310.2", "91.2 %"], ["1", "1,310.2", "-"]])
    drawn = Pictures(view.title, lambda: run_panels.draw(view))
    return Section(view.title, [Lines(view.notes, "yellow"), epochs, drawn, slowest])


def _page(*views: View, title: str = "demo on local") -> Page:
    facts = Facts("Job", [("batch id", "123"), ("directory", "/scratch/demo")])
    opening = Banner("good", "completed as planned")
    return Page(title, "two nodes", opening, [facts], [_section(view) for view in views])


def test_a_page_holds_its_pictures_and_no_name_twice() -> None:
    html = html_page.render(_page(_view(), _view(), _view(ranks=1, steps=0)))
    reader = _Reader()
    reader.feed(html)
    assert reader.tags.count("svg") == reader.tags.count("figure") == 9 + 9 + 8
    assert len(reader.ids) == len(set(reader.ids))
    assert reader.targets <= set(reader.ids)
    assert html.count("half of it came from the page cache") == 3
    assert '<td class="n">1,310.2</td><td class="n">91.2 %</td>' in html
    assert "<td>nid000000.example.org</td>" in html.replace("<wbr>", "")
    assert not {"script", "link", "iframe", "img"} & set(reader.tags)
    assert not re.findall(r"https?://(?!www\.w3\.org/(2000/svg|1999/xlink)\")", html)


def test_names_stay_words_whatever_they_hold() -> None:
    view = _view()
    ranks = view.ranks._replace(hosts=[NASTY] * 8)
    lanes = [lane._replace(label=NASTY) for lane in view.lanes]
    view = view._replace(title=NASTY, source=NASTY, notes=[NASTY], ranks=ranks, lanes=lanes)
    html = html_page.render(_page(view, title=NASTY))
    html.encode()
    reader = _Reader()
    reader.feed(html)
    assert "b" not in reader.tags
    assert len(reader.ids) == len(set(reader.ids))
    shown = "".join(reader.text)
    readable = NASTY.replace("\x1b", "�").replace("\x00", "�").replace("\ud800", "�")
    assert shown.count(readable) >= 5, "title, heading, note, table, footers of pictures"
    for picture in run_panels.draw(view):
        assert "$x_1$" in "".join(ET.fromstring(pictures.svg(picture.figure)).itertext())


def test_a_template_cannot_show_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "report.html.j2").write_text("{{ page.absent }}")
    monkeypatch.setattr(shipped, "root", lambda: tmp_path)
    with pytest.raises(jinja2.UndefinedError):
        html_page.render(_page())


_PAINTERS = sorted(
    f"dlio_hpc.{path.relative_to(ROOT / 'dlio_hpc').with_suffix('').as_posix().replace('/', '.')}"
    for path in (ROOT / "dlio_hpc").rglob("*.py")
    if re.search(r"^(from|import) matplotlib|^from dlio_hpc.reports.figures", path.read_text(), re.MULTILINE)
)


@pytest.mark.parametrize("painter", _PAINTERS)
def test_matplotlib_is_asked_for_by_name_and_only_where_pictures_are_drawn(painter: str) -> None:
    program = """
import sys
sys.modules["matplotlib"] = None
import dlio_hpc.reports.html_page
assert not {"jinja2", "numpy"} & set(sys.modules)
from dlio_hpc.base.errors import ConfigError
try:
    import PAINTER
except ConfigError as fault:
    print(fault)
""".replace("PAINTER", painter)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "pictures need matplotlib, which is not installed: pip install matplotlib\n"


def dumped(file: Path, *options: str) -> str:
    """Return the document of a file in a browser, after its scripts ran."""
    command = [
        str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom",
        f"--user-data-dir={file.parent / 'profile'}", *options, file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=file.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _browse(file: Path, *options: str) -> tuple[list[str], list[str]]:
    """Return what a browser complains of when it opens the file, and what it asks the network for."""
    folder = file.parent
    command = [
        str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--hide-scrollbars", "--enable-logging=stderr", "--v=0",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}",
        f"--log-net-log={folder / 'net.json'}", *options, file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=folder)
    assert done.returncode == 0, done.stderr
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    events = json.loads((folder / "net.json").read_text())["events"]
    # Requests of the browser itself, for updates and the like, have "not an origin".
    asked = [event["params"]["url"] for event in events if event.get("params", {}).get("initiator", "not") == "null"]
    return complaints, asked


@browser
def test_a_browser_shows_the_page_without_a_complaint_or_a_request(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    still = EMPTY._replace(ranks=_view(ranks=1, requests=0).ranks)
    file.write_text(html_page.render(_page(_view(), _view(ranks=300), _view(ranks=1, steps=0), still)))
    picture = tmp_path / "page.png"
    assert _browse(file, f"--screenshot={picture}", "--window-size=1100,2000") == ([], [])
    pixels = (imread(picture)[..., :3] * 255).round().astype(int)
    for colour in ("read", "compute", "wait"):
        wanted = [int(COLOURS[colour][at : at + 2], 16) for at in (1, 3, 5)]
        assert (np.abs(pixels - wanted).max(axis=2) < 3).sum() > 100, colour
    assert _browse(file, f"--print-to-pdf={tmp_path / 'page.pdf'}") == ([], [])
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


@browser
def test_the_browser_would_have_complained(tmp_path: Path) -> None:
    file = tmp_path / "bad.html"
    file.write_text('<img src="http://example.invalid/x.png"><script>nothing()</script>')
    complaints, asked = _browse(file, f"--screenshot={tmp_path / 'bad.png'}")
    assert "nothing is not defined" in complaints[0]
    assert set(asked) == {"http://example.invalid/x.png"}


@pytest.mark.parametrize(("least", "most"), [(0.97, 1.04), (1.0, 8.0), (0.2, 1.0), (0.991, 1.003)])
def test_an_axis_of_ratios_has_a_tick_at_one_and_none_near_it(least: float, most: float) -> None:
    ticks = study_plots._ratio_ticks(least, most)
    assert 1.0 in ticks
    assert ticks == sorted(ticks)
    assert all(abs(np.log(tick)) > np.log(most / least) / 12 for tick in ticks if tick != 1)
