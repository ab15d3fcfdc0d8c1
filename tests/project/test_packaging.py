"""The package works and finds its templates as users install it: from a wheel, with --target and with --prefix."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.places import ROOT


def _run(*command: object, cwd: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=kept | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    tracked = _run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in filter(None, tracked):
        copy = folder / "source" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    _run(sys.executable, "-m", "build", "--outdir", folder / "dist", folder / "source", cwd=folder)
    assert len(list((folder / "dist").glob("*.tar.gz"))) == 1, "the wheel is built from the source distribution"
    (built,) = (folder / "dist").glob("*.whl")
    return built


def _submit(dlio_submit: Path, cwd: Path, **environment: str) -> None:
    out = _run(
        dlio_submit,
        "demo",
        "-s",
        "local",
        "--ppn",
        "2",
        "--dataset-size",
        "8MiB",
        "--wait",
        "--json",
        cwd=cwd,
        **environment,
    )
    (job,) = json.loads(out)["jobs"]
    assert job["state"] == "completed"
    assert job["runs"][-1]["result"]["summary"]["samples"] == 16


def test_a_wheel_in_a_clean_environment_with_its_own_mpi(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", f"{wheel}[mpi]", cwd=tmp_path)
    installed = _run(python, "-m", "pip", "list", "--format=freeze", cwd=tmp_path).lower()
    for absent in ("tensorflow", "torch", "pandas", "matplotlib", "darshan"):
        assert absent not in installed
    # Nothing of the system's: no compiler, no MPI, only what a shell needs.
    _submit(tmp_path / "venv" / "bin" / "dlio-submit", tmp_path, PATH="/usr/bin:/bin")


@pytest.mark.parametrize("how", ["--target", "--prefix"])
def test_a_wheel_put_elsewhere(wheel: Path, tmp_path: Path, how: str) -> None:
    place = tmp_path / "in stalled"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-warn-script-location",
        "--ignore-installed",
    )
    _run(*pip, how, place, wheel, cwd=tmp_path)
    (package,) = place.rglob("dlio_hpc/__init__.py")
    where = package.parents[1]
    # The environment of the tests has an editable install; PYTHONPATH comes before it.
    printed = _run(sys.executable, "-c", "import dlio_hpc.config.shipped as s; print(s.__file__, s.root(), sep='\\n')",
                 cwd=tmp_path, PYTHONPATH=str(where)).split("\n")  # fmt: skip
    assert printed[0].startswith(str(place))
    assert printed[1] == str(place / "share" / "dlio-hpc")
    listing = "from dlio_hpc.config.shipped import *; print(names(STUDIES)[0], *names(CRITERIA))"
    names = _run(sys.executable, "-c", listing, cwd=tmp_path, PYTHONPATH=str(where)).split()
    assert names == [
        "fig10", "acceptance", "checkpointing", "interference", "kv_cache", "metadata", "mlperf_storage_v2",
        "mlperf_storage_v3", "mlperf_storage_v3_kv_cache", "nightly",
    ]  # fmt: skip
    _submit(place / "bin" / "dlio-submit", tmp_path, PYTHONPATH=str(where))
    (script,) = tmp_path.glob("dlio-runs/*/job.sh")
    assert f"export PYTHONPATH='{where}'" in script.read_text(), "the ranks find the package by themselves"


def _environment(wheel: Path, folder: Path) -> Path:
    """Return a new environment with the wheel. Other packages are those of the tests' environment."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder


def test_a_moved_environment_works(wheel: Path, tmp_path: Path) -> None:
    """With its interpreter at once, and with its commands after install-site. These can then be moved, too."""
    old = _environment(wheel, tmp_path / "old place")
    assert str(old) in (old / "bin" / "dlio-hpc").read_text()
    new = old.rename(tmp_path / "new place")
    dlio_hpc = new / "bin" / "python", "-m", "dlio_hpc"
    assert "demo" in _run(*dlio_hpc, "workloads", cwd=tmp_path).split()
    out = _run(*dlio_hpc, "submit", "demo", "-s", "slurm", "-d", "/scratch", "--dry-run", "--json", cwd=tmp_path)
    script = json.loads(out)["jobs"][0]["script"]
    assert f"'{new}/bin/python' -m mpi4py" in script
    assert str(old) not in script
    assert str(old) not in _run(*dlio_hpc, "doctor", cwd=tmp_path)

    stale = subprocess.run(["sh", "-c", '"$0" --version', new / "bin" / "dlio-hpc"], capture_output=True, check=False)
    assert stale.returncode in {126, 127}, "the command names the old interpreter"
    _run(*dlio_hpc, "install-site", new, cwd=tmp_path)
    last = new.rename(tmp_path / "last place")
    for command in ("dlio-hpc", "dlio-submit"):
        assert _run(last / "bin" / command, "--version", cwd=tmp_path).startswith(command)
    assert "demo" in _run(last / "bin" / "dlio-hpc", "workloads", cwd=tmp_path).split()


def test_a_wheel_has_the_files_for_a_site(wheel: Path, tmp_path: Path) -> None:
    environment = _environment(wheel, tmp_path / "environment")
    _run(environment / "bin" / "dlio-hpc", "install-site", tmp_path / "site", cwd=tmp_path)
    installed = tmp_path / "site" / "share/doc/dlio-hpc/examples"
    examples = ROOT / "share" / "examples"
    names = {path.relative_to(examples) for path in examples.rglob("*") if path.is_file()}
    assert {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()} == names
    command = tmp_path / "site" / "bin" / "dlio-submit"
    assert f"'{environment}/bin/python'" in command.read_text() or f" {environment}/bin/python " in command.read_text()
    out = _run(command, "demo", "-s", "slurm", "-d", "/scratch", "--dry-run", cwd=tmp_path, PATH="/usr/bin:/bin")
    assert f"{environment}/bin/python" in out, "the job uses the environment, not the prefix"
    assert (tmp_path / "site/share/man/man1/dlio-hpc-report.1").is_file()


def test_the_checkout_is_found_without_an_install() -> None:
    program = "from dlio_hpc.config import shipped; print(shipped.root())"
    out = _run(sys.executable, "-c", program, cwd=ROOT, PYTHONPATH=str(ROOT))
    assert Path(out.strip()) == ROOT
