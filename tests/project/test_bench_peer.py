"""The comparison with dlio_benchmark, of which only the arithmetic is tested: the programs do not run."""

import itertools
from pathlib import Path

import pytest

from tests.bench import peer


def _rows(printed: str) -> list[list[str]]:
    """Return what was done, the rate of each side, their ratio and the goal, for each row."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines()]
    return [[row[0], row[1], row[2], row[3], row[-1]] for row in cells]


def test_rows_hold_medians_and_the_median_of_the_ratios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = itertools.cycle([(100.0, 10.0), (200.0, 20.0), (300.0, 30.0)])
    monkeypatch.setattr(peer, "DATASETS", (peer.Geometry("npz", 64, 8, 1 << 20, batch=4),))
    monkeypatch.setattr(peer, "measure", lambda *_: next(theirs))
    monkeypatch.setattr(peer, "_ours", lambda *arguments: (400.0, 160.0 if arguments[2] == "native" else 40.0))
    peer.bench(tmp_path, Path("/bin/false"))
    assert _rows(capsys.readouterr().out) == [
        ["npz 64 x 8, batch 4: generate", "400 MB/s", "200 MB/s", "2.00", ">= 1.2"],
        ["npz 64 x 8, batch 4: pytorch, framework", "40 MB/s", "20 MB/s", "2.00", ">= 1.2"],
        ["npz 64 x 8, batch 4: pytorch, posix", "40 MB/s", "20 MB/s", "2.00", ">= 1.2"],
        ["npz 64 x 8, batch 4: native, posix", "160 MB/s", "20 MB/s", "8.00", ">= 4"],
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (peer.Geometry("raw", 2, 2, 1 << 10), "a format it is not compared in"),
        (peer.Geometry("hdf5", 2, 2, 1000), "it makes square samples only, 1000 bytes are not a square"),
        (peer.Geometry("hdf5", 2, 2, 1 << 10, batch=2), "2 files of 2 samples are not two or more equal steps"),
    ],
)
def test_the_reason_is_printed_where_the_program_cannot_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: peer.Geometry, reason: str
) -> None:
    program = tmp_path / "bin" / "program"
    program.parent.mkdir()
    for path in (program, program.with_name("mpiexec")):
        path.touch(0o755)
    assert peer.measure(program, tmp_path, data, ranks=2) is None
    assert f"dlio_benchmark {data}: not compared: {reason}" in capsys.readouterr().out
