"""What a job script answers when a signal ends it: the time limit (124) or a cancellation (143). The batch system is a
command that the script asks; here it is a small script.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from dlio_hpc.base.units import Walltime
from dlio_hpc.batch import jobscript
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.config import site, workload
from tests.support import planning
from tests.support.standins.login import until

# The program that the script asks, and its answer about a job with 500 s left. All clocks of the test go together.
ASKED = {
    "pbs": ("qstat", 'echo "    stime = $(date -d "-100 seconds" "+%a %b %d %H:%M:%S %Y")"\n'
                     'echo "    Resource_List.walltime = 00:10:00"'),
    "flux": ("flux", "echo 500"),
    "slurm": ("squeue", "echo None"),
}  # fmt: skip
WALLTIME = 60
pytestmark = pytest.mark.job


class Script:
    """A job script whose setup waits for a signal, once more than its first limit has passed by its own clock."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        setup = f"export PATH={self.bin}:$PATH; SECONDS={2 * WALLTIME}; touch waits; sleep 60 & wait $!"
        profile = site.load(name, (f"setup=['{setup}']",))
        request = planning.Request(runs=folder, data=folder, nodes=1, walltime=Walltime(WALLTIME))
        plan = planning.make(workload.load("null"), profile, request)
        self.directory = Path(plan.directory)
        self.directory.mkdir(parents=True)
        (self.directory / "job.sh").write_text(jobscript.render(plan))
        self.variable = SCHEDULERS[name].job_variable

    def answers(self, program: str, lines: str) -> None:
        (self.bin / program).write_text(f"#!/bin/bash\ncd {self.folder}\necho $(ps -o sid= $$) >> asked\n{lines}\n")
        (self.bin / program).chmod(0o755)

    def ended(self) -> str:
        """Run the script until it waits, send TERM to its session, and return its exit_status."""
        environment = os.environ | {"PATH": f"{self.bin}:{os.environ['PATH']}", self.variable: "7"}
        with subprocess.Popen(
            ["bash", "job.sh"], cwd=self.directory, env=environment, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as script:  # fmt: skip
            until(lambda: (self.directory / "waits").exists() and (self.folder / "asked").exists())
            until(lambda: "squeue" in os.listdir(self.bin) or (self.directory / ".limit").exists())
            (self.folder / "cancelled").touch()
            os.killpg(script.pid, signal.SIGTERM)
            script.wait(timeout=30)
            sessions = (self.folder / "asked").read_text().split()[1:]
            assert str(script.pid) not in sessions, "a query in the script's session would get the signal, too"
        return (self.directory / "exit_status").read_text().strip()


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    made = Script(tmp_path, request.param)
    if request.param == "slurm":
        (tmp_path / "asked").touch()  # its script has no timer
    return made


EACH = pytest.mark.parametrize(("name", "script"), [(name, name) for name in ASKED], indirect=["script"])


@EACH
def test_a_raised_limit_that_the_batch_system_confirms(script: Script, name: str) -> None:
    script.answers(*ASKED[name])
    assert script.ended() == "143"
    assert (script.directory / "terminated").exists()


@EACH
def test_a_query_that_fails_once_is_repeated(script: Script, name: str) -> None:
    program, answer = ASKED[name]
    script.answers(program, f"if [ -e cancelled ] && mkdir failed 2> /dev/null; then exit 1; fi\n{answer}")
    assert script.ended() == "143"


@pytest.mark.parametrize(("name", "script"), [("pbs", "pbs"), ("flux", "flux")], indirect=["script"])
def test_the_limit_that_the_timer_learned_counts_if_there_is_no_answer(script: Script, name: str) -> None:
    program, answer = ASKED[name]
    script.answers(program, f"[ ! -e cancelled ] || exit 1\n{answer}")
    assert script.ended() == "143"
    assert not (script.directory / ".limit").exists()


@EACH
def test_a_limit_that_is_over_is_the_time_limit(script: Script, name: str) -> None:
    program, answer = ASKED[name]
    over = {"flux": "echo 0", "slurm": "echo TimeLimit", "pbs": answer.replace("-100", "-600")}[name]
    script.answers(program, f"if [ -e cancelled ]; then {over}; else {answer}; fi")
    assert script.ended() == "124"
    assert not (script.directory / "terminated").exists()
