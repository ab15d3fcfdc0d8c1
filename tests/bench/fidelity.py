"""The table of README that shows how near emulations come to what they emulate, from shrunken runs under strace."""

import tempfile
from pathlib import Path

from msgspec.structs import replace

from dlio_hpc.programs.similarity import similarity
from dlio_hpc.programs.similarity.request_distance import Distance
from dlio_hpc.programs.similarity.similarity import MatrixRow, Similarity
from tests.support.fidelity import APPLICATIONS, PROGRAMS, Pair, files, of_application, of_program

_DIFFERENT = "candle", "frnn"


def bench() -> None:
    """Print a row per emulation, and a last row that compares candle with another application on purpose."""
    with tempfile.TemporaryDirectory() as name:
        pairs = {example: _pair(example, Path(name)) for example in (*APPLICATIONS, *PROGRAMS)}
    columns = [pair.original for pair in pairs.values()]
    rows = similarity.matrix([pair.emulation for pair in pairs.values()], columns, similarity.SEEN).rows
    print("| emulation | beside | pattern similarity | requests apart | bytes apart | nearest to | files, theirs |")
    print("|---|---|---|---|---|---|---|")
    for (name, pair), row in zip(pairs.items(), rows, strict=True):
        what = "its figures on Theta" if name in APPLICATIONS else "its program's log"
        comparison = similarity.compare(pair.emulation, pair.original)
        print(f"| {name} | {what} | {_measures(comparison)} | {_nearest(row, list(pairs))} | {_files(name)} |")
    one, other = (pairs[name] for name in _DIFFERENT)
    print(f"| {_DIFFERENT[0]} | figures of {_DIFFERENT[1]} | {_measures(_crossed(one, other))} | | |")


def _pair(name: str, folder: Path) -> Pair:
    (folder / name).mkdir()
    original, emulation = (of_application if name in APPLICATIONS else of_program)(name, folder / name)
    return Pair(
        replace(original, title=name, application=name), replace(emulation, title=f"{name} here", application=name)
    )


def _crossed(one: Pair, other: Pair) -> Similarity:
    """Compare with another application. The distributions come from its emulation, since its figures have none."""
    comparison = similarity.compare(one.emulation, other.original)
    emulated = similarity.compare(one.emulation, other.emulation)
    return replace(comparison, sizes=emulated.sizes, volumes=emulated.volumes)


def _measures(comparison: Similarity) -> str:
    return f"{comparison.pattern.ratio or 0:.3f} | {_octaves(comparison.sizes)} | {_octaves(comparison.volumes)}"


def _files(name: str) -> str:
    """Return the numbers of files of the shipped workload and of the application."""
    if name not in APPLICATIONS:
        return ""
    ours, theirs = files(name)
    return f"{ours:,}, {theirs:,}"


def _octaves(distance: Distance | None) -> str:
    return "" if distance is None else f"{distance.octaves:.2f} octaves"


def _nearest(row: MatrixRow, names: list[str]) -> str:
    own = ["its own"] if row.finds_own else []
    return ", ".join([*own, *(names[at] for at in row.nearest if at not in row.own)])
