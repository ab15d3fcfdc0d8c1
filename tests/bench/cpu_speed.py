"""Figures of an inference workload with a fast and with a slow CPU, on storage whose rate a cgroup limits. A faster CPU
must not raise them once the storage is busy.

Run as root, on a local disk: python -m tests.bench.cpu_speed DIR [ROUNDS]
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dlio_hpc.files import filesystem

# Limit of the disk in bytes/s for reads and for writes, and the share of a CPU that the job may use.
_DISK, _CPUS, _PERIOD_US = 60_000_000, {"2 CPUs": 2.0, "0.3 CPUs": 0.3}, 100_000
_CGROUPS = Path("/sys/fs/cgroup")
_WORKLOAD = """
name: chat
inference:
  model: {layers: 8, kv_heads: 8, head_dim: 128}
  users: 8
  time: 10 s
  interval: 1 s
  prompt: {mean: 100, stdev: 50, min: 16, max: 500}
  answer: {mean: 50, stdev: 20, min: 16, max: 200}
  system_prompt: 128
  turns: 4
  block_tokens: 16
  decode: 2 ms
"""


def _limits(disk: str, cpus: float) -> dict[Path, str]:
    """Return the values of the files of cgroups, for version 2 or 1. disk: numbers of the device, such as 254:0."""
    quota, name = int(cpus * _PERIOD_US), f"dlio-hpc-{os.getpid()}"
    if (_CGROUPS / "cgroup.controllers").exists():
        group = _CGROUPS / name
        return {group / "cpu.max": f"{quota} {_PERIOD_US}", group / "io.max": f"{disk} rbps={_DISK} wbps={_DISK}"}
    cpu, block = _CGROUPS / "cpu" / name, _CGROUPS / "blkio" / name
    rates = {block / f"blkio.throttle.{way}_bps_device": f"{disk} {_DISK}" for way in ("read", "write")}
    return {cpu / "cpu.cfs_period_us": str(_PERIOD_US), cpu / "cpu.cfs_quota_us": str(quota), **rates}


@contextmanager
def _limited(disk: str, cpus: float) -> Iterator[list[Path]]:
    """Make cgroups with limits. Yield the files that take the numbers of processes."""
    limits = _limits(disk, cpus)
    groups = list(dict.fromkeys(path.parent for path in limits))
    for group in groups:
        group.mkdir()
    try:
        for path, value in limits.items():
            path.write_text(value)
        yield [group / "cgroup.procs" for group in groups]
    finally:
        for group in groups:
            group.rmdir()


def _disk(folder: Path) -> str:
    """Return the numbers of the whole disk on which a folder is. A limit applies to whole disks only."""
    number = os.stat(folder).st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    whole = device.parent if (device / "partition").exists() else device
    return (whole / "dev").read_text().strip()


def _measured(folder: Path, cpus: float) -> Any:
    """Return the summary of a run."""
    (folder / "chat.yaml").write_text(_WORKLOAD)
    command = [sys.executable, "-m", "dlio_hpc", "submit", "chat.yaml", "-s", "local", "--ppn", "1", "-d", "data"]
    with _limited(_disk(folder), cpus) as groups:
        enter = " && ".join(f"echo $$ > {group}" for group in groups)
        done = subprocess.run(
            ["/bin/sh", "-c", f'{enter} && exec "$@"', "sh", *command, "--wait", "--json"], cwd=folder, check=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    (job,) = json.loads(done.stdout)["jobs"]
    return job["runs"][0]["result"]["summary"]["inference"]


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{folder} on {filesystem.of(folder).kind}, limited to {_DISK / 1e6:.0f} MB/s")
    made: dict[str, list[Any]] = {name: [] for name in _CPUS}
    for _ in range(rounds):
        for name, cpus in _CPUS.items():
            made[name].append(_measured(folder, cpus))
    for name, summaries in made.items():
        rates, tokens = ([one[key] for one in summaries] for key in ("read_MBps", "tokens_per_s"))
        p99 = [one["ttft_s"]["p99"] for one in summaries]
        print(
            f"{name:>9}: read {statistics.median(rates):.1f} MB/s ({min(rates):.1f} to {max(rates):.1f}), "
            f"{statistics.median(tokens):,.0f} tokens/s, first token p99 {statistics.median(p99):.2f} s "
            f"({min(p99):.2f} to {max(p99):.2f})"
        )


if __name__ == "__main__":
    main()
