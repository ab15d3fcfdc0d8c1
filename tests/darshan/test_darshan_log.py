"""Darshan's logs are read as pydarshan reads them; a log that is not whole is reported with the reason."""

import os
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlio_hpc.analysis.log import analyze
from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.darshan import counters, log, log_faults, log_reader
from dlio_hpc.darshan.log import Log
from tests.support.places import LOGS
from tests.support.standins import darshanlog
from tests.support.standins.darshanlog import Traced

WHOLE = ("main_dxtv2_npz", "mpi4_h5shared_noreduction", "mpi4_npz", "mpi4_tfrecord")
READABLE = (*WHOLE, "mpi4_dxtpartial", "mpi4_forkcorrupt")


def _load(name: str) -> Log:
    return log_reader.load(LOGS / f"{name}.darshan")


def _names(loaded: Log) -> list[str]:
    return [fault.name for fault in log_faults.judge(loaded)]


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_log_has_no_fault(name: str) -> None:
    loaded = _load(name)
    assert log_faults.judge(loaded, log_faults.Expected(4, loaded.job.started - 1, loaded.job.ended + 1)) == []


def test_what_a_log_says() -> None:
    loaded = _load("mpi4_npz")
    job = loaded.job
    assert (job.ranks, job.id, job.library, job.program) == (
        4,
        4242,
        "3.5.0",
        "/lus/demo/env/bin/python reader.py npz",
    )
    assert job.seconds == pytest.approx(0.297314, abs=1e-5)
    assert job.mounts["/"] == "ext4"
    posix, trace = loaded.counted["POSIX"], loaded.traced["DXT_POSIX"]
    assert sorted(loaded.names[number] for number in posix["id"].tolist()) == [
        f"/lus/demo/data/f{number}.npz" for number in range(8)
    ]
    assert posix["READS"].sum() == trace.files["reads"].sum() == len(trace.segments) == 144
    assert posix["BYTES_READ"].sum() == trace.segments["length"].sum() == 3_224_160
    assert {host.rstrip(b"\0") for host in trace.files["host"].tolist()} == {b"vm"}


def test_both_versions_of_dxt_say_the_same() -> None:
    """The same program ran under Darshan's release and under its main branch."""
    old, new = (_load(name).traced["DXT_POSIX"] for name in ("mpi4_npz", "main_dxtv2_npz"))
    assert "thread" in (new.segments.dtype.names or ())
    assert "thread" not in (old.segments.dtype.names or ())
    for name in ("offset", "length"):
        assert (old.segments[name] == new.segments[name]).all()
    assert (new.segments["thread"] > 0).all()


@pytest.mark.parametrize(
    ("name", "wanted", "message"),
    [
        (
            "mpi4_dxtpartial",
            ["partial", "DXT cut"],
            "lacks 160004 of 320008 requests: /lus/demo/data/gen_0_1",
        ),
        ("mpi4_forkcorrupt", ["counters disagree"], "33 reads of 1773568 bytes, but DXT_POSIX has 5 reads of 198656"),
        (
            "mpi4_npz_truncated",
            ["truncated", "truncated", "truncated", "DXT missing"],
            "the log has 2000 bytes, but its header requires 4201",
        ),
    ],
)
def test_what_is_wrong_with_a_log_has_its_name(name: str, wanted: list[str], message: str) -> None:
    loaded = _load(name)
    assert _names(loaded) == wanted
    assert message in " ".join(fault.text for fault in log_faults.judge(loaded))


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        ("DXT_POSIX", ["MAX_RECORDS 65536 DXT_POSIX", "MODMEM 64"]),
        ("POSIX", ["MAX_RECORDS 65536 POSIX", "MODMEM 64", "NAME_EXCLUDE <expression> POSIX"]),
    ],
)
def test_a_log_that_ran_out_of_records_names_the_settings_that_help(
    tmp_path: Path, module: str, settings: list[str]
) -> None:
    traces = [Traced("/d/a", 0, [[0, 100, 1.0, 1.1]])]
    darshanlog.write(tmp_path / "x.darshan", 1, traces, partial=(module,))
    (fault,) = (fault for fault in log_reader.load(tmp_path / "x.darshan").faults if fault.name == "partial")
    assert fault.text.startswith(f"{module} ran out of memory and dropped records; ")
    assert all(f"'{setting}'" in fault.text for setting in settings)
    assert "DARSHAN_CONFIG_PATH" in fault.text


def test_only_a_log_that_lost_counters_is_of_no_use() -> None:
    whole = {
        name: log_faults.has_whole_counters(log_faults.judge(_load(name))) for name in (*READABLE, "mpi4_npz_truncated")
    }
    assert [name for name, holds in whole.items() if not holds] == [
        "mpi4_dxtpartial",
        "mpi4_forkcorrupt",
        "mpi4_npz_truncated",
    ][1:]


@pytest.mark.parametrize(
    ("expected", "name"),
    [
        (log_faults.Expected(8), "rank count"),
        (log_faults.Expected(4, started=1_795_200_283.0 + 3600), "stale"),
        (log_faults.Expected(4, ended=1_795_200_283.0 - 3600), "stale"),
    ],
)
def test_a_log_of_another_run_is_known(expected: log_faults.Expected, name: str) -> None:
    assert [fault.name for fault in log_faults.judge(_load("mpi4_npz"), expected)] == [name]


def test_a_job_that_never_ended_and_a_log_that_was_being_written(tmp_path: Path) -> None:
    path = tmp_path / "a.darshan_partial"
    darshanlog.write(path, 2, [Traced("/d/a", 0, reads=[(0, 10, 0.1, 0.2)])], seconds=-1_700_000_000.25)
    assert _names(log_reader.load(path)) == ["no end", "no end"]


def test_unknown_versions_of_a_module_are_named_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.darshan"
    traces = [Traced("/d/a", 0, reads=[(0, 10, 0.1, 0.2)])]
    darshanlog.write(path, 1, traces, versions={"DXT_POSIX": 7})
    loaded = log_reader.load(path)
    assert _names(loaded) == ["unknown version"]
    assert not loaded.traced
    darshanlog.write(path, 1, traces, versions={"POSIX": 9})
    assert _names(log_reader.load(path)) == ["unknown version"]


def test_a_trace_of_mpi_io_is_compared_with_its_own_counters(tmp_path: Path) -> None:
    path = tmp_path / "a.darshan"
    traces = [Traced("/d/a", rank, reads=[(0, 10, 0.1, 0.2), (10, 10, 0.2, 0.3)]) for rank in range(2)]
    for version in (2, 3):
        darshanlog.write(path, 2, traces, module="MPI-IO", versions={"DXT_MPIIO": version})
        assert _names(log_reader.load(path)) == []
    counted = [
        (name, rank, {**values, "COLL_READS": 1}) for name, rank, values in darshanlog.counters_of(traces, "MPI-IO")
    ]
    darshanlog.write(path, 2, traces, module="MPI-IO", counted=counted)
    assert _names(log_reader.load(path)) == ["counters disagree"]


def test_counters_of_all_ranks_together_are_compared_with_the_sum_of_their_traces(tmp_path: Path) -> None:
    path = tmp_path / "a.darshan"
    traces = [Traced("/d/shared", rank, reads=[(rank * 10, 10, 0.1, 0.2)]) for rank in range(3)]
    together = [("/d/shared", -1, {"READS": 3.0, "BYTES_READ": 30.0})]
    darshanlog.write(path, 3, traces, counted=together)
    assert _names(log_reader.load(path)) == []
    darshanlog.write(path, 3, traces[:2], counted=together)
    assert _names(log_reader.load(path)) == ["counters disagree"]
    darshanlog.write(path, 3, traces[:2], counted=together, partial=("DXT_POSIX",))
    assert _names(log_reader.load(path)) == ["partial", "DXT cut"]
    assert any("lacks 1 of 3 requests" in fault.text for fault in log_faults.judge(log_reader.load(path)))


def test_what_is_no_log(tmp_path: Path) -> None:
    for content in (b"", b"\0" * 5000, b"PK\x03\x04" * 400, os.urandom(3000)):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(InvalidRun, match="is not a Darshan log"):
            log_reader.load(tmp_path / "x")
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere"):
        log_reader.load(tmp_path / "nowhere")
    (tmp_path / "x").write_bytes((LOGS / "mpi4_npz.darshan").read_bytes()[:900])
    with pytest.raises(InvalidRun, match="truncated: it has 900 bytes, but the header alone needs 1328"):
        log_reader.load(tmp_path / "x")


def test_the_live_record_of_a_killed_process_is_no_log(tmp_path: Path) -> None:
    content = bytearray((LOGS / "mpi4_npz.darshan").read_bytes())
    content[16] = 2
    (tmp_path / "live").write_bytes(content)
    with pytest.raises(InvalidRun, match="live record that a killed process left"):
        log_reader.load(tmp_path / "live")


def _same(one: Log, other: Log) -> bool:
    """Compare everything that is read from a log."""
    if (one.job, one.names, one.counted.keys(), one.traced.keys()) != (
        other.job, other.names, other.counted.keys(), other.traced.keys(),
    ):  # fmt: skip
        return False
    return all((one.counted[name] == other.counted[name]).all() for name in one.counted) and all(
        (one.traced[name].files == other.traced[name].files).all()
        and (one.traced[name].segments == other.traced[name].segments).all()
        for name in one.traced
    )


def _used_silently(path: Path, original: Log) -> bool:
    """Return whether a damaged log is taken for a whole one with other contents."""
    try:
        loaded = log_reader.load(path)
        faults = log_faults.judge(loaded)
    except (InvalidRun, ConfigError):
        return False
    if len(loaded.counted) != len(original.counted) or len(loaded.traced) != len(original.traced):
        return not faults
    return not faults and not _same(loaded, original)


@pytest.mark.parametrize("name", WHOLE)
def test_a_log_cut_anywhere_is_never_used_silently(name: str, tmp_path: Path) -> None:
    content, original = (LOGS / f"{name}.darshan").read_bytes(), _load(name)
    path = tmp_path / "cut.darshan"
    draw = random.Random(name)
    for size in {0, 1, 1327, 1328, len(content) - 1, *(draw.randrange(len(content)) for _ in range(150))}:
        path.write_bytes(content[:size])
        assert not _used_silently(path, original), f"cut at {size}"


@pytest.mark.parametrize("name", WHOLE)
def test_a_log_with_a_flipped_bit_is_never_used_silently(name: str, tmp_path: Path) -> None:
    content, original = (LOGS / f"{name}.darshan").read_bytes(), _load(name)
    path = tmp_path / "flipped.darshan"
    draw = random.Random(name)
    places = [(8 + draw.randrange(len(content) - 8), draw.randrange(8)) for _ in range(400)]
    places += [(at, bit) for at in range(24, 48) for bit in range(8)]  # compression, flags, where the names lie
    for at, bit in places:
        damaged = bytearray(content)
        damaged[at] ^= 1 << bit
        path.write_bytes(damaged)
        assert not _used_silently(path, original), f"bit {bit} of byte {at}"


_SEGMENT = st.builds(
    lambda offset, length, begin, took: (offset, length, begin, begin + took),
    st.integers(0, 2**40), st.integers(0, 2**31), st.floats(0, 1e5), st.floats(0, 1e5),
)  # fmt: skip
_TRACED = st.builds(
    Traced,
    path=st.sampled_from(["/d/a", "/d/b", "/d/with blank", "/d/\N{SNOWMAN}"]),
    rank=st.integers(0, 3),
    reads=st.lists(_SEGMENT, max_size=40),
    writes=st.lists(_SEGMENT, max_size=40),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    traces=st.lists(_TRACED, max_size=8, unique_by=lambda record: (record.path, record.rank)),
    version=st.sampled_from([1, 2]),
)
def test_what_was_written_is_read(tmp_path: Path, traces: list[Traced], version: int) -> None:
    path = tmp_path / "a.darshan"
    darshanlog.write(path, 4, traces, versions={"DXT_POSIX": version})
    loaded = log_reader.load(path)
    assert _names(loaded) == []
    if not traces:
        assert not loaded.traced
        return
    trace = loaded.traced["DXT_POSIX"]
    read = {}
    for file, first in zip(trace.files, trace.first.tolist(), strict=True):
        rows = trace.segments[first : first + int(file["writes"] + file["reads"])]
        columns = [rows[name].tolist() for name in ("offset", "length", "start", "end")]
        read[loaded.names[int(file["id"])], int(file["rank"])] = list(zip(*columns, strict=True))
    assert read == {(record.path, record.rank): [*record.writes, *record.reads] for record in traces}


def test_traces_come_through_in_pieces(tmp_path: Path) -> None:
    """The stream is far larger than one read, and reads do not end where segments do."""
    path = tmp_path / "a.darshan"
    rows = np.arange(400_000.0).reshape(-1, 4)
    darshanlog.write(path, 1, [Traced("/d/a", 0, reads=rows), Traced("/d/b", 0, reads=rows[:7])])
    trace = log_reader.load(path).traced["DXT_POSIX"]
    assert (trace.segments["offset"][:100_000] == rows[:, 0]).all()
    assert trace.counts.tolist() == [100_000, 7]


def _pydarshan(
    path: Path, name: str
) -> tuple[list[tuple[int, ...]], list[tuple[float, ...]], list[tuple[object, ...]]]:
    darshan = pytest.importorskip("darshan")
    with darshan.DarshanReport(str(path), read_all=False) as report:
        report.mod_read_all_records(name, dtype="numpy")
        rows = list(report.records[name])
        integers = [(int(row["id"]), int(row["rank"]), *map(int, row["counters"])) for row in rows]
        floats = [tuple(map(float, row["fcounters"])) for row in rows]
        segments: list[Any] = []
        if "DXT_POSIX" in report.modules:
            report.mod_read_all_dxt_records("DXT_POSIX", dtype="dict")
            for record in report.records["DXT_POSIX"]:
                for kind in ("write_segments", "read_segments"):
                    segments += [
                        (
                            record["id"],
                            record["rank"],
                            part["offset"],
                            part["length"],
                            part["start_time"],
                            part["end_time"],
                        )
                        for part in record[kind]
                    ]
    return integers, floats, segments


@pytest.mark.parametrize(
    "name", ["mpi4_npz", "mpi4_tfrecord", "mpi4_h5shared_noreduction", "mpi4_forkcorrupt", "mpi4_dxtpartial"]
)
def test_pydarshan_reads_the_same(name: str) -> None:
    path = LOGS / f"{name}.darshan"
    integers, floats, segments = _pydarshan(path, "POSIX")
    loaded = log_reader.load(path)
    records = loaded.counted["POSIX"]
    names = [field for field in records.dtype.names or () if not field.startswith("F_")]
    assert [tuple(int(row[field]) for field in names) for row in records] == integers
    times = [field for field in records.dtype.names or () if field.startswith("F_")]
    assert [tuple(float(row[field]) for field in times) for row in records] == floats
    trace = loaded.traced["DXT_POSIX"]
    files = np.repeat(trace.files, trace.counts)
    columns = [trace.segments[field].tolist() for field in ("offset", "length", "start", "end")]
    assert list(zip(files["id"].tolist(), files["rank"].tolist(), *columns, strict=True)) == segments


def _examples() -> list[Path]:
    """Return the logs of older Darshans that pydarshan contains."""
    try:
        import darshan
    except ImportError:
        return []
    folder = Path(darshan.__file__).parent
    return sorted({path.name: path for path in folder.rglob("*.darshan")}.values())


@pytest.mark.parametrize("path", _examples(), ids=lambda path: path.name[:30])
def test_older_logs_are_read_by_pydarshan(path: Path) -> None:
    loaded = log_reader.load(path)
    assert loaded.version in {"3.10", "3.21"}
    assert loaded.job.ranks >= 1
    assert not {"garbled", "truncated"} & set(_names(loaded))
    if "POSIX" in loaded.counted:
        integers, _, segments = _pydarshan(path, "POSIX")
        assert sorted(
            zip(loaded.counted["POSIX"]["id"].tolist(), loaded.counted["POSIX"]["READS"].tolist(), strict=True)
        ) == sorted((row[0], row[2 + 3]) for row in integers)
        assert sum(len(trace.segments) for name, trace in loaded.traced.items() if name == "DXT_POSIX") == len(segments)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_damaged_older_log_harms_nobody(share: float, tmp_path: Path) -> None:
    examples = [path for path in _examples() if path.name == "dxt.darshan"]
    if not examples:
        pytest.skip("pydarshan, which brings older logs along, is not installed")
    content = examples[0].read_bytes()
    path = tmp_path / "cut.darshan"
    path.write_bytes(content[: int(len(content) * share)])
    assert not _used_silently(path, log_reader.load(examples[0]))


def test_without_pydarshan_older_logs_are_refused_with_what_would_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.darshan"
    content = bytearray((LOGS / "mpi4_npz.darshan").read_bytes())
    content[:4] = b"3.21"
    path.write_bytes(content)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"only pydarshan can read.*pip install darshan"):
        log_reader.load(path)


def test_streams_with_garbage_between_them_are_told(tmp_path: Path) -> None:
    content = (LOGS / "mpi4_npz.darshan").read_bytes()
    path = tmp_path / "a.darshan"
    path.write_bytes(content + zlib.compress(b"more"))
    assert _names(log_reader.load(path)) == ["garbled"]


def test_counters_have_the_names_and_the_number_that_darshan_has() -> None:
    sizes = {name: counters.record_type(name, version) for name, version in (("POSIX", 4), ("MPI-IO", 3), ("STDIO", 2))}
    assert {name: kind.itemsize for name, kind in sizes.items() if kind is not None} == {
        "POSIX": 16 + 8 * (69 + 17), "MPI-IO": 16 + 8 * (51 + 17), "STDIO": 16 + 8 * (14 + 15),
    }  # fmt: skip


@pytest.mark.parametrize(
    "segment",
    [
        (0, 10, float("nan"), 1.0),
        (0, 10, 0.0, float("inf")),
        (0, 10, 2.0, 1.0),
        (0, -10, 0.0, 1.0),
        (0, 2**62, 0.0, 1.0),
    ],
)
def test_a_trace_of_impossible_requests_is_not_used(tmp_path: Path, segment: tuple[float, ...]) -> None:
    path = tmp_path / "a.darshan"
    counted = [("/d/a", 0, {"READS": 2.0, "BYTES_READ": 20.0})]
    darshanlog.write(path, 1, [Traced("/d/a", 0, reads=[(0, 10, 0.0, 1.0), segment])], counted=counted)
    faults = log_faults.judge(log_reader.load(path))
    assert "1 requests and 0 files have impossible values" in str(faults)
    examined = analyze.log_file(path)
    assert examined.requests is None


@pytest.mark.parametrize(
    ("rank", "values", "ranks"),
    [
        (0, {"F_READ_TIME": float("nan")}, 1),
        (0, {"BYTES_READ": 2.0**62}, 1),
        (0, {"ACCESS1_ACCESS": 2.0**62, "ACCESS1_COUNT": 1.0}, 1),
        (0, {"STRIDE4_STRIDE": -(2.0**62), "STRIDE4_COUNT": 3.0}, 1),
        (-1, {"F_VARIANCE_RANK_BYTES": 2.0**122}, 1),
        (-1, {"F_VARIANCE_RANK_TIME": float("inf")}, 1),
        (7, {"READS": 1.0}, 2),
        (-2, {"READS": 1.0}, 2),
        (0, {"READS": 1.0}, 0),
    ],
)
def test_impossible_counters_are_told_and_give_no_figures(
    tmp_path: Path, rank: int, values: dict[str, float], ranks: int
) -> None:
    path = tmp_path / "a.darshan"
    darshanlog.write(path, ranks, [], counted=[("/d/a", rank, values)])
    examined = analyze.log_file(path)
    assert "garbled" in [fault.name for fault in examined.faults]
    assert not examined.is_sound
    assert examined.analysis is None


@pytest.mark.parametrize("module", ["POSIX", "MPI-IO"])
def test_a_shared_file_whose_ranks_differ_by_gigabytes_is_no_fault(tmp_path: Path, module: str) -> None:
    """The variance of bytes between ranks is in squared bytes."""
    path = tmp_path / "a.darshan"
    values = {"BYTES_READ": 8e12, "F_VARIANCE_RANK_BYTES": 2.25550275e19, "F_VARIANCE_RANK_TIME": 1e5}
    darshanlog.write(path, 4, [], module=module, counted=[("/d/a", -1, values)])
    assert log_faults.judge(log_reader.load(path)) == []


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("module", ["POSIX", "MPI-IO"])
def test_what_stands_in_a_slot_that_counts_nothing_is_no_fault_and_no_figure(
    tmp_path: Path, module: str, number: int
) -> None:
    path = tmp_path / "a.darshan"
    reads = "READS" if module == "POSIX" else "INDEP_READS"
    values = {reads: 5.0, "BYTES_READ": 5 * 4096.0, "ACCESS1_ACCESS": 4096.0, "ACCESS1_COUNT": 5.0}
    if number > 1:
        values |= {f"ACCESS{number}_ACCESS": 4.57613152e18, f"ACCESS{number}_COUNT": 0.0}
    else:
        values |= {
            "ACCESS1_ACCESS": 4.57613152e18,
            "ACCESS1_COUNT": 0.0,
            "ACCESS2_ACCESS": 4096.0,
            "ACCESS2_COUNT": 5.0,
        }
    if module == "POSIX":
        values |= {f"STRIDE{number}_STRIDE": -4.57613152e18, f"STRIDE{number}_COUNT": 0.0, "MAX_BYTE_READ": 2.0**62}
    darshanlog.write(path, 1, [], module=module, counted=[("/d/a", 0, values)])
    loaded = log_reader.load(path)
    assert [fault.name for fault in log_faults.judge(loaded)] == ["DXT missing"]
    assert log.common_sizes(loaded.counted[module]) == {4096: 5}
    if module == "POSIX":
        analysis = analyze.log_file(path).analysis
        assert analysis is not None
        assert analysis.read is not None
        assert analysis.read.common == [(4096, 5)]


@pytest.mark.parametrize(("writes", "reads"), [(2**62, 2**62), (-1, 5), (2**40, 0)])
def test_a_trace_that_says_it_holds_more_than_can_be_is_told(tmp_path: Path, writes: int, reads: int) -> None:
    path = tmp_path / "a.darshan"
    darshanlog.write(path, 1, [Traced("/d/a", 0, reads=[(0, 10, 0.0, 1.0)])])
    content = path.read_bytes()
    at = int.from_bytes(content[48 + 16 * 10 :][:8], "little")
    head = bytearray(zlib.decompress(content[at:]))
    head[88:104] = writes.to_bytes(8, "little", signed=True) + reads.to_bytes(8, "little", signed=True)
    stream = zlib.compress(bytes(head))
    damaged = bytearray(content[:at] + stream)
    damaged[48 + 16 * 10 + 8 : 48 + 16 * 10 + 16] = len(stream).to_bytes(8, "little")
    path.write_bytes(damaged)
    faults = log_faults.judge(log_reader.load(path))
    assert [fault.name for fault in faults] == ["garbled", "DXT missing"]
    assert f"{reads} reads and {writes} writes" in faults[0].text
