"""The Python environment of the ranks is archived once, and unpacked and removed on each node by the job script."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.batch import environment_archive, jobscript
from dlio_hpc.config import site, workload
from dlio_hpc.plan.plan import Plan
from tests.conftest import BIN, Run
from tests.support import planning
from tests.support.standins.login import until

# The environment and PYTHONPATH of an interpreter on the node.
_RUN = "RUN RUN/package:RUN/stdlib:RUN/stdlib/lib-dynload:/users/own:/ranks"
_PYTHON = """#!/bin/bash
[[ "$*" != *get_path* ]] || { cd "${0%/*}/.." && echo "$PWD"; cd ../base && echo "$PWD"; exit; }
echo "${0%/bin/*} $PYTHONPATH $1 $2"
[ ! -e "$0.broken" ]
"""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter of a small environment. It prints its environment, PYTHONPATH and its first arguments."""
    prefix, package, base = tmp_path / "environment", tmp_path / "dlio_hpc", tmp_path / "base"
    for folder in (prefix / "bin", prefix / "lib" / "__pycache__", package, base / "test", base / "lib-dynload"):
        folder.mkdir(parents=True)
    program = prefix / "bin" / "python3"
    program.write_text(_PYTHON)
    program.chmod(0o755)
    (prefix / "lib" / "module.py").write_text("1")
    (package / "__init__.py").write_text("")
    (base / "os.py").write_text("")
    (base / "test" / "large.py").write_text("")
    monkeypatch.setattr(environment_archive, "_PACKAGE", package)
    return program


def test_an_environment_is_archived_once(python: Path, tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    path = environment_archive.provide(str(python), folder)
    with tarfile.open(path) as tar:
        names = set(tar.getnames())
    assert {"./bin/python3", "./lib/module.py", "package/dlio_hpc/__init__.py", "stdlib/os.py"} < names
    assert not [name for name in names if "large" in name]
    made = path.stat()
    (tmp_path / "environment" / "lib" / "__pycache__" / "module.pyc").write_text("byte code may come at any time")
    (tmp_path / "base" / "test" / "more.py").write_text("not archived")
    assert environment_archive.provide(str(python), folder) == path
    assert path.stat() == made
    assert list(folder.iterdir()) == [path]


def test_the_folder_of_an_environment_may_be_a_link(python: Path, tmp_path: Path) -> None:
    for name in ("environment", "base"):
        (tmp_path / name).rename(tmp_path / f"real {name}")
        (tmp_path / name).symlink_to(f"real {name}")
    python.write_text(python.read_text().replace('cd ../base && echo "$PWD"', 'echo "${PWD%/*}/base"'))
    path = environment_archive.provide(str(python), tmp_path / "archives")
    with tarfile.open(path) as tar:
        assert {"./bin/python3", "./lib/module.py", "stdlib/os.py"} < set(tar.getnames())


@pytest.mark.parametrize(
    "changed", ["environment/lib/module.py", "dlio_hpc/__init__.py", "environment/lib/new.py", "base/os.py"]
)
def test_a_changed_environment_is_archived_anew(changed: str, python: Path, tmp_path: Path) -> None:
    first = environment_archive.provide(str(python), tmp_path / "archives")
    (tmp_path / changed).write_text("changed")
    second = environment_archive.provide(str(python), tmp_path / "archives")
    assert first != second
    assert first.exists()
    with tarfile.open(second) as tar:
        (name,) = (name for name in tar.getnames() if name.endswith(changed.partition("/")[2]))
        content = tar.extractfile(name)
        assert content is not None
        assert content.read() == b"changed"


def test_an_environment_that_cannot_be_moved_is_refused(python: Path, tmp_path: Path) -> None:
    alias = tmp_path / "python3"
    alias.symlink_to(python)
    for command in ("/usr/bin/python3", "python3", str(tmp_path / "absent"), str(tmp_path / "lib" / "python3")):
        with pytest.raises((ConfigError, InfrastructureError)):
            environment_archive.provide(command, tmp_path / "archives")
    python.write_text("#!/bin/bash\nexit 3\n")
    with pytest.raises(ConfigError, match="does not run here"):
        environment_archive.provide(str(python), tmp_path / "archives")
    assert not (tmp_path / "archives").exists()


def test_a_full_disk_leaves_no_archive(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "add", full)
    with pytest.raises(InfrastructureError, match="No space left on device"):
        environment_archive.provide(str(python), tmp_path / "archives")
    assert not list((tmp_path / "archives").iterdir())


def test_the_folder_on_the_nodes_is_an_absolute_path() -> None:
    with pytest.raises(ConfigError, match="must be an absolute path on the nodes"):
        site.load("local", ("stage_environment=shm",))


def _staged(tmp_path: Path, python: Path, name: str = "local", nodes: int = 1, **changes: object) -> Plan:
    nodes_folder = tmp_path / "node's own"
    nodes_folder.mkdir(exist_ok=True)
    profile = replace(site.load(name), stage_environment=str(nodes_folder), python=str(python), **changes)
    request = planning.Request(runs=tmp_path / "runs", data=tmp_path, nodes=nodes, account="proj")
    return planning.make(workload.load("null"), profile, request)


@pytest.fixture
def executed(tmp_path: Path, python: Path) -> Callable[..., tuple[int, str, str]]:
    """Execute a job script. Return its exit code and its output, in which RUN stands for the folder on the node."""

    def call(archived: bool = True) -> tuple[int, str, str]:
        launcher = tmp_path / "launcher"
        launcher.write_text('#!/bin/bash\nshift 2\nexec "$@"\n')
        launcher.chmod(0o755)
        own = {"PYTHONPATH": "/ranks"}
        made = _staged(tmp_path, python, launcher=site.Launcher("mpiexec", str(launcher)), rank_environment=own)
        directory = Path(made.directory)
        directory.mkdir(parents=True)
        if archived:
            archive = environment_archive.provide(str(python), tmp_path / "archives")
            (directory / "python-environment.tar").symlink_to(archive)
        script, variables = jobscript.render(made), {"PATH": "/usr/bin:/bin", "PYTHONPATH": "/users/own"}
        done = subprocess.run(["bash", "-s"], input=script, env=variables, capture_output=True, text=True, check=False)
        assert not list((tmp_path / "node's own").iterdir()), "the environment is removed"
        folder = re.escape(str(tmp_path / "node's own" / made.job)) + r"-\d+"
        return done.returncode, re.sub(folder, "RUN", done.stdout), re.sub(folder, "RUN", done.stderr)

    return call


def test_ranks_run_from_the_node(
    executed: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobscript, "python_path", lambda: "/checkout")
    code, out, err = executed()
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "== stage environment",
        f"{_RUN} -c import os, sys, dlio_hpc.core.run; sys.exit(not os.path.samefile(sys.prefix, sys.argv[1]))",
        "== 00-measure",
        f"{_RUN} -m mpi4py",
    ]


@pytest.mark.parametrize("archived", [True, False])
def test_a_job_ends_where_the_environment_cannot_be_used(
    archived: bool, executed: Callable[..., tuple[int, str, str]], python: Path
) -> None:
    Path(f"{python}.broken").touch()
    code, out, err = executed(archived)
    assert code == 6
    assert "the Python environment cannot be used from RUN (site.stage_environment)" in err
    assert "== 00-measure" not in out


def test_one_process_of_each_node_unpacks(tmp_path: Path, python: Path) -> None:
    made = _staged(tmp_path, python, "slurm", 2)
    script = jobscript.render(made)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    launched = "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 "
    assert f"run 'stage environment' {launched}" in script
    assert re.search(rf"unstage\(\) .* {launched}.* rm -rf \"\$staged\"", script)
    assert serialization.encode(made).count(b"stage_environment") == 1


def _unpack(tmp_path: Path, python: Path, folder: Path) -> int:
    """Execute the command that unpacks an archive, which does not exist, to `folder`. Return its exit code."""
    script = jobscript.render(_staged(tmp_path, python))
    unpack = script.partition("unpack='")[2].partition("'\nrun ")[0]
    command = ["sh", "-c", unpack, "sh", str(folder), str(tmp_path / "absent.tar"), "absent"]
    return subprocess.run(command, check=False).returncode


def test_a_second_rank_of_a_node_leaves_the_unpacking_to_the_first(tmp_path: Path, python: Path) -> None:
    assert _unpack(tmp_path, python, tmp_path) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a folder to another user")
def test_a_folder_of_another_user_is_not_an_environment(tmp_path: Path, python: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    os.chown(foreign, 12345, 12345)
    assert _unpack(tmp_path, python, foreign) == 6


@pytest.mark.job
def test_a_job_runs_from_its_staged_environment(run: Run, tmp_path: Path) -> None:
    options = ("-S", f"site.launcher.command={BIN / 'mpiexec'}", *staging_options(tmp_path))
    command = ("dlio-submit", "null", "-s", "local", "--ppn", 2, "-S", "train.steps=2", *options, "--wait", "--json")
    done = run(*command)
    assert done.code == 0, done.err
    check_staged(tmp_path, Path(done.job["directory"]))


def staging_options(tmp_path: Path) -> tuple[str, ...]:
    """Return options that stage a small environment, which refers to the packages of the large one of the tests."""
    prefix = tmp_path / "small environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    (packages,) = (prefix / "lib").glob("python3*/site-packages")
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    (tmp_path / "node").mkdir()
    keys = (
        f"stage_environment={tmp_path / 'node'}",
        f"python={prefix / 'bin' / 'python'}",
        f"rank_environment.LD_LIBRARY_PATH={Path(sys.prefix, 'lib')}",
    )
    return tuple(word for key in keys for word in ("-S", f"site.{key}"))


def check_staged(tmp_path: Path, directory: Path) -> None:
    """Check that the ranks of a job ran from the node, and that nothing of the environment is left."""
    environment = json.loads((directory / "environment.json").read_bytes())
    assert environment["executable"].startswith(f"{tmp_path / 'node' / directory.name}-")
    until(lambda: not list((tmp_path / "node").iterdir()))
    assert "python-environment.tar" not in json.loads((directory / "manifest.json").read_bytes())["files"]
