"""Verdicts on where bytes came from, held against the counters of real servers and disks. A verdict must never say
storage where less was delivered, nor memory where all was delivered.

`make test-real` runs all ways to read on all file systems. Without --real, a part of them runs on GlusterFS and CephFS.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dlio_hpc.analysis.storage_check import LIMIT
from dlio_hpc.records import job_outcome
from tests.conftest import Outcome, runner
from tests.support import file_servers
from tests.support.file_servers import Mounted

pytestmark = pytest.mark.cluster

_DIRECT, _DROP, _URING = "reader.direct=true", "reader.drop_cache=true", "reader.engine=io_uring"
WAYS: dict[str, tuple[str, ...]] = {
    "posix": (),
    "posix again": (),
    "direct": (_DIRECT,),
    "direct again": (_DIRECT,),
    "drop": (_DROP,),
    "drop again": (_DROP,),
    "direct, drop": (_DIRECT, _DROP),
    "uring": (_URING,),
    "uring, direct": (_URING, _DIRECT),
    "uring, drop": (_URING, _DROP),
    "framework": ("reader.mode=framework",),
    "framework, drop": ("reader.mode=framework", _DROP),
    "pytorch": ("reader.loader=pytorch",),
    "pytorch, direct": ("reader.loader=pytorch", _DIRECT),
    "pytorch, framework, drop": ("reader.loader=pytorch", "reader.mode=framework", _DROP),
    "tensorflow": ("reader.loader=tensorflow", "reader.mode=framework"),
    "tensorflow, drop": ("reader.loader=tensorflow", "reader.mode=framework", _DROP),
}
SIZES = {"32 KiB": (32 << 10, 200), "1 MiB": (1 << 20, 24)}
# Ways whose verdict must not be "unknown", by mount and size, since their bytes are known to come from storage.
_FROM_STORAGE = {
    ("dist", "1 MiB"): {"direct", "drop", "framework, drop"},
    ("rep3", "1 MiB"): {"direct", "drop"},
    ("disp", "1 MiB"): {"direct", "drop"},
    ("ceph", "1 MiB"): {"direct", "uring, direct"},
    ("ceph", "32 KiB"): {"direct", "uring, direct"},
    ("xfs", "1 MiB"): {"direct", "drop"},
    ("btrfs", "1 MiB"): {"drop"},  # since Linux 6.15, O_DIRECT uses the page cache for data with checksums
    ("compressed", "1 MiB"): {"drop"},
    ("overlay", "1 MiB"): {"direct", "drop"},
    ("sshfs", "1 MiB"): {"direct", "drop"},
}
_PART = {"gluster": ("dist",), "ceph": ("ceph",)}
_PART_OF_WAYS = ("posix", "direct", "direct again", "drop", "uring, direct", "framework, drop")


class Verdict(NamedTuple):
    """Outcome of a run beside the truth. delivered: bytes that servers or disks delivered meanwhile, as a share of
    those that the run asked for.
    """

    way: str
    outcome: str
    delivered: float
    first_line: str

    @property
    def is_wrong(self) -> bool:
        is_good = self.first_line.startswith("Good")
        if is_good != (self.outcome == "storage"):
            return True
        return (
            self.delivered < 1 - LIMIT - 0.02
            if is_good
            else self.outcome == "cached" and self.delivered > 1 - LIMIT + 0.02
        )


Measure = Callable[[str, Mounted, tuple[str, ...], str], Verdict]


@pytest.fixture(scope="module", params=list(file_servers.SERVERS))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, dict[str, Mounted]]]:
    name = request.param
    if not request.config.getoption("--real") and name not in _PART:
        pytest.skip(f"{name}: make test-real")
    if why := file_servers.missing(name):
        assert not (os.environ.get("CI") and "apt-get" in why), f"CI runs these tests: {why}"
        pytest.skip(why)
    with file_servers.SERVERS[name](tmp_path_factory.mktemp(name)) as mounts:
        kept = mounts if request.config.getoption("--real") else {mount: mounts[mount] for mount in _PART[name]}
        yield name, kept


def _workload(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(f"name: {name}\n{text}")
    return str(path)


def _samples(folder: Path, size: int, files: int) -> str:
    return _workload(
        folder, f"samples{size}",
        f"dataset: {{format: npz, files: {files}, samples_per_file: 1, sample: {{bytes: {size}}}}}\n"
        "reader: {batch_size: 4, read_threads: 2, shuffle: {files: true, samples: true, seed: 7}}\n"
        "compute: {time: 0}\ntrain: {epochs: 1}\n",
    )  # fmt: skip


def _submit(folder: Path, workload: str, mounted: Mounted, settings: tuple[str, ...], generate: str) -> Outcome:
    options = [option for setting in settings for option in ("-S", setting)]
    return runner(folder)(
        "dlio-submit", workload, "-s", "local", "--ppn", 2, "--wait", "--json", "-d", mounted.folder / "data",
        "-o", folder / "runs", "--generate", generate, *options,
    )  # fmt: skip


def _measured(folder: Path, way: str, mounted: Mounted, workload: str, settings: tuple[str, ...]) -> Verdict:
    before = mounted.delivered()
    done = _submit(folder, workload, mounted, settings, "never")
    assert done.code == 0, f"{way}: {done.err}"
    delivered = mounted.delivered() - before
    (run,) = (run for run in job_outcome.load(Path(done.job["directory"])).runs if run.run.kind == "measure")
    assert run.storage is not None
    asked = sum(epoch.asked for epoch in run.storage.epochs)
    report = runner(folder)("dlio-hpc", "report", done.job["directory"])
    return Verdict(way, run.storage.outcome(), delivered / asked, report.out.splitlines()[0])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", SIZES)
def test_no_verdict_contradicts_what_was_delivered(
    server: tuple[str, dict[str, Mounted]], size: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ways = WAYS if request.config.getoption("--real") else {way: WAYS[way] for way in _PART_OF_WAYS}
    for name, mounted in server[1].items():
        workload = _samples(tmp_path, *SIZES[size])
        made = _submit(tmp_path, workload, mounted, (), "only")
        assert made.code == 0, made.err
        verdicts = [_measured(tmp_path, way, mounted, workload, settings) for way, settings in ways.items()]
        for verdict in verdicts:
            print(f"{name}, {size}, {verdict.way}: {verdict.outcome}, {verdict.delivered:.3f}; {verdict.first_line}")
        # Of a compressed file, one missing page makes the disk deliver a whole extent, though memory has the others.
        wrong = [verdict for verdict in verdicts if verdict.is_wrong]
        assert [verdict for verdict in wrong if name != "compressed" or verdict.outcome == "storage"] == []
        clear = {verdict.way for verdict in verdicts if verdict.outcome == "storage"}
        assert _FROM_STORAGE.get((name, size), set()) & ways.keys() <= clear
        if name != "sshfs":  # each open drops its pages
            assert any(verdict.outcome != "storage" for verdict in verdicts), "what was just written is in memory"


@pytest.mark.timeout(900)
def test_no_verdict_on_checkpoints_contradicts_what_was_delivered(
    server: tuple[str, dict[str, Mounted]], tmp_path: Path
) -> None:
    for name, mounted in server[1].items():
        for way, keys in {"plain": "", "direct": ", direct: true"}.items():
            workload = _workload(
                tmp_path, f"save-{way}", f"checkpoint: {{model_bytes: 16MiB, writes: 2, reads: 2, fsync: true{keys}}}\n"
            )
            verdict = _measured(tmp_path, way, mounted, workload, ())
            print(f"{name}, checkpoints, {way}: {verdict.outcome}, {verdict.delivered:.3f}; {verdict.first_line}")
            assert not verdict.is_wrong, (name, verdict)
            if way == "direct" and name in ("ceph", "xfs", "overlay"):
                assert verdict.outcome == "storage"
