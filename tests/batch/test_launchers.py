"""One specification is rendered for each launcher."""

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.batch import launchers
from dlio_hpc.batch.shell_quoting import join
from dlio_hpc.config import site, workload
from dlio_hpc.plan import site_limits
from dlio_hpc.plan.plan import Plan
from tests.support import planning

_PRELOAD = 'LD_PRELOAD=/opt/libother.so:/opt/libhdf5.so"${LD_PRELOAD:+:$LD_PRELOAD}"'


def _plan(kind: str, scheduler: str = "slurm", bind: str | None = None, **changes: Any) -> Plan:
    """Plan 2 nodes x 4 ranks, with 16 hardware threads each, two of them a core."""
    profile = replace(
        site.load("slurm"),
        scheduler=scheduler,
        launcher=site.Launcher(kind, "launch", ("--verbatim",), bind, "pmix" if kind == "srun" else None),  # type: ignore[arg-type]
        cpus=64,
        hyperthreads=2,
        rank_environment={"OMP_NUM_THREADS": "16"},
        preload=("/opt/libother.so", "/opt/libhdf5.so"),
        **changes,
    )
    return planning.make(workload.load("demo"), profile, planning.Request(runs=Path("/r"), data=Path("/d"), nodes=2))


@pytest.mark.parametrize(
    ("kind", "scheduler", "bind", "line"),
    [
        ("mpiexec", "slurm", None, f"-n 8 --verbatim env OMP_NUM_THREADS=16 {_PRELOAD}"),
        ("hydra", "slurm", "core", f"-n 8 -ppn 4 -bind-to core:8 --verbatim env OMP_NUM_THREADS=16 {_PRELOAD}"),
        ("hydra", "pbs", None, f'-f "$PBS_NODEFILE" -n 8 -ppn 4 --verbatim env OMP_NUM_THREADS=16 {_PRELOAD}'),
        (
            "openmpi", "slurm", "core",
            f"-n 8 --map-by ppr:4:node:pe=8 --bind-to core --verbatim env OMP_NUM_THREADS=16 {_PRELOAD}",
        ),
        (
            "srun", "slurm", "cores",
            "--nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=16 --threads-per-core=2 --cpu-bind=cores "
            f"--mpi=pmix --kill-on-bad-exit=1 --verbatim env OMP_NUM_THREADS=16 {_PRELOAD}",
        ),
        (
            "pals", "pbs", "depth",
            f"-n 8 --ppn 4 --depth 16 --cpu-bind depth --verbatim --env OMP_NUM_THREADS=16 --env {_PRELOAD}",
        ),
        (
            "pals", "pbs", "list:0-1:2-3:4-5:6-7",
            f"-n 8 --ppn 4 --cpu-bind list:0-1:2-3:4-5:6-7 --verbatim --env OMP_NUM_THREADS=16 --env {_PRELOAD}",
        ),
        (
            "flux", "flux", "per-task",
            "run --nodes=2 --ntasks=8 --cores-per-task=8 --setopt=cpu-affinity=per-task --setopt=exit-on-error "
            f"--setopt=exit-timeout=none --verbatim env OMP_NUM_THREADS=16 {_PRELOAD}",
        ),
        ("aprun", "cobalt", "depth", f"-n 8 -N 4 -d 16 -j 2 -cc depth --verbatim -e OMP_NUM_THREADS=16 -e {_PRELOAD}"),
    ],
)  # fmt: skip
def test_one_spec_is_rendered_for_each_launcher(kind: str, scheduler: str, bind: str | None, line: str) -> None:
    assert join(launchers.command(_plan(kind, scheduler, bind))) == f"launch {line}"


def test_what_is_not_given_is_not_said() -> None:
    bare = replace(site.load("slurm"), launcher=site.Launcher("srun", "srun"))
    made = planning.make(workload.load("demo"), bare, planning.Request(runs=Path("/r"), data=Path("/d")))
    assert launchers.command(made) == [
        "srun", "--nodes=1", "--ntasks=4", "--ntasks-per-node=4", "--kill-on-bad-exit=1",
    ]  # fmt: skip


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40))
def test_a_variable_of_the_ranks_is_one_word_whatever_is_in_it(value: str) -> None:
    arguments = shlex.split(join(launchers._assignments(launchers.variables({"NAME": value}, ()))))
    assert arguments == [f"NAME={value}"]


def test_theta_is_what_the_paper_ran() -> None:
    request = planning.Request(runs=Path("/r"), data=Path("/d"), nodes=512, walltime=units.walltime("3h"))
    made = planning.make(workload.load("demo"), site.load("theta"), request)
    assert join(launchers.command(made)) == "aprun -n 2048 -N 4 -d 32 -j 2 -cc depth -e OMP_NUM_THREADS=32"
    assert made.site.darshan is not None
    assert all(run.darshan for run in made.runs)
    assert made.site.layout is not None
    assert (made.site.layout.stripe_count, made.site.layout.stripe_size) == (48, 1 << 20)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("theta", {"nodes": 64}, "--nodes 64: queue default of site theta requires at least 128"),
        ("theta", {"nodes": 5000}, "--nodes 5000: queue default of site theta allows at most 4100 per job"),
        ("theta", {"nodes": 200, "walltime": "4h"}, "allows at most 3:00:00 for 200 nodes"),
        ("theta", {"nodes": 128, "walltime": "10m"}, "requires at least 0:30:00"),
        ("theta", {"nodes": 9, "queue": "debug-cache-quad"}, "allows at most 8 per job"),
        ("theta", {"nodes": 128, "ranks_per_node": 256}, "with 1 CPU per rank, the ranks of a node need 256"),
        ("polaris", {"nodes": 3, "account": "p"}, "queue debug of site polaris allows at most 2 per job"),
        ("polaris", {"nodes": 30, "account": "p", "queue": "prod", "walltime": "7h"}, "allows at most 6:00:00 for 30"),
        ("polaris", {"nodes": 1}, "site polaris requires an account: --account NAME"),
        ("aurora", {"nodes": 1, "account": "p", "ranks_per_node": 8}, "is for 4 ranks per node"),
        ("aurora", {"nodes": 100, "account": "p", "queue": "prod"}, "requires at least 256"),
        ("frontier", {"nodes": 10, "account": "p", "walltime": "3h"}, "allows at most 2:00:00 for 10 nodes"),
        ("lumi", {"nodes": 600, "account": "p"}, "queue standard of site lumi allows at most 512 per job"),
        ("perlmutter", {"nodes": 9, "account": "p"}, "queue debug of site perlmutter allows at most 8 per job"),
    ],
)
def test_the_limits_of_shipped_sites(name: str, options: dict[str, Any], message: str) -> None:
    if "walltime" in options:
        options = options | {"walltime": units.walltime(options["walltime"])}
    with pytest.raises(ConfigError) as caught:
        site_limits.check(
            [
                planning.make(
                    workload.load("demo"), site.load(name), planning.Request(Path("/r"), data=Path("/d"), **options)
                )
            ]
        )
    assert message in str(caught.value)


def test_a_queue_that_the_profile_does_not_list_is_passed_on_with_a_note() -> None:
    request = planning.Request(runs=Path("/r"), data=Path("/d"), account="p", queue="R123456")
    made = planning.make(workload.load("demo"), site.load("polaris"), request)
    note = "the profile of site polaris does not list queue R123456; the limits of this queue are not checked"
    queues = "; known queues: debug, debug-scaling, prod, preemptable, capacity, demand"
    assert note + queues in list(site_limits.notes(made))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("preload=['a b']", "the path of a library must not contain blanks, colons or commas"),
        ("darshan=/a,b.so", "the path of a library must not contain blanks, colons or commas"),
        ("preload=[/x/libdarshan.so]", "preload must not contain libdarshan.so"),
        ("environment={DARSHAN_ENABLE_NONMPI: '1'}", "a log for each process instead of one log for the run"),
        ("rank_environment={DARSHAN_ENABLE_NONMPI: '1'}", "a log for each process instead of one log for the run"),
        ("environment={LD_PRELOAD: x}", "LD_PRELOAD: use preload instead"),
        ("rank_environment={LD_PRELOAD: x}", "LD_PRELOAD: use preload instead"),
        ("job_options=['exclusive']", "must begin with - and be a single line"),
        ('job_options=["--a\\nrm"]', "must begin with - and be a single line"),
        ("pbs_select={ncpus: 4}", "pbs_select is for PBS's select"),
        ("launcher={kind: pals, command: mpiexec, mpi: pmi2}", "mpi is an option of srun, not of pals"),
        ("launcher={kind: mpiexec, command: mpiexec, bind: core}", "bind cannot be used with kind=mpiexec"),
        ("queues={a: {walltime: {0: 1h}}}", "by minimum number of nodes"),
        ("queues={a: {node: 1}}", "did you mean 'nodes'?"),
        ("layout={stripe_count: 0}", "stripe_count must be 1 to 2000"),
        ("depth=none", "depth"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        site.load("slurm", (override,))
    assert message in str(caught.value)


def test_the_site_is_known_by_its_hosts_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for host, name in (("thetalogin4", "theta"), ("polaris-login-02", "polaris"), ("laptop", "local")):
        monkeypatch.setattr(os, "uname", lambda host=host: os.uname_result(("", host, "", "", "")))
        assert site.here() == name
