"""The operations of the login side: submit, collect, archive, history, and the verbs that read their files."""

import re
from collections.abc import Iterator
from pathlib import Path

from dlio_hpc.base.errors import DlioError
from dlio_hpc.files import archive, rundir
from tests.support.faults import core
from tests.support.faults.ground import Done, Ground, run
from tests.support.faults.nursery import Nursery
from tests.support.faults.operation import Operation, once_more, ours

_WORKLOAD = """\
name: small
dataset: {format: npz, files: 2, samples_per_file: 4, sample: {shape: [30, 100], dtype: float32}}
reader: {batch_size: 4, verify_content: all}
compute: {time: 0}
train: {epochs: 1}
"""
_RANKS = 2


def _submit(ground: Ground, *more: str) -> list[str | Path]:
    folders = ("-d", ground.data, "-o", ground.runs, "--archive", ground.archive)
    return ours("dlio-submit", ground.live / "small.yaml", "-s", "local", *folders, *more)


def _workload(ground: Ground) -> None:
    for folder in (ground.data, ground.runs, ground.archive):
        folder.mkdir()
    (ground.live / "small.yaml").write_text(_WORKLOAD)


def _sound(done: Done) -> None:
    assert done.code == 0, done.out


def _ended(ground: Ground) -> None:
    """Prepare a job that has ended and was not collected."""
    _workload(ground)
    _sound(run(_submit(ground, "--ppn", "1"), ground.live, {}, 60))
    _sound(run(ours("dlio-hpc", "wait", "-o", ground.runs), ground.live, {}, 60))
    for path in ground.archive.iterdir():
        path.unlink()


def _collected(ground: Ground) -> None:
    """Prepare a job in its directory, its archive, and a history that contains it."""
    _workload(ground)
    _sound(run(_submit(ground, "--ppn", "1", "--wait"), ground.live, {}, 60))


def _unknown(ground: Ground) -> None:
    """Prepare archives without a history."""
    _collected(ground)
    for path in ground.archive.glob("history*"):
        path.unlink()


def _archive(ground: Ground) -> Path:
    (path,) = ground.archive.glob(f"*{archive.SUFFIX}")
    return path


def _all(ground: Ground) -> list[Path]:
    return [ground.data, ground.runs, ground.archive]


def archived(ground: Ground, _: Done | None = None) -> str | None:
    """Return the reason why a job that has ended is not in a sound archive; None if all are."""
    for status in ground.runs.glob(f"*/{rundir.EXIT_STATUS}"):
        path = ground.archive / (status.parent.name + archive.SUFFIX)
        try:
            if not path.exists():
                return f"there is no archive of {status.parent.name}"
            if faults := archive.faults(path):
                return f"its archive is unsound: {faults[0]}"
            if not archive.is_of(path, status.parent):
                return "its archive is of other files"
        except DlioError as fault:
            return f"its archive is unsound: {fault}"
    left = [path.name for path in ground.archive.glob(".*.tmp")]
    return f"debris: {left}" if left else None


def _settled(ground: Ground) -> str | None:
    """Wait for jobs that run, collect them, and return what is lost then."""
    if not list(ground.runs.glob(rundir.JOBS)):
        return archived(ground)
    waited = run(ours("dlio-hpc", "wait", "-o", ground.runs, "--quiet"), ground.live, {}, 60)
    if waited.code is None:
        return "wait does not end"
    collected = run(ours("dlio-hpc", "collect", "-o", ground.runs), ground.live, {}, 60)
    if collected.code not in {0, 7}:
        return f"collect ends with {collected.code}: {collected.out.strip()[-400:]}"
    return archived(ground)


def _measured(ground: Ground, _: Done) -> str | None:
    """Check that all jobs measured what was planned, and are archived."""
    return core.unsound(ground) or archived(ground)


def _submitted(ground: Ground, _: Done) -> str | None:
    """Check that the job that was said to be submitted runs, and ends with its archive."""
    if not list(ground.runs.glob(rundir.JOBS)):
        return "no job was written"
    if (lost := _settled(ground)) is not None:
        return lost
    statuses = list(ground.runs.glob(f"*/{rundir.EXIT_STATUS}"))
    if not statuses or any(status.read_text().strip() != "0" for status in statuses):
        return "the job did not run to its end"
    return None


def _settle_and_submit(operation: Operation, ground: Ground, nursery: Nursery | None) -> str | None:
    return _settled(ground) or once_more(operation, ground, nursery)


def _same_as(outputs: dict[str, str], ground: Ground, done: Done) -> str | None:
    """Check that the output is that of a run without faults. outputs: by the command of the operation, once known."""
    key = " ".join(map(str, done.command))
    plain = re.sub(r"\d+[.]\d+ s|since \S+", "", done.out).replace(str(ground.live), "")
    return None if outputs.setdefault(key, plain) == plain else f"the output is another one: {done.out[-400:]}"


def _reading(name: str, arguments: tuple[str, ...], share: float = 1.0) -> Operation:
    """Return an operation that only reads. Its arguments may contain JOB, ARCHIVE, ARCHIVES, DATA and RUNS."""
    outputs: dict[str, str] = {}

    def command(ground: Ground) -> list[str | Path]:
        places = {
            "JOB": ground.job, "ARCHIVE": _archive(ground), "ARCHIVES": ground.archive, "DATA": ground.data,
            "RUNS": ground.runs,
        }  # fmt: skip
        return ours("dlio-hpc", *(places.get(word, word) for word in arguments))

    return Operation(
        name, _collected, command, _all, "dlio-hpc", lambda ground, done: _same_as(outputs, ground, done), once_more,
        share,
    )  # fmt: skip


def _extracted(ground: Ground, _: Done) -> str | None:
    folders = list((ground.live / "out").glob("*/plan.json"))
    if not folders or not archive.is_of(_archive(ground), folders[0].parent):
        return "what was extracted is not the archive's"
    return None


def _extract_again(operation: Operation, ground: Ground, nursery: Nursery | None) -> str | None:
    out = ground.live / "out"
    if any(out.glob("[!.]*")):
        return _extracted(ground, Done((), 0, ""))
    return once_more(operation, ground, nursery)


def _removed(ground: Ground, _: Done) -> str | None:
    left = [path.name for path in ground.data.iterdir() if path.is_dir()]
    return f"left: {left}" if left else None


def _remove_again(operation: Operation, ground: Ground, nursery: Nursery | None) -> str | None:
    done = operation.run(ground, nursery=nursery)
    if done.code not in {0, 2}:
        return f"without a fault the same command ends with {done.code}: {done.out.strip()[-600:]}"
    return _removed(ground, done)


def _known(ground: Ground, done: Done) -> str | None:
    return None if _archive(ground).name.removesuffix(archive.SUFFIX)[:12] in done.out else "the job is not shown"


def _operations() -> Iterator[Operation]:
    yield Operation(
        "submit", _workload, lambda ground: _submit(ground, "--ppn", "1"), _all, "dlio-submit", _submitted,
        _settle_and_submit, 6,
    )  # fmt: skip
    yield Operation(
        "submit --wait, any process", _workload, lambda ground: _submit(ground, "--ppn", str(_RANKS), "--wait"), _all,
        "", _measured, _settle_and_submit, 2, forks=False,
    )  # fmt: skip
    yield Operation(
        "collect", _ended, lambda ground: ours("dlio-hpc", "collect", "-o", ground.runs), _all, "dlio-hpc", archived,
        once_more, 8,
    )  # fmt: skip
    yield _reading("archive verify", ("archive", "verify", "ARCHIVE"), 2)
    yield _reading("archive list", ("archive", "list", "ARCHIVE"), 1)
    yield Operation(
        "archive extract", _collected,
        lambda ground: ours("dlio-hpc", "archive", "extract", _archive(ground), "--to", ground.live / "out"),
        lambda ground: [ground.archive, ground.live / "out"], "dlio-hpc", _extracted, _extract_again, 4,
    )  # fmt: skip
    yield Operation(
        "history", _unknown, lambda ground: ours("dlio-hpc", "history", "--archive", ground.archive), _all, "dlio-hpc",
        _known, once_more, 4,
    )  # fmt: skip
    yield Operation(
        "history --rebuild", _collected,
        lambda ground: ours("dlio-hpc", "history", "--rebuild", "--archive", ground.archive), _all, "dlio-hpc",
        _known, once_more, 4,
    )  # fmt: skip
    yield _reading("status", ("status", "-o", "RUNS"), 2)
    yield _reading("report of a directory", ("report", "JOB"), 2)
    yield _reading("report of an archive", ("report", "ARCHIVE", "--json"), 2)
    yield _reading("datasets list", ("datasets", "list", "-d", "DATA"), 1)
    yield _reading("datasets verify", ("datasets", "verify", "-d", "DATA"), 2)
    yield Operation(
        "datasets remove", _collected,
        lambda ground: ours("dlio-hpc", "datasets", "remove", ground.dataset.name if _removed(ground, Done((), 0, ""))
                            else "gone", "-d", ground.data),
        _all, "dlio-hpc", _removed, _remove_again, 2,
    )  # fmt: skip


OPERATIONS = list(_operations())
