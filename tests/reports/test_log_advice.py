"""What stands out in a log, on data whose truth is known."""

from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.analysis.log import analyze
from dlio_hpc.reports import log_advice, log_page
from tests.support.standins import darshanlog
from tests.support.standins.darshanlog import Traced

KIB, MIB = 1 << 10, 1 << 20


def _advice(path: Path, traces: list[Traced], ranks: int, traced: bool = True, **counters: Any) -> list[str]:
    rows = darshanlog.counters_of(traces)
    for row in rows:
        row[2].update(counters)
    darshanlog.write(path, ranks, traces if traced else [], counted=rows)
    analysis = analyze.log_file(path).analysis
    assert analysis is not None
    return log_advice.of_log(analysis)


def _reads(count: int, size: int, step: int, seconds: float) -> list[tuple[int, int, float, float]]:
    """Return reads, each `step` bytes after the one before; backwards if it is negative."""
    first = max(0, -step * count)
    return [(first + at * step, size, at * seconds / count, (at + 1) * seconds / count) for at in range(count)]


def test_random_reads_of_small_samples(tmp_path: Path) -> None:
    traces = [Traced("/d/a", 0, reads=_reads(17_000, 2 * KIB, -4 * KIB, 6.0))]
    (sentence,) = _advice(tmp_path / "a.darshan", traces, 1)
    assert sentence == (
        "17,000 reads of 2 KiB (median), 100 % of them not starting at the end of the previous one: store samples "
        "that are read together next to each other, or read whole files and shuffle in memory."
    )


@pytest.mark.parametrize("traced", [True, False])
def test_small_reads_in_order_need_a_buffer(tmp_path: Path, traced: bool) -> None:
    traces = [Traced("/d/a", 0, reads=_reads(3000, 4 * KIB, 4 * KIB, 6.0))]
    (sentence,) = _advice(tmp_path / "a.darshan", traces, 1, traced, SEQ_READS=2999, CONSEC_READS=2999)
    kind = "median" if traced else "mean"
    assert sentence == (
        f"3,000 reads of 4 KiB ({kind}), 100 % of them starting at the end of the previous one: use a buffer of 1 MiB "
        "or more."
    )


def test_few_or_large_requests_are_no_finding(tmp_path: Path) -> None:
    few = [Traced("/d/a", rank, reads=_reads(999, 2 * KIB, -4 * KIB, 6.0)) for rank in range(2)]
    assert _advice(tmp_path / "a.darshan", few, 2) == []
    large = [Traced("/d/a", 0, reads=_reads(2000, 65 * KIB, -80 * KIB, 6.0))]
    assert _advice(tmp_path / "b.darshan", large, 1, MAX_BYTE_READ=160 * MIB) == []


@pytest.mark.parametrize(("traced", "speed", "start"), [
    (True, 8.5, "Half of the reads arrive at 8 GB/s or more, and no storage "), (True, 7.5, None),
    (False, 12.5, "A rank reads 12 GB/s on average, and no storage "), (False, 11.5, None),
])  # fmt: skip
def test_no_storage_serves_a_process_at_the_speed_of_memory(
    tmp_path: Path, traced: bool, speed: float, start: str | None
) -> None:
    seconds = 300 * MIB / speed / 1e9
    traces = [Traced(f"/d/{rank}", rank, reads=_reads(300, MIB, MIB, seconds)) for rank in range(3)]
    sentences = _advice(tmp_path / "a.darshan", traces, 3, traced, MAX_BYTE_READ=300 * MIB - 1)
    assert [sentence.startswith(start or "") for sentence in sentences] == [True] * (start is not None)


def test_small_writes_at_random_places(tmp_path: Path) -> None:
    traces = [Traced("/d/a", 0, writes=_reads(2000, 512, -1024, 6.0))]
    (sentence,) = _advice(tmp_path / "a.darshan", traces, 1)
    assert sentence.startswith(
        "2,000 writes of 512 B (median), 100 % of them not starting at the end of the previous one: collect them "
        "in memory"
    )


def test_small_files_that_are_read_whole_are_too_many(tmp_path: Path) -> None:
    """Each is read in a request, and an empty one at its end."""
    calls = [
        [(0, 2 * KIB, at / 200, at / 200 + 0.001), (2 * KIB, 0, at / 200 + 0.002, at / 200 + 0.003)]
        for at in range(600)
    ]
    traces = [Traced(f"/d/{number}", 0, reads=calls[number]) for number in range(600)]
    (sentence,) = _advice(tmp_path / "a.darshan", traces, 1, OPENS=1, MAX_BYTE_READ=2 * KIB - 1)
    assert sentence == "1,200 reads of 1 KiB (median), a few for each open: put the data into fewer, larger files."


@pytest.mark.parametrize(
    ("opens", "advice"), [(40, "put data into fewer, larger files"), (200, "keep files open between requests")]
)
def test_metadata_calls_that_take_a_third_of_the_time(tmp_path: Path, opens: int, advice: str) -> None:
    """40 files, read for 0.1 s each; their metadata calls take 0.05 s each."""
    traces = [Traced(f"/d/{number}", 0, reads=[(0, MIB, number / 5, number / 5 + 0.1)]) for number in range(40)]
    (sentence,) = _advice(tmp_path / "a.darshan", traces, 1, OPENS=opens // 40, F_META_TIME=0.05)
    assert sentence == (
        f"Metadata calls take 33 % of the time in I/O calls ({opens} opens of 40 files, 0 seeks, 0 syncs): {advice}."
    )
    assert _advice(tmp_path / "b.darshan", traces, 1, OPENS=1, F_META_TIME=0.02) == []
    brief = [Traced(f"/d/{number}", 0, reads=[(0, MIB, number / 5, number / 5 + 0.001)]) for number in range(40)]
    assert _advice(tmp_path / "c.darshan", brief, 1, OPENS=1, F_META_TIME=0.002) == [], "0.8 % of the run time"


def _ranks(slow: list[tuple[int, int, float, float]], number: int = 4) -> list[Traced]:
    """Return ranks that read for 1, 1.1, 1.2 ... seconds, and rank 2 with reads of its own."""
    return [
        Traced(f"/d/{rank}", rank, reads=slow if rank == 2 else _reads(8, MIB, MIB, 1 + rank / 10), host=f"n{rank}")
        for rank in range(number)
    ]


def test_a_slow_rank_with_as_many_bytes_points_at_its_node(tmp_path: Path) -> None:
    (sentence,) = _advice(tmp_path / "a.darshan", _ranks(_reads(8, MIB, MIB, 4.4)), 4)
    assert sentence == (
        "Rank 2 on n2 is in I/O calls for 4.4 s, 4.0 times the median of the others: it moves no more bytes than they "
        "do; look at its node, and at the storage targets of its files."
    )
    assert _advice(tmp_path / "b.darshan", _ranks(_reads(8, MIB, MIB, 1.6)), 4) == []
    assert _advice(tmp_path / "c.darshan", _ranks(_reads(8, MIB, MIB, 4.4), 3)[1:], 3) != [], "one rank without I/O"
    two = [Traced("/d/0", 0, reads=_reads(8, MIB, MIB, 1)), Traced("/d/1", 1, reads=_reads(8, MIB, MIB, 4.4))]
    assert _advice(tmp_path / "d.darshan", two, 2) == [], "two ranks have no median of others"


def test_a_slow_rank_with_more_bytes_points_at_the_division(tmp_path: Path) -> None:
    (sentence,) = _advice(tmp_path / "a.darshan", _ranks(_reads(24, MIB, MIB, 4.4)), 4)
    assert "it moves 3.0 times their bytes; divide files or samples evenly among the ranks" in sentence


def test_a_rank_that_does_the_io_of_all_is_no_slow_node(tmp_path: Path) -> None:
    alone = [Traced("/d/0", 0, reads=_reads(8, MIB, MIB, 4.4))]
    (sentence,) = _advice(tmp_path / "a.darshan", alone, 5)
    assert sentence == (
        "Rank 0 on n1 is in I/O calls for 4.4 s, while the median of the others is in none: it does the I/O of most "
        "ranks; distribute reads and writes over all ranks."
    )


def test_a_rank_that_is_slow_in_metadata_calls_says_so(tmp_path: Path) -> None:
    traces = _ranks(_reads(8, MIB, MIB, 1.2))
    rows = darshanlog.counters_of(traces)
    rows[2][2].update({"F_META_TIME": 3.5})
    darshanlog.write(tmp_path / "a.darshan", 4, traces, counted=rows)
    analysis = analyze.log_file(tmp_path / "a.darshan").analysis
    assert analysis is not None
    assert "most of it in metadata calls, such as open and stat" in log_advice.of_log(analysis)[0]


def test_a_shared_file_that_each_rank_opens_once_is_not_opened_again(tmp_path: Path) -> None:
    """Syncs that outnumber opens are the cost of metadata calls themselves."""
    traces = [Traced("/d/all", rank, reads=[(0, MIB, rank / 5, rank / 5 + 0.1)]) for rank in range(8)]
    (sentence,) = _advice(tmp_path / "a.darshan", traces, 8, OPENS=1, F_META_TIME=0.2, MAX_BYTE_READ=MIB - 1)
    assert "8 opens of 1 file" in sentence
    assert sentence.endswith("put data into fewer, larger files.")
    (sentence,) = _advice(tmp_path / "b.darshan", traces, 8, OPENS=1, FSYNCS=9, F_META_TIME=0.2, MAX_BYTE_READ=MIB - 1)
    assert sentence.endswith("write to storage (fsync) less often.")


def test_files_that_are_read_again_and_again(tmp_path: Path) -> None:
    again = [(0, 32 * MIB, at, at + 0.5) for at in range(4)]
    (sentence,) = _advice(tmp_path / "a.darshan", [Traced("/d/a", 0, reads=again)], 1, MAX_BYTE_READ=32 * MIB - 1)
    assert sentence.startswith("1 file of 32 MiB together are read 4.0 times on average: if they fit into memory")
    small = [(0, MIB, at, at + 0.5) for at in range(4)]
    assert _advice(tmp_path / "b.darshan", [Traced("/d/a", 0, reads=small)], 1, MAX_BYTE_READ=MIB - 1) == []


def test_all_of_it_stands_below_the_bottleneck(tmp_path: Path) -> None:
    path = tmp_path / "a.darshan"
    advice = _advice(path, [*_ranks(_reads(8, MIB, MIB, 4.4)), Traced("/x", 1, reads=_reads(5000, KIB, -2048, 0.3))], 4)
    assert len(advice) == 2
    page = log_page.of_logs([analyze.log_file(path)])
    assert page.answers[-2:] == advice
    assert log_page.of_logs([analyze.log_file(path)] * 2).answers == [page.answers[0]] * 2
