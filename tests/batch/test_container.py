"""Ranks start in a container image: which command starts them, and which profiles and images are refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import dlio_hpc
from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.batch import container, jobscript, launchers
from dlio_hpc.batch.shell_quoting import join
from dlio_hpc.config import site, workload
from dlio_hpc.config.container import Bind, Container, parse_bind
from dlio_hpc.core import image_check
from dlio_hpc.plan.plan import Plan
from dlio_hpc.results import run_result
from tests.conftest import BIN, Run
from tests.support import boxed_ranks, planning
from tests.support.boxed_ranks import Boxed
from tests.support.standins import libdarshan
from tests.support.standins.login import library

_IMAGES = {"apptainer": "/shared/dlio-hpc.sif", "singularity": "/shared/dlio-hpc.sif", "podman-hpc": "dlio-hpc:0.1"}


def _plan(engine: str = "apptainer", work: str = "demo", **keys: Any) -> Plan:
    """Plan 2 nodes x 4 ranks. keys: keys of the site; those of the container have the prefix box_."""
    boxed = {name.removeprefix("box_"): value for name, value in keys.items() if name.startswith("box_")}
    rest = {name: value for name, value in keys.items() if not name.startswith("box_")}
    image = serialization.convert({"engine": engine, "image": _IMAGES[engine], **boxed}, Container, "test")
    profile = replace(site.load(rest.pop("profile", "slurm")), container=image, **rest)
    request = planning.Request(runs=Path("/r"), data=Path("/d"), nodes=2, ranks_per_node=4)
    return planning.make(workload.load(work), profile, request)


def _rank_line(made: Plan) -> str:
    """Return the line of the script that starts the ranks of a run."""
    (line,) = (line for line in jobscript.render(made).splitlines() if line.startswith("run 01-measure "))
    return line


def _container(made: Plan) -> str:
    """Return the value of the array that starts a program in the container."""
    (line,) = (line for line in jobscript.render(made).splitlines() if line.startswith("container=("))
    return line.replace(made.directory, "JOB").removeprefix("container=(").removesuffix(")")


def test_the_launcher_is_outside_and_the_ranks_are_inside() -> None:
    made = _plan(box_binds=("/opt/cray:ro",), box_options=("--nv",), rank_environment={"A": "1 2"})
    assert _rank_line(made) == (
        "run 01-measure srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --mpi=pmi2 --kill-on-bad-exit=1 "
        "\"${container[@]}\" A='1 2' python3 -m mpi4py -m dlio_hpc.core plan.json --run 1 || status=$?"
    )
    assert _container(made) == (
        "env -u PYTHONPATH -u PYTHONHOME -u LD_PRELOAD apptainer exec --pwd=JOB --bind=/opt/cray:/opt/cray:ro "
        "--bind=/d:/d --bind=JOB:JOB --nv /shared/dlio-hpc.sif env PYTHONNOUSERSITE=1 PYTHONSAFEPATH=1"
    )


def test_podman_gets_the_variables_of_launchers_and_the_namespaces_of_the_node() -> None:
    made = _plan("podman-hpc", environment={"PYTHONPATH": "/p", "OWN": "1"}, box_python="/x/python")
    start, _, inside = _container(made).partition(" dlio-hpc:0.1 ")
    assert start.startswith(
        "podman-hpc run --rm --entrypoint= --network=host --uts=host --pid=host --ipc=host --workdir=JOB "
    )
    assert " '--env=PMI*' " in start
    assert " --env=OWN " in start
    assert "PYTHONPATH" not in start
    assert start.endswith(" --volume=/d:/d --volume=JOB:JOB")
    assert inside == "env PYTHONNOUSERSITE=1 PYTHONSAFEPATH=1"
    assert '"${container[@]}" /x/python -m mpi4py -m dlio_hpc.core ' in _rank_line(made)


def test_other_steps_stay_outside() -> None:
    script = jobscript.render(_plan(darshan="/opt/darshan/libdarshan.so"))
    for step in ("dlio_hpc.lustre", "dlio_hpc.darshan judge", "dlio_hpc.darshan excluded"):
        (line, *_) = (line for line in script.splitlines() if step in line)
        assert "container[@]" not in line


@pytest.mark.parametrize("kind", ["srun", "pals", "aprun"])
def test_libraries_are_preloaded_by_the_ranks_and_not_by_launcher_or_engine(kind: str) -> None:
    made = _plan(
        launcher=site.Launcher(kind, "launch"),  # type: ignore[arg-type]
        darshan="/opt/darshan/libdarshan.so",
        preload=("/opt/libx.so",),
        rank_environment={"A": "1"},
    )
    line, script = _rank_line(made), jobscript.render(made)
    outside, _, inside = line.partition(' "${container[@]}" ')
    assert inside.startswith('A=1 "${darshan[@]}" python3 ')
    assert "A=1" not in outside
    assert "darshan" not in outside
    assert ' --bind=/opt/libx.so:/opt/libx.so:ro --bind=JOB:JOB "${darshan_bind[@]}" ' in _container(made)
    assert (
        "[ ! -e /opt/darshan/libdarshan.so ] || "
        "darshan_bind=(--bind=/opt/darshan/libdarshan.so:/opt/darshan/libdarshan.so:ro)\n"
    ) in script
    assert "darshan=(LD_PRELOAD=/opt/darshan/libdarshan.so:/opt/libx.so DARSHAN_LOGFILE=" in script
    off = join(launchers.rank_command(replace(made, site=replace(made.site, darshan=None))))
    assert off.endswith('"${container[@]}" A=1 LD_PRELOAD=/opt/libx.so')


@pytest.mark.parametrize(
    ("binds", "added"),
    [
        ((), ["/d", "JOB"]),
        (("/d", "/r"), []),
        (("/",), []),
        (("/d/",), ["JOB"]),
        (("/d:ro",), ["/d", "JOB"]),  # the dataset is generated there
        (("/elsewhere:/d",), ["/d", "JOB"]),
        (("/dd",), ["/d", "JOB"]),
    ],
)
def test_only_paths_that_are_not_bound_yet_are_added(binds: tuple[str, ...], added: list[str]) -> None:
    made = _plan(box_binds=binds)
    assert [bind.source.replace(made.directory, "JOB") for bind in container.automatic(made)] == added


def test_checkpoints_are_bound_and_a_workload_without_data_binds_none() -> None:
    made = _plan(work="null")
    assert [bind.source for bind in container.automatic(made)] == [made.directory]
    saved = planning.make(
        workload.load("null", ("checkpoint={every_steps: 2, model_bytes: 1MB}",)),
        made.site,
        planning.Request(runs=Path("/r"), data=Path("/d")),
    )
    assert [bind.source for bind in container.automatic(saved)] == ["/d", saved.directory]
    assert container.created(saved) == ["/d"]


def test_the_mpi_of_the_site_needs_its_library_path() -> None:
    line = _container(_plan(box_mpi="site", box_binds=("/opt/cray:ro",)))
    assert line.endswith('PYTHONSAFEPATH=1 ${LD_LIBRARY_PATH:+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/.singularity.d/libs"}')
    assert "LD_LIBRARY_PATH" not in _container(_plan())
    for image in (
        Container("apptainer", "/x.sif", "site", ("/opt/cray",)),
        Container("apptainer", "/x.sif", "site", ("/",)),
    ):
        assert image_check.site_mpi_fault(image, ["/opt/cray/lib/libmpi.so.12"]) == ""
    image = Container("apptainer", "/x.sif", "site", ("/opt/cray:/cray",))
    assert "loads /usr/lib/libmpi.so.12 instead of the site's MPI" in image_check.site_mpi_fault(
        image, ["/usr/lib/libmpi.so.12"]
    )
    assert "no libmpi" in image_check.site_mpi_fault(image, [])
    assert (
        image_check.site_mpi_fault(Container("podman-hpc", "x", "site", (), options=("--mpi",)), ["/lib/libmpi.so"])
        == ""
    )


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("/scratch", Bind("/scratch", "/scratch")),
        ("/opt/cray:ro", Bind("/opt/cray", "/opt/cray", True)),
        ("/a:/b", Bind("/a", "/b")),
        ("/a/:/b:rw", Bind("/a", "/b")),
        ("/a:/b:ro", Bind("/a", "/b", True)),
    ],
)
def test_binds_are_read_as_engines_read_them(text: str, bind: Bind) -> None:
    assert parse_bind(text) == bind
    assert parse_bind(bind.text) == bind


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            "{engine: docker, image: x}",
            "container.engine: found 'docker'; use one of: apptainer, singularity, podman-hpc",
        ),
        ("{engine: apptainer}", "container: key 'image' is missing"),
        ("{engine: apptainer, image: dlio.sif}", "must be the absolute path of a SIF file"),
        ("{engine: singularity, image: 'docker://x/y'}", "`singularity pull` makes a SIF file"),
        ("{engine: podman-hpc, image: /shared/x.sif}", "is not the name of an image of Podman-HPC"),
        ("{engine: podman-hpc, image: --privileged}", "is not the name of an image"),
        ("{engine: apptainer, image: /x.sif, binds: [scratch]}", "'scratch' must have the form PATH, PATH:ro or"),
        ("{engine: apptainer, image: /x.sif, binds: ['/a:/b:/c']}", "must have the form"),
        ("{engine: apptainer, image: /x.sif, binds: ['/a,/b']}", "absolute paths without commas"),
        ("{engine: apptainer, image: /x.sif, options: [nv]}", "'nv' must begin with -"),
        ("{engine: apptainer, image: /x.sif, mpi: site}", "needs the directories of the site's MPI in binds"),
        ("{engine: apptainer, image: /x.sif, bind: []}", "bind"),
        ("{engine: apptainer, image: /x.sif, python: ''}", "use text that is not empty"),
    ],
)
def test_bad_values_are_refused(keys: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        site.load("slurm", (f"container={keys}",))
    assert message in str(refused.value)
    assert "container" in str(refused.value)


def test_a_staged_environment_and_an_image_exclude_each_other() -> None:
    keys = ("stage_environment=/dev/shm", "container={engine: apptainer, image: /x.sif}")
    with pytest.raises(ConfigError, match="set stage_environment or container to null"):
        site.load("slurm", keys)


def test_a_path_that_no_engine_can_bind_is_refused() -> None:
    made = replace(_plan(), directory="/r/a,b")
    with pytest.raises(ConfigError, match=r"site\.container: /r/a,b: container engines separate paths by colons and"):
        jobscript.render(made)


def _checked(image: str, *job: object, version: str = dlio_hpc.__version__) -> tuple[int, str]:
    command = container.test(Container("apptainer", image, python=sys.executable), version, *map(str, job))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_an_image_with_another_dlio_hpc_is_refused(tmp_path: Path) -> None:
    assert _checked("/x.sif") == (0, "")
    code, text = _checked("/x.sif", version="9.9")
    assert code == container.UNUSABLE
    assert text == (
        f"dlio-hpc: {os.uname().nodename}: site.container: /x.sif cannot be used: it has dlio-hpc "
        f"{dlio_hpc.__version__}, the job was planned by 9.9; it needs mpi4py and dlio-hpc 9.9 as it is here\n"
    )


def test_an_image_whose_dlio_hpc_does_not_know_a_key_is_refused(tmp_path: Path) -> None:
    plan, error = tmp_path / "plan.json", tmp_path / "runs" / "00-generate" / "error.json"
    plan.write_bytes(serialization.encode(_plan()))
    assert _checked("/x.sif", plan, error) == (0, "")
    assert not error.parent.exists()
    plan.write_bytes(serialization.encode({**serialization.plain(_plan()), "news": 1}))
    code, text = _checked("/x.sif", plan, error)
    recorded = run_result.decode_error(error.read_bytes(), str(error))
    assert (recorded.exit_code, recorded.kind) == (code, "ConfigError")
    assert recorded.message in text
    assert _checked("/x.sif", plan, error)[0] == code, "another node failed, too"
    assert code == container.UNUSABLE
    assert "its dlio-hpc cannot read the plan of the job: " in text
    assert "unknown key 'news'" in text


def test_an_image_without_mpi4py_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no module mpi4py here')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{boxed_ranks.ROOT}")
    code, text = _checked("/x.sif")
    assert code == container.UNUSABLE
    assert f"{sys.executable}: no module mpi4py here" in text


# Preflight, and jobs in an image without files of its own, into which the files of this computer are bound.


def _submit(run: Run, work: Path, *options: object, code: int = 0, **environment: str) -> Any:
    launcher = ("-S", f"site.launcher.command={BIN / 'mpiexec'}")
    command = ("dlio-submit", work, "-s", "local", "--ppn", 2, *launcher, *options, "-d", "data", "--wait", "--json")
    done = run(*command, **environment)
    assert done.code == code, done.err
    return done.job


@pytest.mark.job
def test_ranks_run_in_an_image(boxed: Boxed, run: Run, small: Path) -> None:
    checkpoint = ("-S", "checkpoint={every_steps: 2, model_bytes: 64KiB}")
    job = _submit(run, small, *boxed(), *boxed_ranks.VARIABLES, *checkpoint, LD_PRELOAD=library(), PYTHONHOME="")
    result = job["runs"][-1]["result"]
    assert (result["ranks"], result["hosts"]) == (2, [os.uname().nodename])
    assert result["summary"]["samples"] == 60
    assert result["summary"]["checkpoint"]["count"] > 0
    boxed_ranks.check(Path(job["directory"]))


@pytest.mark.job
def test_darshan_records_the_ranks_in_an_image(boxed: Boxed, run: Run, small: Path, tmp_path: Path) -> None:
    """libdarshan lies outside of the image, and the profile does not bind it."""
    recorder = ("-S", f"site.darshan={libdarshan.install(tmp_path / 'lib')}", "-S", libdarshan.rank_environment())
    options = boxed()
    _submit(run, small, *options, "--generate", "only")
    job = _submit(run, small, *options, *recorder)
    out = Path(job["directory"], "job.out").read_text()
    assert "records the ranks" in out
    verdict = job["runs"][-1]["darshan"]
    assert verdict["why_not"] is None
    assert verdict["differences"] == []


@pytest.mark.job
def test_an_image_of_another_version_ends_the_job_at_its_start(
    boxed: Boxed, run: Run, small: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    old.mkdir()
    (old / "dlio_hpc.py").write_text("__version__ = '0.0.9'")
    path = ("-S", f"site.rank_environment.PYTHONPATH={old}")
    root = [f"{name}:ro" for name in ("/usr", "/etc", sys.prefix, sys.base_prefix, old)]
    job = _submit(run, small, *boxed(binds=root), *path, code=2)
    assert not list((tmp_path / "data").iterdir())
    message = job["runs"][0]["error"]["message"]
    assert f"cannot be used: it has dlio-hpc 0.0.9, the job was planned by {dlio_hpc.__version__}; it needs" in message
    assert "layout before" not in Path(job["directory"], "job.out").read_text()


@pytest.mark.job
def test_an_image_that_does_not_start_is_a_fault_of_the_machine(boxed: Boxed, run: Run, small: Path) -> None:
    _submit(run, small, *boxed(python="/not/in/the/image/python3"), code=6)


def _check(run: Run, *options: object, scheduler: str = "local") -> tuple[int, list[tuple[str, str]]]:
    done = run("dlio-hpc", "check", "demo", "-s", scheduler, "-d", "data", "--no-launch", "--json", *options)
    findings = [(one["verdict"], one["text"]) for one in done.json["findings"] if one["what"] == "container"]
    return done.code, findings


@pytest.mark.job
def test_the_preflight_starts_the_image(boxed: Boxed, run: Run, tmp_path: Path) -> None:
    code, findings = _check(run, *boxed())
    assert code == 0
    assert [verdict for verdict, _ in findings] == ["ok", "ok"]
    assert findings[-1][1] == f"the image starts here and has dlio-hpc {dlio_hpc.__version__} and mpi4py"
    code, findings = _check(run, *boxed(python="/not/in/the/image/python3"))
    assert (code, findings[-1][0]) == (6, "fault")
    assert "did not start" in findings[-1][1]
    missing = [f"{tmp_path}/missing", "/usr", "/etc"]
    _, findings = _check(run, *boxed(binds=missing))
    assert findings[1] == (
        "note",
        f"container.binds: not on {os.uname().nodename}: {tmp_path}/missing; ranks start only where all exist",
    )


def test_the_preflight_names_what_is_missing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    boxed = ("-S", f"site.container={{engine: apptainer, image: {tmp_path}/absent.sif}}")
    code, findings = _check(run, *boxed)
    assert (code, [verdict for verdict, _ in findings]) == (6, ["fault"])
    assert "apptainer is not on PATH" in findings[0][1]
    code, findings = _check(run, *boxed, "-S", "site.setup=[module load apptainer]")
    assert [verdict for verdict, _ in findings] == ["note", "fault"]
    assert "lines of `setup` must put it on PATH" in findings[0][1]
    assert "absent.sif" in findings[1][1]


def test_a_local_job_without_its_engine_is_not_submitted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InfrastructureError, match="podman-hpc is not on PATH on"):
        container.require_engine(_plan("podman-hpc").site)
    container.require_engine(replace(_plan("podman-hpc").site, setup=("module load podman-hpc",)))
