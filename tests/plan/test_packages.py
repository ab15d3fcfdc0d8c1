"""Packages that only some readers need are imported on every node before anything is generated."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from dlio_hpc.batch import jobscript
from dlio_hpc.config import site, workload
from dlio_hpc.plan import packages
from tests.conftest import BIN, Outcome, Run, ahead
from tests.support import planning

_TF = ("-S", "reader.loader=tensorflow", "-S", "reader.shuffle={files: false, samples: false}")


def _broken(folder: Path, *modules: str) -> dict[str, str]:
    """The environment of a Python that finds these modules and cannot import them, because a library is missing."""
    place = folder / "broken"
    place.mkdir(exist_ok=True)
    for module in modules:
        (place / f"{module}.py").write_text("raise ImportError('libfoo.so.2: cannot open shared object file')\n")
    return ahead(place)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "dlio-runs" not in path.parts]


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ((), ()),
        (("reader.loader=tensorflow",), ("tensorflow",)),
        (("reader.loader=pytorch",), ("pytorch",)),
        (("dataset.format=csv",), ()),
        (("dataset.format=csv", "reader.mode=framework"), ("pandas",)),
        (("dataset.format=csv", "reader.mode=framework", "reader.loader=pytorch"), ("pytorch", "pandas")),
        (("dataset.format=hdf5", "dataset.file_access=shared", "dataset.files=1", "reader.access=collective"), ()),
        (
            (
                "dataset.format=hdf5", "dataset.file_access=shared", "dataset.files=1", "reader.access=collective",
                "reader.mode=framework", "reader.read_threads=1",
            ),
            ("parallel h5py",),
        ),
    ],
)  # fmt: skip
def test_what_a_workload_needs(keys: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert packages.needed([workload.load("demo", ("reader.read_threads=1", *keys))]) == names
    for name in names:
        assert packages.PACKAGES[name].remedy in packages.advice(name)


@pytest.mark.job
@pytest.mark.parametrize(
    ("module", "keys", "remedy"),
    [
        ("tensorflow", _TF, "pip install tensorflow-cpu"),
        ("torch", ("-S", "reader.loader=pytorch"), "pip install torch"),
        ("pandas", ("-S", "dataset.format=csv", "-S", "reader.mode=framework"), "pip install pandas"),
        ("tensorflow", (*_TF, "-P", "dataset.samples_per_file=2,4"), "pip install tensorflow-cpu"),
    ],
)
def test_a_package_that_cannot_be_imported_stops_the_job_before_it_generates(
    run: Run, small: Path, tmp_path: Path, module: str, keys: tuple[str, ...], remedy: str
) -> None:
    where = ("-s", "local", "-d", "data", "--ppn", 2)
    before = _files(tmp_path)
    broken = _broken(tmp_path, module)
    done = run("dlio-submit", small, *where, *keys, "--wait", **broken)
    assert done.code == 2, done.err
    assert f"on {os.uname().nodename}: ImportError: libfoo.so.2" in done.err
    assert remedy in done.err
    made = {path.name for path in _files(tmp_path) if path.suffix != ".pyc"}
    assert made - {path.name for path in before} <= {f"{module}.py", "__pycache__"}
    if "-P" not in keys:
        looked = run("dlio-hpc", "check", small, *where, *keys, **broken)
        assert looked.code == 2
        assert "fault  launch" in looked.out
        assert remedy in looked.out


@pytest.mark.job
def test_data_for_somewhere_else_need_no_reader_here(run: Run, small: Path, tmp_path: Path) -> None:
    options = (*_TF, "-s", "local", "-d", "data", "--ppn", 2, "--generate", "only", "--wait")
    assert run("dlio-submit", small, *options, **_broken(tmp_path, "tensorflow")).code == 0


@pytest.mark.job
def test_a_package_that_is_there_is_imported_once_a_node(run: Run, small: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    job = run("dlio-submit", small, "-s", "local", "-S", "reader.loader=pytorch", "--ppn", 2, "--wait", "--json").job
    said = Path(job["directory"], "job.out").read_text()
    assert "== packages\npytorch can be used on 1 of 1 node\n" in said
    looked = run("dlio-hpc", "check", small, "-s", "local", "-S", "reader.loader=pytorch")
    assert looked.code == 0, looked.out
    assert "ranks can import pytorch" in looked.out


def test_the_local_site_looks_at_submission(tmp_path: Path, small: Path) -> None:
    """Submission refuses a job whose package is not installed, where the job runs with the interpreter that submits."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
    )
    command = [str(BIN / "dlio-submit"), str(small), "-s", "local", "-S", "reader.loader=pytorch"]
    environment = os.environ | ahead(tmp_path)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pytorch is not installed for" in done.stderr
    assert "pip install torch" in done.stderr
    assert not (tmp_path / "dlio-runs").exists()


@pytest.mark.parametrize(
    ("machine", "launcher"),
    [
        ("slurm", "--nodes=4 --ntasks=4 --ntasks-per-node=1 "),
        ("polaris", "-n 4 --ppn 1 "),
        ("theta", "-n 4 -N 1 "),
        ("pbs", "-n 4 -ppn 1 "),
    ],
)
def test_a_rank_of_each_node_is_launched_for_it(tmp_path: Path, machine: str, launcher: str) -> None:
    request = planning.Request(runs=tmp_path, data=tmp_path, nodes=4)
    made = planning.make(workload.load("demo", ("reader.loader=tensorflow",)), site.load(machine), request)
    assert made.packages == ("tensorflow",)
    (line,) = (line for line in jobscript.render(made).splitlines() if line.startswith("run packages "))
    assert launcher in line
    assert line.endswith("--run 0 --packages || exit $?   # end the job: its runs need these packages")
    native = planning.make(workload.load("demo"), site.load(machine), request)
    assert "packages" not in jobscript.render(native)


def _refused(done: Outcome, folder: Path) -> None:
    assert done.code == 6
    assert "cannot create files in /proc" in done.err
    assert not (folder / "dlio-runs").exists()


def test_a_data_folder_that_cannot_be_written_is_found_at_submission(run: Run, small: Path, tmp_path: Path) -> None:
    _refused(run("dlio-submit", small, "-s", "local", "-d", "/proc/data"), tmp_path)
    _refused(run("dlio-submit", small, "-s", "local", "--ab", "data", "/proc/data"), tmp_path)
    null = ("dlio-submit", "null", "-s", "local", "-S", "train.steps=1", "--ppn", 1, "--wait", "--quiet")
    assert run(*null, "-d", "/proc/data").code == 0, "it writes nothing there"
    _refused(run("dlio-submit", "null", "-s", "local", "-d", "/proc/data", "-S", "checkpoint={}", cwd=small.parent),
             tmp_path / "no")  # fmt: skip


def test_a_queue_that_the_profile_does_not_list_is_said_before_submission(run: Run) -> None:
    where = ("-s", "theta", "-A", "physics", "-d", "data", "-N", 128, "-q", "nonesuch")
    note = "note: the profile of site theta does not list queue nonesuch; the limits of this queue are not checked"
    done = run("dlio-submit", "demo", *where, "--dry-run")
    assert done.code == 0
    assert note in done.err
    cost = run("dlio-hpc", "estimate", "demo", *where).out
    assert note.removeprefix("note: ") in " ".join(cost.split())
    assert note not in run("dlio-submit", "demo", *where, "--dry-run", "--quiet").err
    assert json.loads(run("dlio-submit", "demo", *where, "--dry-run", "--json").out)["jobs"]
