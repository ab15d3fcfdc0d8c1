"""Analysis of the I/O that a log records: figures with known values, real logs, the command."""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_hpc.analysis.log import analyze, findings, io_load, picture_data, requests, summary
from dlio_hpc.analysis.log.findings import Analysis, Operation
from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.darshan import counters, log_reader
from dlio_hpc.reports import log_page
from dlio_hpc.reports.figures import run_panels
from tests.conftest import Run
from tests.support.places import LOGS
from tests.support.standins import darshanlog
from tests.support.standins.darshanlog import Traced

KIB = 1 << 10


def _everything(path: str) -> bool:
    return True


def _analysis(path: Path, **options: Any) -> Analysis:
    log = log_reader.load(path)
    traced = requests.of_log(log, "DXT_POSIX", _everything, None) if "DXT_POSIX" in log.traced else None
    return summary.summarise(log, traced, _everything, **options)


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """Two ranks. Rank 0 reads 4 x 1000 bytes in 1 s each, the second and third at the same time. Rank 1 reads 2 x 4 KiB
    in 2 s each, one after the other, and writes 100 bytes in half a second.
    """
    path = tmp_path / "known.darshan"
    four = [(0, 1000, 0.0, 1.0), (1000, 1000, 1.0, 2.0), (2000, 1000, 1.5, 2.5), (3000, 1000, 5.0, 6.0)]
    two = [(0, 4 * KIB, 0.0, 2.0), (4 * KIB, 4 * KIB, 2.0, 4.0)]
    traces = [
        Traced("/data/a.npz", 0, reads=four, host="n1"),
        Traced("/data/b.h5", 1, reads=two, host="n2"),
        Traced("/out/model.ckpt", 1, writes=[(0, 100, 6.0, 6.5)], host="n2"),
    ]
    rows = darshanlog.counters_of(traces)
    rows[0][2].update({"SEQ_READS": 3, "CONSEC_READS": 2, "OPENS": 1, "F_META_TIME": 0.5, "MAX_BYTE_READ": 3999})
    rows[1][2].update({"SEQ_READS": 1, "CONSEC_READS": 1, "OPENS": 2, "F_META_TIME": 0.25, "MAX_BYTE_READ": 8191})
    darshanlog.write(path, 2, traces, counted=rows)
    return path


def test_the_figures_of_a_log_with_known_truth(known: Path) -> None:
    analysis = _analysis(known)
    assert (analysis.ranks, analysis.job_s, analysis.traced) == (2, 10.0, True)
    assert [rank.io_s for rank in analysis.by_rank] == [3.5, 4.5]
    assert (analysis.io_s, analysis.io_share, analysis.io_any_s) == (4.0, 0.4, 5.5)
    assert (analysis.bytes_read, analysis.bytes_written) == (4000 + 8 * KIB, 100)
    read, write = analysis.read, analysis.write
    assert isinstance(read, Operation)
    assert isinstance(write, Operation)
    assert (read.requests, write.requests) == (6, 1)
    assert (read.size, write.size) == (
        findings.SizeStats(1000, 4096, (4000 + 8192) / 6, 1000), findings.SizeStats(100, 100, 100, 100),
    )  # fmt: skip
    assert read.histogram == {"100_1K": 4, "1K_10K": 2}
    assert write.histogram == {"0_100": 1}
    assert read.common == [(1000, 4), (4096, 2)]
    assert read.time_s == (3.5 + 4.0) / 2
    assert read.MBps == pytest.approx((4000 + 8192) / 5.0 / 1e6)
    assert read.bandwidth_MBps is not None
    assert read.bandwidth_MBps.median == pytest.approx(0.001)
    assert (read.sequential, read.consecutive) == (4 / 6, 3 / 6)
    assert analysis.metadata.opens == 3
    assert analysis.metadata.share == pytest.approx(0.75 / (0.75 + 8 + 0.5))
    assert [(node.host, node.ranks, node.io_s) for node in analysis.by_node] == [("n1", 1, 3.5), ("n2", 1, 4.5)]


def test_files_with_sizes_and_types_the_busiest_first(known: Path) -> None:
    files = _analysis(known).files
    assert [(file.path, file.type, file.size, file.bytes_read) for file in files] == [
        ("/data/b.h5", "HDF5", 8192, 8192),
        ("/data/a.npz", "NumPy archive", 4000, 4000),
        ("/out/model.ckpt", "checkpoint", 1, 0),
    ]


def test_a_timeline_at_any_step(known: Path) -> None:
    line = _analysis(known, step_s=1.0).timeline
    assert line is not None
    assert (line.start_s, line.step_s, len(line.reads)) == (0.0, 1.0, 7)
    assert line.bytes_read == pytest.approx([1000 + 2048, 1500 + 2048, 500 + 2048, 2048, 0, 1000, 0])
    assert line.reads == [2, 2, 1, 0, 0, 1, 0]
    assert line.bytes_written == pytest.approx([0, 0, 0, 0, 0, 0, 100])


def test_io_within_computing(known: Path) -> None:
    """Rank 0 computes from 0.5 s to 2 s, rank 1 never."""
    analysis = _analysis(known, computing={0: np.array([[0.5, 2.0]]), 1: np.empty((0, 2))})
    assert (analysis.hidden_s, analysis.hidden_share) == (0.75, 0.75 / 4)
    assert [rank.hidden_s for rank in analysis.by_rank] == [1.5, 0.0]


def test_counters_alone_say_less_and_say_so(known: Path) -> None:
    log = log_reader.load(known, trace=False)
    analysis = summary.summarise(log, None, _everything)
    assert (analysis.traced, analysis.timeline, analysis.io_any_s, analysis.hidden_s) == (False, None, None, None)
    assert analysis.read is not None
    assert (analysis.read.size, analysis.read.bandwidth_MBps, analysis.read.MBps) == (None, None, None)
    assert (analysis.read.requests, analysis.read.bytes) == (6, 4000 + 8192)
    assert [rank.io_s for rank in analysis.by_rank] == [4.0, 4.5], "Darshan's sums: what overlaps counts twice"


def test_files_of_all_ranks_have_the_traces_figures(tmp_path: Path) -> None:
    """The counters have one record of a file that all ranks opened. The trace has one per rank."""
    path = tmp_path / "a.darshan"
    traces = [Traced("/d/shared", rank, reads=[(0, 10 + rank, 0.0, 1.0)]) for rank in range(3)]
    darshanlog.write(path, 3, traces, counted=[("/d/shared", -1, {"READS": 3.0, "BYTES_READ": 33.0, "OPENS": 3.0})])
    analysis = _analysis(path)
    assert [(rank.reads, rank.bytes_read) for rank in analysis.by_rank] == [(1, 10), (1, 11), (1, 12)]
    assert analysis.files[0].ranks == -1
    alone = summary.summarise(log_reader.load(path, trace=False), None, _everything)
    assert alone.by_rank == [], "without a trace nobody knows"
    assert alone.read is not None
    assert alone.read.bytes == 33


@pytest.mark.parametrize("name", ["mpi4_npz", "mpi4_tfrecord", "mpi4_h5shared_noreduction", "main_dxtv2_npz"])
def test_the_trace_of_a_real_log_falls_into_darshans_own_bins(name: str) -> None:
    traced, counted = (
        _analysis(LOGS / f"{name}.darshan"),
        summary.summarise(log_reader.load(LOGS / f"{name}.darshan", trace=False), None, _everything),
    )
    assert traced.read is not None
    assert counted.read is not None
    assert traced.read.histogram == counted.read.histogram
    size, count = next((size, count) for size, count in traced.read.common if size)
    assert dict(counted.read.common)[size] == count, "Darshan keeps the most frequent that are not empty"
    assert traced.read.bytes == counted.read.bytes == sum(rank.bytes_read for rank in traced.by_rank)
    assert traced.io_s <= counted.io_s * 1.2
    assert traced.timeline is not None
    assert sum(traced.timeline.bytes_read) == pytest.approx(traced.bytes_read)


def test_only_the_files_that_are_asked_for() -> None:
    whole, one = (analyze.log_file(LOGS / "mpi4_npz.darshan", only).analysis for only in (None, r"f3[.]npz$"))
    assert whole is not None
    assert one is not None
    assert (len(whole.files), len(one.files)) == (8, 1)
    assert one.bytes_read * 8 == whole.bytes_read


def test_files_that_nobody_asked_for_leave_nothing() -> None:
    with pytest.raises(ConfigError, match="--only nowhere: no path matches it; the log has 8, such as /lus/demo/"):
        analyze.log_file(LOGS / "mpi4_npz.darshan", "nowhere")
    examined = analyze.logs_of_program([log_reader.load(LOGS / "mpi4_npz.darshan")], "nowhere")
    assert examined.analysis is not None
    assert (examined.analysis.read, examined.analysis.files, examined.analysis.io_s) == (None, [], 0)


def test_a_trace_that_says_otherwise_than_the_counters_is_not_drawn_from() -> None:
    corrupt = analyze.log_file(LOGS / "mpi4_forkcorrupt.darshan")
    assert corrupt.requests is None
    assert not corrupt.is_sound
    cut = analyze.log_file(LOGS / "mpi4_dxtpartial.darshan")
    assert cut.requests is not None
    assert cut.is_sound, "its counters are whole"
    assert cut.view is not None
    assert any(note.startswith("DXT cut") for note in cut.view.notes)


def test_the_command_shows_a_log(run: Run) -> None:
    done = run("dlio-hpc", "darshan", LOGS / "mpi4_npz.darshan")
    assert done.code == 0
    for fact in ("ranks     4", "took      297 ms", "job       4242", "Darshan   3.5.0, log format"):
        assert f"\n{fact}" in done.out
    assert "POSIX     3.075 MiB in 144 reads" in done.out
    assert max(map(len, done.out.splitlines())) <= 100


def test_json_is_one_document_with_everything(run: Run) -> None:
    done = run(
        "dlio-hpc", "darshan", LOGS / "mpi4_npz.darshan", LOGS / "mpi4_tfrecord.darshan", "--json", "--step", "1s"
    )
    assert done.code == 0
    first, second = done.json["logs"]
    assert (first["whole"], first["faults"], first["job"]["ranks"]) == (True, [], 4)
    assert first["analysis"]["bytes_read"] == 3_224_160
    assert second["analysis"]["timeline"]["step_s"] == 1.0


def test_csv_holds_a_number_a_row(run: Run) -> None:
    done = run("dlio-hpc", "darshan", LOGS / "mpi4_npz.darshan", "--csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert set(rows[0]) == {"log", "of", "which", "metric", "value"}
    bytes_of_ranks = [float(row["value"]) for row in rows if (row["of"], row["metric"]) == ("rank", "bytes_read")]
    assert (len(bytes_of_ranks), sum(bytes_of_ranks)) == (4, 3_224_160)
    assert ("job", "", "read.size.median") in {(row["of"], row["which"], row["metric"]) for row in rows}
    assert sum(float(row["value"]) for row in rows if (row["of"], row["metric"]) == ("time", "reads")) == 144


@pytest.mark.parametrize(
    ("name", "code", "statement"),
    [
        ("mpi4_npz_truncated", 3, "truncated: the log has 2000 bytes, but its header requires 4201"),
        ("mpi4_forkcorrupt", 3, "counters disagree: POSIX has 33 reads of 1773568 bytes"),
        ("mpi4_dxtpartial", 0, "DXT cut: DXT_POSIX lacks 160004 of 320008 requests"),
    ],
)
def test_the_exit_code_says_whether_a_log_holds(run: Run, name: str, code: int, statement: str) -> None:
    done = run("dlio-hpc", "darshan", LOGS / f"{name}.darshan")
    assert done.code == code
    assert statement in done.out.replace("\n", " ")
    assert ("do not use its numbers" in done.out) == (code == 3)


def test_what_cannot_be_read_stops_no_other_log(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"no log at all, but long enough to be one")
    done = run("dlio-hpc", "darshan", tmp_path / "x", tmp_path / "gone", LOGS / "mpi4_npz.darshan", "--json")
    assert done.code == 3
    assert "is not a Darshan log" in done.err
    assert "cannot read" in done.err
    assert [log["log"] for log in done.json["logs"]] == [str(LOGS / "mpi4_npz.darshan")]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--only", "("), "is not a regular expression"),
        (("--step", "soon"), "soon"),
        (("--step", "0"), "a step must be longer than 0 s"),
    ],
)
def test_options_that_make_no_sense(run: Run, options: tuple[str, ...], complaint: str) -> None:
    done = run("dlio-hpc", "darshan", LOGS / "mpi4_npz.darshan", *options)
    assert done.code == 2
    assert complaint in done.err


def test_pictures_pages_and_traces_of_a_log(run: Run, tmp_path: Path) -> None:
    done = run(
        "dlio-hpc",
        "darshan",
        LOGS / "main_dxtv2_npz.darshan",
        "--html",
        "out/r.html",
        "--figures",
        "f",
        "--perfetto",
        "p.json",
    )
    assert done.code == 0
    page = (tmp_path / "out" / "r.html").read_text()
    assert page.count("<svg") == 10
    assert "://" not in page.replace("http://www.w3.org/", "")
    stems = {stem for stem, *_ in run_panels._PAINTERS} - {"steps", "opens"}
    assert {"calls", "order", "heat_map", "sizes"} < stems
    assert {path.name for path in (tmp_path / "f").iterdir()} == {
        f"{s}.{kind}" for s in stems for kind in ("svg", "png")
    }
    events = json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    reads = [event for event in events if event["ph"] == "X"]
    assert len(reads) == 144
    assert sum(event["args"]["bytes"] for event in reads) == 3_224_160
    named = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert named == {f"main_dxtv2_npz.darshan rank {rank}" for rank in range(4)}


def test_requests_at_once_lie_in_rows_of_their_own(known: Path, tmp_path: Path) -> None:
    from dlio_hpc.reports import perfetto

    assert perfetto.write(tmp_path / "p.json.gz", [analyze.log_file(known)]) == 7
    import gzip

    events = json.loads(gzip.decompress((tmp_path / "p.json.gz").read_bytes()))["traceEvents"]
    of_rank_0 = [event for event in events if event["ph"] == "X" and event["pid"] == 0]
    assert [(event["tid"], event["ts"], event["dur"]) for event in sorted(of_rank_0, key=lambda span: span["ts"])] == [
        (10, 0, 1e6), (10, 1e6, 1e6), (11, 1.5e6, 1e6), (10, 5e6, 1e6),
    ]  # fmt: skip


def test_a_file_that_is_no_log_is_told(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(2000))
    with pytest.raises(InvalidRun, match="is not a Darshan log"):
        analyze.log_file(tmp_path / "x")


@pytest.mark.parametrize("name", ["mpi4_npz", "mpi4_tfrecord", "main_dxtv2_npz"])
def test_without_a_trace_heat_maps_tell_the_bandwidth_over_time(name: str) -> None:
    log = log_reader.load(LOGS / f"{name}.darshan", trace=False)
    heat = log.heat["POSIX"]
    counters = log.counted["POSIX"]
    for rank, read in zip(heat.ranks.tolist(), heat.read.sum(axis=1).tolist(), strict=True):
        assert read == counters["BYTES_READ"][counters["rank"] == rank].sum()
    analysis = summary.summarise(log, None, _everything)
    series = picture_data.of_counters("log", [], analysis, [heat]).series
    assert series.bytes_read.sum() == analysis.bytes_read
    assert series.reads is None
    assert series.edges[-1] >= log.job.seconds - heat.width_s


def test_where_nothing_can_be_written_the_place_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for option in ("--html", "--perfetto"):
        done = run("dlio-hpc", "darshan", LOGS / "mpi4_npz.darshan", option, "folder")
        assert (done.code, "cannot write folder: Is a directory; give the name of a file" in done.err) == (2, True)


def test_a_device_stays_a_device(run: Run) -> None:
    done = run("dlio-hpc", "darshan", LOGS / "mpi4_npz.darshan", "--perfetto", "/dev/null")
    assert done.code == 0
    assert Path("/dev/null").is_char_device()


def test_a_pipe_is_no_log(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="it is not a regular file"):
        analyze.log_file(tmp_path / "pipe")


def test_names_that_look_like_markup_are_shown_as_they_are(run: Run, tmp_path: Path) -> None:
    names = ["/d/train[0-9].csv", "/d/[/b]", "/d/[red]x[/red]", "/d/<b>&"]
    darshanlog.write(tmp_path / "a.darshan", 1, [Traced(name, 0, reads=[(0, 10, 0.0, 1.0)]) for name in names])
    done = run("dlio-hpc", "darshan", tmp_path / "a.darshan", "--html", "r.html")
    assert done.code == 0
    for name in names:
        assert Path(name).name in done.out
    assert ">&lt;b&gt;&amp;<" in (tmp_path / "r.html").read_text()


def test_figures_of_a_trace_that_is_cut_come_from_the_counters() -> None:
    """Half of the requests would give twice the bandwidth."""
    cut = analyze.log_file(LOGS / "mpi4_dxtpartial.darshan")
    analysis = cut.analysis
    assert analysis is not None
    assert analysis.read is not None
    assert (analysis.traced, analysis.read.requests, sum(analysis.read.histogram.values())) == (False, 320_000, 320_000)
    for rank in analysis.by_rank:
        assert rank.MBps == pytest.approx((rank.bytes_read + rank.bytes_written) / rank.io_s / 1e6)
        assert rank.io_s == pytest.approx(sum(file.io_s for file in analysis.files) / 4, rel=0.5)
    assert cut.view is not None
    assert "DXT" in cut.view.source


def test_requests_without_bytes_are_said_to_be_where_they_are(tmp_path: Path) -> None:
    """The tables count two reads at the end of the file; the picture of sizes has a logarithmic axis and does not."""
    path = tmp_path / "a.darshan"
    reads = [(0, 100, 0.0, 1.0), (100, 0, 1.0, 1.1), (100, 0, 1.2, 1.3)]
    darshanlog.write(path, 1, [Traced("/d/a", 0, reads=reads)])
    examined = analyze.log_file(path)
    assert examined.analysis is not None
    assert examined.analysis.read is not None
    assert examined.view is not None
    (note,) = [note for note in examined.view.notes if "no bytes" in note]
    counted, drawn = examined.analysis.read, examined.view.sizes
    assert (counted.requests, counted.histogram, counted.size and counted.size.min) == (3, {"0_100": 3}, 0)
    assert (drawn.reads.sum(), drawn.writes.sum()) == (1, 0)
    assert note == (
        "2 requests moved no bytes, such as a read at the end of a file: the tables include them with a size of 0; the "
        "picture of request sizes does not"
    )


def test_what_went_through_stdio_is_in_no_rate_of_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.darshan"
    darshanlog.write(path, 1, [Traced("/d/a", 0, reads=[(0, 100, 0.0, 1.0)])])
    stdio = np.zeros(1, counters.record_type("STDIO", 2))
    stdio["READS"], stdio["BYTES_READ"], stdio["F_READ_TIME"] = 5, 10**9, 2.0
    log = log_reader.load(path)
    log.counted["STDIO"] = stdio
    traced = summary.summarise(log, requests.of_log(log, "DXT_POSIX", _everything, None), _everything)
    assert (traced.bytes_read, traced.untraced_bytes, traced.by_rank[0].MBps) == (100, 10**9, 1e-4)
    assert traced.interfaces["STDIO"].bytes_read == 10**9
    alone = summary.summarise(log, None, _everything)
    assert (alone.bytes_read, alone.untraced_bytes, alone.io_s) == (10**9 + 100, 0, 3.0)


def test_a_log_that_pydarshan_read_has_its_files_names() -> None:
    darshan = pytest.importorskip("darshan")
    example = Path(darshan.__file__).parent / "examples" / "example_logs" / "ior_hdf5_example.darshan"
    analysis = analyze.log_file(example).analysis
    assert analysis is not None
    assert all(file.path.startswith(("/", "<")) for file in analysis.files)


def test_too_fine_a_step_is_refused(run: Run) -> None:
    done = run("dlio-hpc", "darshan", LOGS / "mpi4_tfrecord.darshan", "--step", "1e-9", "--json")
    assert (done.code, "has too many steps of 1e-09 s; choose a longer step" in done.err) == (2, True)


def test_names_that_are_no_text_are_shown_all_the_same(run: Run, tmp_path: Path) -> None:
    darshanlog.write(tmp_path / "a.darshan", 1, [Traced("/d/x\N{SNOWMAN}", 0, reads=[(0, 10, 0.0, 1.0)])])
    done = run("dlio-hpc", "darshan", tmp_path / "a.darshan", PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert "x\\u2603" in done.out


def test_slow_nodes_are_named(run: Run, known: Path) -> None:
    done = run("dlio-hpc", "darshan", known, "--html", "r.html")
    lines = done.out[done.out.index("Slowest nodes") :].splitlines()
    assert [line.split()[0] for line in lines[3:5]] == ["n2", "n1"]
    assert "Slowest nodes" in (known.parent / "r.html").read_text()


def _verdict(path: Path) -> tuple[str, str]:
    """Return the state of the report on a log, and its first sentences: the banner and the sentence below it."""
    report = log_page.of_logs([analyze.log_file(path)])
    assert report.banner is not None
    return report.banner.state, " ".join([report.banner.text, *report.answers])


def _written(seconds: float, number: int = 64) -> list[tuple[int, int, float, float]]:
    """Return writes of 1 MiB, one after the other, that take so many seconds together."""
    return [(at << 20, 1 << 20, at * seconds / number, (at + 1) * seconds / number) for at in range(number)]


@pytest.mark.parametrize("traced", [True, False])
def test_one_slow_rank_of_many_binds_the_program(tmp_path: Path, traced: bool) -> None:
    traces = [Traced(f"/o/{rank}", rank, writes=_written(9.5 if rank == 11 else 0.1)) for rank in range(32)]
    rows = darshanlog.counters_of(traces)
    darshanlog.write(tmp_path / "a.darshan", 32, traces if traced else [], counted=rows)
    state, text = _verdict(tmp_path / "a.darshan")
    assert (state, "a.darshan is bound by I/O: rank 11" in text) == ("good", True), text
    assert "9.5 s of 10 s (95.0 %), mostly in POSIX writes" in text


def test_rank_0_that_does_all_io_binds_the_program(tmp_path: Path) -> None:
    darshanlog.write(tmp_path / "a.darshan", 16, [Traced("/o/all", 0, reads=_written(9.0))])
    assert "is bound by I/O: rank 0 on n1 was in I/O calls for 9 s of 10 s" in _verdict(tmp_path / "a.darshan")[1]


@pytest.mark.parametrize(("traced", "text"), [
    (True, "may be bound by I/O that ranks do in turn: at least one rank was in I/O calls for 8 s of 10 s (80.0 %)"),
    (False, "No rank of a.darshan is bound by I/O"),
])  # fmt: skip
def test_ranks_that_do_io_in_turn(tmp_path: Path, traced: bool, text: str) -> None:
    traces = [Traced(f"/o/{rank}", rank, writes=[(0, 100, rank, rank + 1.0)]) for rank in range(8)]
    rows = darshanlog.counters_of(traces)
    darshanlog.write(tmp_path / "a.darshan", 8, traces if traced else [], counted=rows)
    assert text in _verdict(tmp_path / "a.darshan")[1]


@pytest.mark.parametrize("name", ["traced", "counted"])
def test_a_program_in_fread_is_bound_by_stdio(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's np.fromfile reads through STDIO, which has no trace."""
    path = tmp_path / f"{name}.darshan"
    traces = [Traced("/d/a", rank, reads=[(0, 1, 0.0, 1e-5)]) for rank in range(2)]
    darshanlog.write(path, 2, traces if name == "traced" else [], counted=darshanlog.counters_of(traces))
    stdio = np.zeros(2, counters.record_type("STDIO", 2))
    stdio["id"], stdio["rank"], stdio["READS"], stdio["BYTES_READ"] = 77, [0, 1], 60, 10**10
    stdio["F_READ_TIME"] = [9.4, 9.2]
    log = log_reader.load(path)
    log.counted["STDIO"] = stdio
    monkeypatch.setattr(log_reader, "load", lambda _: log)
    state, text = _verdict(path)
    assert (state, "is bound by I/O: rank 0" in text) == ("good", True), text
    assert "9.4 s of 10 s (94.0 %), mostly in STDIO reads; metadata calls are 0.0 %" in text


def _load(tmp_path: Path, **records: Any) -> findings.IoLoad:
    """Return the load of a log of 4 ranks and 10 s with these records: rows by module."""
    darshanlog.write(tmp_path / "a.darshan", 4, [])
    log = log_reader.load(tmp_path / "a.darshan")
    for name, rows in records.items():
        module = name.replace("_", "-")
        made = np.zeros(len(rows), counters.record_type(module, {"POSIX": 4, "STDIO": 2, "MPI-IO": 3}.get(module, 2)))
        for record, row in zip(made, rows, strict=True):
            for key, value in row.items():
                record[key] = value
        log.counted[module] = made
    return io_load.of_log(log, None, _everything)


def test_nested_interfaces_count_once(tmp_path: Path) -> None:
    """HDF5 writes through MPI-IO, which writes through POSIX; the calls of another file add up."""
    load = _load(
        tmp_path,
        POSIX=[{"id": 1, "rank": 2, "F_WRITE_TIME": 4.0}, {"id": 2, "rank": 2, "F_META_TIME": 1.5}],
        MPI_IO=[{"id": 1, "rank": 2, "F_WRITE_TIME": 5.0}],
        H5D=[{"id": 9, "rank": 2, "file_id": 1, "F_WRITE_TIME": 6.0}],
    )
    assert (load.rank, load.least_s, load.most_s) == (2, 7.5, 7.5)
    assert (load.interface, load.calls) == ("HDF5", "writes")


def test_shared_records_name_the_slowest_rank(tmp_path: Path) -> None:
    """A record of all ranks has their sum, and the slowest and the fastest rank."""
    shared = {"rank": -1, "F_READ_TIME": 9.0, "SLOWEST_RANK": 3, "F_SLOWEST_RANK_TIME": 8.0, "F_FASTEST_RANK_TIME": 0.1}
    one = _load(tmp_path, POSIX=[{"id": 1, **shared}])
    assert (one.rank, one.least_s, one.most_s, one.any_most_s) == (3, 8.0, 8.0, 9.0)
    other = {**shared, "SLOWEST_RANK": 1, "F_SLOWEST_RANK_TIME": 4.0, "F_READ_TIME": 5.0}
    two = _load(tmp_path, POSIX=[{"id": 1, **shared}, {"id": 2, **other}])
    assert two.rank == 3
    assert two.least_s == pytest.approx(8.1)
    assert two.most_s == 10.0, "no rank is longer in calls than the job runs"


def test_calls_that_overlap_are_not_added_up(tmp_path: Path) -> None:
    load = _load(tmp_path, POSIX=[{"id": number, "rank": 1, "F_READ_TIME": 3.0} for number in range(8)])
    assert (load.rank, load.overlaps, load.least_s, load.most_s) == (1, True, 3.0, 10.0)


def test_a_log_without_traces_is_not_inconclusive_for_it(tmp_path: Path) -> None:
    traces = [Traced("/d/a", 0, reads=[(0, 100, 0.0, 0.1)])]
    rows = darshanlog.counters_of(traces)
    darshanlog.write(tmp_path / "a.darshan", 1, [], counted=rows)
    state, text = _verdict(tmp_path / "a.darshan")
    assert (state, "there is no trace (DXT)" in text, "is not bound by I/O" in text) == ("good", True, True)
    darshanlog.write(tmp_path / "a.darshan", 1, [Traced("/d/a", 0)], counted=rows)
    assert _verdict(tmp_path / "a.darshan")[0] == "inconclusive", "the trace is in the log, but lost"


def test_whole_seconds_are_said(tmp_path: Path) -> None:
    """Logs before format 3.41 have start and end in whole seconds: 1 s may be 0 or 2 s."""
    darshanlog.write(tmp_path / "a.darshan", 1, [Traced("/d/a", 0, reads=[(0, 9, 0.0, 0.7)])], started=1e9, seconds=1.0)
    text = _verdict(tmp_path / "a.darshan")[1]
    assert "may be bound by I/O: rank 0 on n1 was in I/O calls for 700 ms of 1 s +- 1 s" in text
    view = analyze.log_file(tmp_path / "a.darshan").view
    assert view is not None
    assert any("whole seconds" in note for note in view.notes)


def test_the_slowest_of_2048_ranks_in_a_real_log() -> None:
    """The storage target of one rank was slow. The log is from a machine of 2017, without a trace."""
    darshan = pytest.importorskip("darshan")
    example = Path(darshan.__file__).parent / "examples" / "example_logs" / "sample-badost.darshan"
    state, text = _verdict(example)
    assert (state, "is bound by I/O: rank 1507 was in I/O calls for 778 s of 779 s +- 1 s" in text) == ("good", True)
