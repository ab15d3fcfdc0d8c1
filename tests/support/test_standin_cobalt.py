"""The stand-in for Cobalt refuses what Cobalt refuses and ends jobs as it does."""

import json
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome
from tests.support.standins import cobalt

SMALL = {"nodes": [1, 8], "steps": [[1, 60]], "pool": "3834-3849"}
UNTIL_GO = "while [ ! -e go ]; do sleep 0.02; done"
OPTIONS = ("-n", 1, "-t", 5, "-q", "small")


class Theta:
    """The programs on PATH, in a folder of their own; a minute of wall time takes half a second."""

    def __init__(self, folder: Path, **policy: Any) -> None:
        self.folder, self.state = folder / "work", folder / "state"
        self.folder.mkdir()
        queues = cobalt.QUEUES | {"small": SMALL, "old": SMALL | {"state": "draining"}}
        kept = {"minute": 0.5, "grace": 0.3, "queues": queues, "home": folder}
        cobalt.install(folder / "bin", self.state, **kept | policy)
        self.path = f"{folder / 'bin'}:/usr/bin:/bin"

    def __call__(self, *command: object, **environment: str) -> Outcome:
        done = subprocess.run(
            [*map(str, command)], cwd=self.folder, env={"PATH": self.path, "SECRET": "of the submitter"} | environment,
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=240, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return Outcome(done.returncode, done.stdout, done.stderr)

    def script(self, text: str, *directives: str, name: str = "job.sh") -> Path:
        path = self.folder / name
        path.write_text("\n".join(["#!/bin/bash", *directives, text, ""]))
        path.chmod(0o755)
        return path

    def submit(self, text: str, *options: object) -> str:
        """Submit a job with a script of its own, which Cobalt reads at the start, and return the job's number."""
        name = f"job-{len(list(self.folder.iterdir()))}.sh"
        self.script(text, name=name)
        done = self("qsub", *OPTIONS, *options, name)
        assert done.code == 0, done.err
        return done.out.split()[-1]

    def wait(self, *jobs: str) -> None:
        assert self("cqwait", *jobs).code == 0

    def states(self) -> dict[str, str]:
        lines = self("qstat", "--header", "JobId:State").out.splitlines()[2:]
        return dict(line.split() for line in lines)

    def until(self, condition: Callable[[], bool]) -> None:
        patience = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < patience
            time.sleep(0.02)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def theta(tmp_path: Path) -> Theta:
    return Theta(tmp_path)


REFUSED = [
    ("-t 5 job.sh", "'nodecount' not provided"),
    ("-n 1 job.sh", "'time' not provided"),
    ("job.sh", "No required options provided"),
    ("-n 1 -t 5", "No executable or script specified"),
    ("-n 5000 -t 5 job.sh", "node count out of realistic range"),
    ("-n 1 -t 5 gone.sh", "gone.sh not found, or is not a file"),
    ("-n 1 -t 5 plain.sh", "plain.sh is not executable"),
    ("-n 1 -t abc job.sh", "invalid time specification: illegal value 'abc' for minutes"),
    ("-n 1 -t 1:00:60 job.sh", "invalid time specification: seconds value '60' outside range [0, 59]"),
    ("-n 1 -t 1:2:3:4:5 job.sh", "time may be specified as minutes, HH:MM, HH:MM:SS, or DD:HH:MM:SS"),
    ("-n 1 -t 30:00 -q small job.sh", "Walltime greater than the 'small' queue max walltime of 01:00:00"),
    ("-n 1 -t 5 -q nope job.sh", "trying to add job to non-existent queue 'nope'"),
    ("-n 1 -t 5 -q old job.sh", "The 'old' queue is draining"),
    ("-n 2 -t 60 job.sh", "limits of queue default"),
    ("-n 256 -t 7:00:00 job.sh", "Walltime greater than the 'default' queue max walltime of 06:00:00"),
    ("-n 128 -t 20 job.sh", "Walltime less than the 'default' queue min walltime of 00:30:00"),
    ("-n 1 -t 5 --attrs mcdram=fast job.sh", "mcdram fast not valid must be one of: flat, cache, split"),
    ("-n 1 -t 5 --attrs a=b=c job.sh", "Improperly formatted argument to attrs : a=b=c"),
    ("-n 1 -t 5 --attrs a=b --attrs c=d job.sh", "Multiple --attrs options not supported."),
    ("-n 1 -t 5 --env A job.sh", "Improperly formatted argument to env : ['A']"),
    ("-n 1 -t 5 --mode co job.sh", "Mode co is not supported on Cray systems."),
    ("-n 1 -t 5 -o nodir/x job.sh", "does not exist"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_qsub_refuses_what_cobalt_refuses(theta: Theta, arguments: str, message: str) -> None:
    theta.script("true")
    (theta.folder / "plain.sh").write_text("#!/bin/bash\n")
    done = theta("qsub", *arguments.split())
    assert done.code == 1
    assert message in done.err
    assert not (theta.state / "jobs.json").exists()


@pytest.mark.parametrize(
    ("directives", "message"),
    [
        (["", "#COBALT -n 1 -t 5 -q small"], "No required options provided"),
        (["##COBALT -n 1 -t 5 -q small"], "No required options provided"),
        ([" #COBALT -n 1 -t 5 -q small"], "No required options provided"),
        (["#COBALT -n 1 -q small", "#COBALT", "#COBALT -t 5"], "'time' not provided"),
        (["#COBALT -n 1 # one node", "#COBALT -t 5"], "'time' not provided"),
        (["#COBALT --mode vn -n 1 -t 5"], "Mode vn is not supported on Cray systems."),
    ],
)
def test_directives_that_cobalt_does_not_read(theta: Theta, directives: list[str], message: str) -> None:
    theta.script("true", *directives)
    done = theta("qsub", "job.sh")
    assert (done.code, message in done.err) == (1, True), done.err
    assert theta("qsub", "--bogus", "job.sh").code == 2


def test_directives_are_words_and_the_command_line_wins(theta: Theta) -> None:
    theta.script(
        "env; printf '<%s>' \"$@\"", "#COBALT -n 1 -t 5 -q nope --env A='x", "#COBALT --env B=2:P=/a:/b=1 --jobname say"
    )
    done = theta("qsub", "-q", "small", "--env", r"C=3\:4", "job.sh", "-q", "a b")
    assert done.code == 0, done.err
    number = done.out.split()[-1]
    theta.wait(number)
    assert "<-q><a b>" in theta.text(f"{number}.output")
    assert {"A='x", "B=2", "P=/a:/b=1", "C=3:4"} <= set(theta.text(f"{number}.output").splitlines())
    assert "qsub --mode script -n 1 -t 5 -q nope --env A='x:B=2:P=/a:/b=1:C=3\\:4" in theta.text(f"{number}.cobaltlog")


def test_a_job_has_a_clean_environment_and_appends(theta: Theta) -> None:
    (theta.folder / "out.output").write_text("before\n")
    number = theta.submit("env; pwd; echo bad >&2; exit 3", "-O", "out", "-A", "proj", "-n", 2)
    assert theta("qsub", "--version").out.startswith("version")
    theta.wait(number)
    lines = theta.text("out.output").splitlines()
    assert lines[0] == "before"
    assert str(theta.folder) in lines
    assert theta.text("out.error") == "bad\n"
    environment = dict(line.split("=", 1) for line in lines if "=" in line)
    assert "SECRET" not in environment
    expected = {"JOBID": number, "JOBSIZE": "2", "PARTNAME": "3834-3835", "PROJECT": "proj", "QUEUE": "small"}
    assert {f"COBALT_{name}": value for name, value in expected.items()}.items() <= environment.items()
    assert int(environment["COBALT_ENDTIME"]) - int(environment["COBALT_STARTTIME"]) in {2, 3}
    assert environment["PATH"].startswith("/usr/bin:/bin:")
    log = theta.text("out.cobaltlog")
    assert log.startswith(f"Jobid: {number}\nqsub ")
    assert "Info: task completed normally with an exit code of 3; initiating job cleanup and removal\n" in log


def test_the_script_is_not_copied(theta: Theta) -> None:
    theta.script("echo as submitted")
    first = theta.submit(UNTIL_GO)
    done = theta("qsub", *OPTIONS, "--dependencies", first, "job.sh")
    theta.script("echo as rewritten")
    (theta.folder / "go").touch()
    second = done.out.split()[-1]
    theta.wait(first, second)
    assert theta.text(f"{second}.output") == "as rewritten\n"


def test_qsub_answers_with_the_number_last(theta: Theta) -> None:
    theta.script("true")
    done = theta("qsub", "-n", 1, "-t", 5, "-q", "debug-flat-quad", "--attrs", "whatever=1:no_more", "job.sh")
    *notes, number = done.out.splitlines()
    assert notes == [
        'Job routed to queue "debug-flat-quad".',
        "Memory mode set to flat quad for queue debug-flat-quad",
    ]
    assert number.isdigit()


def test_qstat_forgets_what_has_ended(theta: Theta) -> None:
    number = theta.submit("sleep 30", "--jobname", "long")
    theta.until(lambda: theta.states() == {number: "running"})
    assert theta("qstat", "-u", "nobody").out.count("\n") == 2
    assert theta("qdel", number).out.splitlines()[0] == "      Deleted Jobs"
    theta.wait(number)
    assert "Info: user delete requested with signal SIGTERM" in theta.text(f"{number}.cobaltlog")
    assert theta("qstat", number) == (1, "", "")
    assert theta("qstat").code == 0
    assert theta("qdel", number) == (0, "", "")
    assert theta("qdel", "x").err == "jobid must be an integer: x\n"
    assert theta("qstat", "x").err == "x is not a valid jobid or queue name\n"
    assert theta("qstat", "x").code == theta("qdel", "x").code == 1
    (*_, row) = theta("qstat", "-Q", "small").out.splitlines()
    assert (len(row.split()), row.split()[0], row.split()[-1]) == (11, "small", "running")
    assert theta("qstat", "-Q", "nope") == (1, "", "")


@pytest.mark.parametrize("trap", ["", "trap 'echo asked; exit 0' TERM; ", "trap '' TERM; "])
def test_the_time_limit_ends_the_whole_session(theta: Theta, trap: str) -> None:
    start = time.monotonic()
    number = theta.submit(f"sleep 77 & echo $!; {trap}while :; do sleep 0.1; done", "-t", "1")
    theta.wait(number)
    assert 0.5 <= time.monotonic() - start < 5
    log = theta.text(f"{number}.cobaltlog")
    assert "Info: maximum execution time exceeded; initiating job termination" in log
    assert "task completed" not in log
    child, *more = theta.text(f"{number}.output").split()
    assert not Path("/proc", child).exists()
    assert more == (["asked"] if "asked" in trap else [])


def test_dependencies_hold_and_fail(theta: Theta) -> None:
    good, bad = theta.submit(UNTIL_GO), theta.submit(f"{UNTIL_GO}; exit 1")
    after_good, after_bad = (theta.submit("echo ran", "--dependencies", parent) for parent in (good, bad))
    assert theta.states()[after_good] == "dep_hold"
    (theta.folder / "go").touch()
    theta.wait(good, bad, after_good)
    assert theta.text(f"{after_good}.output") == "ran\n"
    theta.until(lambda: theta.states() == {after_bad: "dep_fail"})
    theta.script("true")
    late = theta("qsub", *OPTIONS, "--dependencies", good, "job.sh")
    assert late.code == 0
    assert late.err == f"WARNING: dependencies {good} do not match jobs currently in the queue\n"
    theta.until(lambda: theta.states().get(late.out.split()[-1]) == "dep_fail")
    assert late.out.split()[-1] in theta("qdel", late.out.split()[-1], after_bad).out
    assert theta.states() == {}


def test_debug_queues_run_one_job_a_user_and_default_takes_twenty(theta: Theta) -> None:
    first, second = (theta.submit(UNTIL_GO, "-q", "debug-cache-quad") for _ in range(2))
    theta.until(lambda: theta.states() == {first: "running", second: "maxrun_hold"})
    (theta.folder / "go").touch()
    theta.script("sleep 30")
    for _ in range(20):
        assert theta("qsub", "-n", 128, "-t", 30, "-h", "job.sh").code == 0
    done = theta("qsub", "-n", 128, "-t", 30, "job.sh")
    assert done.code == 1
    assert "The limit of 20 jobs per user in the 'default' queue has been reached" in done.err
    assert set(theta.states().values()) >= {"user_hold"}
    theta.wait(first, second)


def test_fifty_at_once(theta: Theta) -> None:
    theta.script("echo $COBALT_JOBID > $COBALT_JOBID.ran")
    with ThreadPoolExecutor(50) as pool:
        done = list(pool.map(lambda _: theta("qsub", *OPTIONS, "job.sh"), range(50)))
    numbers = [outcome.out.split()[-1] for outcome in done]
    assert len(set(numbers)) == 50
    theta.wait(*numbers)
    assert all((theta.folder / f"{number}.ran").exists() for number in numbers)


RESERVED = {"COBALT_PARTNAME": "3834-3835", "COBALT_JOBSIZE": "2"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-n 3 -N 1 true", "apsched: claim exceeds reservation's node-count"),
        ("-n 2 -N 2 -d 33 true", "exceeds the 64 CPUs of a node"),
        ("-n 2 -N 1 -j 3 true", "-j 3: must be one of 1, 2, 4"),
        ("-n 2 -ppn 1 true", "unrecognized option '-ppn'"),
        ("-n two true", "-n two: not a positive number"),
        ("-n 2 -e A true", "-e A: not of the form VARIABLE=value"),
        ("-n 2 -cc core true", "-cc core: invalid cpu list or keyword"),
        ("-n 2", "no executable was named"),
        ("-n 2 nosuchprogram", "file nosuchprogram not found"),
    ],
)
def test_aprun_refuses(theta: Theta, arguments: str, message: str) -> None:
    done = theta("aprun", *arguments.split(), **RESERVED)
    assert done.code == 1
    assert message in done.err
    assert "Application" not in done.out
    assert "no reservation" in theta("aprun", "true").err
    assert json.loads((theta.state / "aprun.jsonl").read_text().splitlines()[0]) == ["aprun", *arguments.split()]
