"""Checkpoints through frameworks: torch.save, torch.distributed.checkpoint and Keras."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import site, workload
from dlio_hpc.config.checkpoint_keys import Checkpoint
from dlio_hpc.config.workload import load
from dlio_hpc.core import package_check
from dlio_hpc.dataset import checkpoint_files
from dlio_hpc.plan import cost, packages
from dlio_hpc.programs.files import file_roles
from tests.conftest import BIN, Run
from tests.support import planning
from tests.support.checkpoint_faults import DISK
from tests.support.faults.library import Library, compiler
from tests.support.places import ROOT

MODES = {"torch": "torch", "torch_distributed": "torch", "keras": "keras"}
_MODEL = (
    "checkpoint={model: {layers: 2, hidden: 64, feed_forward: 128, heads: 4, kv_heads: 2, vocabulary: 100},"
    " parallelism: {data: 2}, zero: 3, reads: 2, keep: 2, verify: true, mode: %s, %s}"
)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Return a mode whose framework is installed."""
    name: str = request.param
    if importlib.util.find_spec(MODES[name]) is None:
        pytest.skip(f"no {MODES[name]} here")
    return name


def _program(
    folder: Path, mode: str, case: str, keys: str = "fsync: true", ranks: int = 2
) -> subprocess.CompletedProcess[str]:
    """Run the program of framework_checkpoints.py."""
    command: list[str | Path] = [BIN / "mpiexec", "-n", str(ranks), sys.executable, "-W", "error::UserWarning", "-m"]
    return subprocess.run(
        [*command, "tests.support.framework_checkpoints", folder, mode, case, _MODEL % (mode, keys)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip


@pytest.mark.job
@pytest.mark.framework
def test_the_framework_itself_reads_what_is_written(tmp_path: Path, mode: str) -> None:
    done = _program(tmp_path, mode, "read by the framework")
    assert done.returncode == 0, done.stderr
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    names = [re.sub("^outputs-[^/]*/", "", name) for name in names]
    if mode == "torch_distributed":
        files = (".metadata", "__0_0.distcp", "__1_0.distcp")
        assert names == [f"checkpoint00{slot}/{name}" for slot in (0, 1) for name in files]
    else:
        suffix = {"torch": "pt", "keras": "weights.h5"}[mode]
        kinds = ("model_states", "optim_states")
        parts = [f"zero_pp_rank_{rank}_mp_rank_0_{kind}.{suffix}" for rank in (0, 1) for kind in kinds]
        assert names == [f"checkpoint00{slot}-{name}" for slot in (0, 1) for name in parts]
    sizes = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) / 2
    keys = load("demo", (_MODEL % (mode, "fsync: true"),)).checkpoint
    assert keys is not None
    assert checkpoint_files.size(keys, 2) < sizes < checkpoint_files.space(keys, 2)


@pytest.mark.job
@pytest.mark.framework
def test_a_wrong_byte_is_detected(tmp_path: Path, mode: str) -> None:
    done = _program(tmp_path, mode, "damaged")
    assert done.returncode == 3
    assert re.search(r"InvalidRun: \S+: tensor zero_pp_rank_1\S+optim_states.0: byte 100 is 0x.. when", done.stderr)
    assert "closed by peer" not in done.stderr


@pytest.mark.job
@pytest.mark.framework
@pytest.mark.skipif(compiler() is None, reason="there is no C compiler for the library of faults")
def test_a_failing_disk_is_named(tmp_path: Path, mode: str) -> None:
    """At every place, an error of the system ends with its cause and its file, and a damaged file is an invalid run."""
    (tmp_path / "preload").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.checkpoint_faults", tmp_path, mode, ",".join(DISK), "40"],
        env={**os.environ, "LD_PRELOAD": str(Library(tmp_path / "preload").path), "TF_CPP_MIN_LOG_LEVEL": "2"},
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    damaged = {row["kind"]: row["code"] for row in rows if row["kind"] not in DISK}
    assert damaged == {"missing": 6, "truncated": 3, "changed": 3, "empty": 3}
    refused = [row for row in rows if row["code"] != 0]
    assert {row["kind"] for row in refused} >= {"EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES"}
    for row in refused:
        if row["kind"] in DISK:
            assert row["code"] == 6, row
            assert DISK[row["kind"]].cause in row["message"], row
        assert "/outputs-" in row["message"], row
    if mode == "torch_distributed":
        assert [row for row in refused if row["kind"] == "EIO" and "/.metadata: Input/output error" in row["message"]]


@pytest.mark.job
@pytest.mark.framework
@pytest.mark.parametrize(("keys", "ranks"), [("asynchronous: true", 2), ("read_back: true", 3)])
def test_checkpoints_in_the_background(tmp_path: Path, mode: str, keys: str, ranks: int) -> None:
    done = _program(tmp_path, mode, "restored", keys, ranks=ranks)
    assert done.returncode == 0, done.stderr


@pytest.mark.job
@pytest.mark.framework
def test_a_job_writes_and_reads_through_a_framework(run: Run, tmp_path: Path, mode: str) -> None:
    keys = {"mode": mode, "writes": 2, "reads": 2, "keep": 2, "verify": "true", "reorder": 0}
    options = [word for key, value in keys.items() for word in ("-S", f"checkpoint.{key}={value}")]
    done = run(
        "dlio-submit", "llama3_70b", "--ppn", 2, "-d", "data", "--dataset-size", "4MB", "-S", "compute.time=0",
        *options, "--wait", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    result = done.job["runs"][-1]["result"]
    saved, restored = result["summary"]["checkpoint"], result["summary"]["restored"]
    assert (saved["count"], restored["count"]) == (2, 2)
    assert saved["bytes_written"] > 4e6
    shared = mode == "torch_distributed"  # each of both ranks reads .metadata
    assert (restored["bytes_read"] > saved["bytes_written"]) == shared
    assert MODES[mode] in result["versions"]
    report = " ".join(run("dlio-hpc", "report", done.job["archive"]).out.split())
    through = {"torch": "torch.save", "torch_distributed": "torch.distributed.checkpoint", "keras": "Keras's weights"}
    assert f"2 checkpoints through {through[mode]}" in report
    assert "no dataset" in report
    assert "null, " not in report
    assert not list((tmp_path / "data").glob("[!.]*")), "nothing of them is left"


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("direct: true", "direct=true cannot be combined with mode={}"),
        ("files: [8], requests: [[0, 8]]", "requests cannot be combined with mode={}"),
    ],
)
def test_requests_of_ones_own_are_refused(name: str, keys: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.format(name)):
        load("demo", (f"checkpoint={{mode: {name}, {keys}}}",))


def test_keras_beside_workers_that_fork_is_refused() -> None:
    keys = ("checkpoint={mode: keras}", "reader.loader=pytorch")
    with pytest.raises(ConfigError, match=r"set reader\.multiprocessing_context=spawn"):
        load("demo", keys)
    load("demo", (*keys, "reader.multiprocessing_context=spawn"))


def test_a_mode_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="use one of: posix, torch, torch_distributed, keras"):
        load("demo", ("checkpoint={mode: pickle}",))


@pytest.mark.parametrize(("name", "package"), MODES.items())
def test_the_package_is_required_before_the_job_is_submitted(
    run: Run, small: Path, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = workload.load("demo", (f"checkpoint={{mode: {name}}}",))
    assert packages.needed([wanted]) == (package,)
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None if module == package else real(module))
    done = run("dlio-submit", small, "-s", "local", "-d", "data", "-S", f"checkpoint={{mode: {name}}}")
    assert done.code == 2
    assert f"{package} is not installed for" in done.err
    assert "or set checkpoint.mode=posix" in done.err


def test_a_package_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keras.py").write_text("raise ImportError('no backend')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "keras", raising=False)  # another test of this process may have imported it
    fault = package_check._fault("keras")
    assert fault == "ImportError: no backend"
    assert "keras" not in sys.modules


def test_a_file_without_a_model_has_tensors_of_64_mebibytes() -> None:
    (file,) = checkpoint_files.of_rank(Checkpoint(model_bytes=units.Size(150 << 20)), 0)
    assert file.arrays == (64 << 20, 64 << 20, 22 << 20)
    assert [file.arrays for file in checkpoint_files.of_rank(Checkpoint(), 0)] == [
        (1024,),
        (1024,),
        (4096,),
        (65536,),
        (4194304,),
    ]


def test_space_is_reserved_for_headers(tmp_path: Path) -> None:
    def space(name: str) -> int:
        keys = _MODEL % (name, "fsync: true")
        made = planning.make(load("demo", (keys,)), site.load("local"), planning.Request(tmp_path, data=tmp_path))
        return cost.of_job(made, set()).space

    assert space("posix") < space("torch") == space("keras")


@pytest.mark.parametrize(("by", "files", "tensors"), [("root", 2, 6), ("all", 6, 18)])
def test_space_for_headers_grows_with_files_and_their_tensors(by: str, files: int, tensors: int) -> None:
    """200 MiB are four tensors of up to 64 MiB, and 70 MiB are two. A file has headers of at most 16 KiB, and a tensor
    of at most 6 KiB.
    """
    keys = load("demo", (f"checkpoint={{mode: torch, by: {by}, files: [200 MiB, 70 MiB]}}",)).checkpoint
    assert keys is not None
    assert checkpoint_files.space(keys, 3) == files // 2 * (270 << 20) + files * (16 << 10) + tensors * (6 << 10)


def test_files_of_frameworks_are_known_as_checkpoints() -> None:
    for name in ("a/__0_0.distcp", "model_states.pt", "x.weights.h5"):
        assert file_roles._MODEL.search(name)
