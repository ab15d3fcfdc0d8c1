"""Options that make several jobs of one, or change what the job script relies on, are refused before submission."""

from pathlib import Path

import pytest

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.batch.schedulers import refused_options
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.config import shipped, site, workload
from tests.conftest import Run
from tests.support import planning

REFUSED = [
    ("slurm", "--array=0-2", "several jobs"),
    ("slurm", "--array 0-2", "several jobs"),
    ("slurm", "-a 0-2", "several jobs"),
    ("slurm", "-a0-2", "several jobs"),
    ("slurm", "-Ha0-2", "several jobs"),
    ("slurm", "--arr=0-2", "several jobs"),
    ("slurm", "--exclusive --array=0-2", "several jobs"),
    ("slurm", "hetjob", "several allocations"),
    ("slurm", "--wrap=hostname", "job script"),
    ("slurm", "--output=x", "job.out"),
    ("slurm", "-o x", "job.out"),
    ("slurm", "--error=x", "job.err"),
    ("slurm", "--open-mode=truncate", "job.out"),
    ("slurm", "--chdir=/tmp", "directory"),
    ("slurm", "-D /tmp", "directory"),
    ("slurm", "--job-name=x", "name"),
    ("slurm", "-J x", "name"),
    ("slurm", "--nodes=3", "--nodes and --ppn"),
    ("slurm", "--ntasks-per-node=3", "--nodes and --ppn"),
    ("slurm", "--time=5", "--time"),
    ("slurm", "--signal=TERM@10", "site.warning_time"),
    ("slurm", "--wait", "--wait of dlio-submit"),
    ("slurm", "--no-kill", "node that failed"),
    ("slurm", "--test-only", "no job"),
    ("pbs", "-J 0-2", "several jobs"),
    ("pbs", "-J0-2", "several jobs"),
    ("pbs", "-VJ 0-2", "several jobs"),
    ("pbs", "-o /x", "job.out"),
    ("pbs", "-e /x", "job.err"),
    ("pbs", "-j oe", "job.out"),
    ("pbs", "-k oe", "-k doe"),
    ("pbs", "-k o", "-k doe"),
    ("pbs", "-R oe", "job.out"),
    ("pbs", "-N x", "name"),
    ("pbs", "-l select=4:ncpus=1", "--nodes and --ppn"),
    ("pbs", "-l mem=4gb,walltime=00:10:00", "--time"),
    ("pbs", "-W block=true", "--wait of dlio-submit"),
    ("pbs", "-W umask=22,sandbox=PRIVATE", "directory"),
    ("pbs", "-I", "batch job"),
    ("pbs", "-W array_indices_submitted=0-2", "several jobs"),
    ("pbs", "-W Output_Path=/tmp/x", "job.out"),
    ("pbs", "-W umask=22,Keep_Files=oe", "job.out"),
    ("pbs", "-W Job_Name=x", "name"),
    ("pbs", "-W Shell_Path_List=/bin/csh", "bash"),
    ("pbs", "-m n # -J 0-2", "several jobs"),
    ("slurm", "--ntasks-per-socket=1", "--nodes and --ppn"),
    ("slurm", "-B 1:1:1", "--nodes and --ppn"),
    ("flux", "--setattr=system.cwd=/tmp", "directory"),
    ("flux", "--setattr=system.duration=4", "--time"),
    ("flux", "-Sjob.name=x", "name"),
    ("flux", "-o output.stdout.path=x", "job.out"),
    ("pbs", "-z", "batch id"),
    ("pbs", "-S /bin/csh", "bash"),
    ("flux", "--cwd=/tmp", "directory"),
    ("flux", "--output x", "job.out"),
    ("flux", "--wrap", "job script"),
    ("flux", "-N3", "--nodes and --ppn"),
    ("flux", "-t 5m", "--time"),
    ("flux", "--signal=USR1@60", "brokers"),
    ("cobalt", "-O prefix", "job.out"),
    ("cobalt", "--cwd=/tmp", "directory"),
    ("cobalt", "-n 4", "--nodes and --ppn"),
    ("cobalt", "--mode c1", "script"),
]  # fmt: skip
ACCEPTED = {
    "slurm": ["--exclusive", "--qos=high", "-C nvme", "--begin=now+1hour", "--requeue", "--comment=array", "-c 8", "-H",
              "-M c5", "--account=o", "--wait-all-nodes=1", "--time-min=5", "--nodelist=n1", "--dependency=singleton"],
    "pbs": ["-l place=scatter", "-l filesystems=home:eagle", "-k doe", "-k oed", "-k n", "-r y", "-V", "-h", "-P proj",
            "-W group_list=x", "-W depend=afterok:7", "-l ngpus=1", "-m n", "-A o"],
    "flux": ["--queue=debug", "--urgency=0", "--setattr=x=1", "-o verbose=2", "--requires=hosts:n1"],
    "cobalt": ["--attrs mcdram=cache:numa=quad", "-q debug", "--env A=1", "-A proj"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "line", "why"), REFUSED)
def test_an_option_is_refused_with_the_reason(name: str, line: str, why: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        refused_options.check(name, ["", line])
    assert why in str(refusal.value)
    assert f"job option {line!r}" in str(refusal.value)


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in ACCEPTED.items() for line in lines])
def test_other_options_are_accepted(name: str, line: str) -> None:
    refused_options.check(name, [line])


def test_options_of_every_batch_system_and_shipped_site_are_checked(tmp_path: Path) -> None:
    assert set(refused_options.OPTIONS) == set(SCHEDULERS)
    for name in shipped.names(shipped.SITES):
        profile = site.load(name)
        if profile.scheduler != "local":
            lines = [*profile.job_options, *(line for queue in profile.queues.values() for line in queue.options)]
            refused_options.check(profile.scheduler, lines)


@pytest.mark.parametrize(("name", "option"), [("slurm", "--array=0-2"), ("pbs", "-J 0-2"), ("cobalt", "--cwd=/tmp")])
def test_a_plan_with_such_an_option_is_not_rendered(tmp_path: Path, name: str, option: str) -> None:
    profile = site.load({"cobalt": "theta"}.get(name, name))
    request = planning.Request(runs=tmp_path, data=tmp_path, nodes=128, job_options=(option,))
    with pytest.raises(ConfigError, match="cannot be used"):
        SCHEDULERS[name].request(planning.make(workload.load("null"), profile, request))
    in_profile = site.load({"cobalt": "theta"}.get(name, name), (f"job_options=['{option}']",))
    with pytest.raises(ConfigError, match="cannot be used"):
        SCHEDULERS[name].request(planning.make(workload.load("null"), in_profile, request))


def test_the_user_is_told_before_anything_is_written(run: Run, tmp_path: Path) -> None:
    done = run("dlio-submit", "null", "-s", "slurm", "-d", "data", "--dry-run", "-J", "--array=0-2")
    assert done.code == 2
    assert "job option '--array=0-2': --array cannot be used, because it makes several jobs" in done.err
    assert not (tmp_path / "dlio-runs").exists()
