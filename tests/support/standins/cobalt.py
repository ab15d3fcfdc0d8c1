"""A stand-in for Cobalt on Theta: qsub, qstat, qdel, cqwait and aprun over a state directory, without a daemon.

Its rules are read from Cobalt's sources (github.com/ido/cobalt 45b99619, 1.0.33: src/clients/POSIX;
src/lib/{client_utils,Util}.py; src/lib/Components/{cqm,pg_forker,alps_script_forker,system/CraySystem}.py), Theta's
queues from ALCF's user guides. A script that passes here keeps to the documentation; Theta itself may differ.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any

from tests.support.standins import batch
from tests.support.standins.batch import Book, Content, Job, Jobs, Refused, user

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SIZE, _CPUS = 4392, 64
# ALCF user guides, Theta: queues. `steps` are the longest times in minutes from so many nodes on; `pool` are node ids
# of ours. Which limits the queue manager holds and which the site's submit filter is not known: texts are Cobalt's.
_DEBUG = {"nodes": [1, 8], "steps": [[1, 60]], "maxrunning": 1}
QUEUES: dict[str, dict[str, Any]] = {
    "default": {
        "nodes": [128, 4100], "mintime": 30, "steps": [[128, 180], [256, 360], [384, 540], [640, 720], [802, 1440]],
        "maxqueued": 20, "maxrunning": 10, "pool": "0-3833,3866-4391",
    },
    "debug-cache-quad": _DEBUG | {"pool": "3834-3849", "memory": ["cache", "quad"]},
    "debug-flat-quad": _DEBUG | {"pool": "3850-3865", "memory": ["flat", "quad"]},
}  # fmt: skip

# minute: real seconds that a minute of wall time takes. grace: seconds from TERM to KILL (five minutes in cqm.py).
# wait: seconds that a job stays queued at least. cleanup: seconds from a job's end to the last line of its log, when it
# leaves the queue. strict: attributes nobody documents are refused, for typing errors. first: number of the first job.
# home: what jobs have as HOME; None is the user's.
POLICY: dict[str, Any] = {
    "minute": 60.0, "grace": 5.0, "wait": 0.0, "cleanup": 0.0, "strict": False, "first": 527001, "home": None,
    "queues": QUEUES,
}  # fmt: skip

_MEMORY = {
    "mcdram": ["flat", "cache", "split", "equal", "0", "25", "50", "100"],
    "numa": ["a2a", "hemi", "quad", "snc2", "snc4"],
}
_ATTRS = {*_MEMORY, "location", "ssds", "ssd_size", "enable_ssh", "filesystems"}


def install(folder: Path, state: Path, **policy: Any) -> None:
    """Write the programs into `folder`; on PATH they are the batch system. POLICY lists the settings."""
    batch.install_programs(folder, state, __name__, PROGRAMS, batch.known(POLICY, policy))


def main(program: str, state: str) -> int:
    """Run one command. A file `down` in the state directory makes the queue manager unreachable, `slow` has seconds."""
    try:
        if program != "aprun":
            batch.slowly(state)
            if os.path.exists(os.path.join(state, "down")):
                raise Refused("component error: Failed to connect to queue-manager: cn:queue-manager\n")
        return PROGRAMS[program](Book(state), sys.argv[1:])
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return refusal.code


# What takes a value ends with `=`. The last two lines have no effect here; what is not in the table is refused.
_OPTIONS = {
    "-n --nodecount": "nodes=", "-t --time": "walltime=", "-q --queue": "queue=", "-A --project": "project=",
    "--cwd": "cwd=", "--jobname": "jobname=", "-O --outputprefix": "outputprefix=", "-o --output": "outputpath=",
    "-e --error": "errorpath=", "--debuglog": "cobalt_log_file=", "--dependencies": "all_dependencies=",
    "--env": "envs=", "--attrs": "attrs=", "--mode": "mode=", "-h --held": "user_hold",
    "-M --notify": "notify=", "-u --umask": "umask=", "--proccount": "procs=", "--run_users --user_list": "user_list=",
    "--run_project": "run_project", "--preemptable": "preemptable", "-v --verbose": "verbose", "-d --debug": "debug",
}  # fmt: skip


def _options(program: str, arguments: list[str], table: dict[str, str]) -> tuple[Job, list[str]]:
    """Parse options like optparse without interspersed arguments: the first argument that is no option ends them."""
    import getopt

    names = {flag: name for flags, name in table.items() for flag in flags.split()}
    short = "".join(flag[1:] + ":" * name.endswith("=") for flag, name in names.items() if len(flag) == 2)
    long = [flag[2:] + "=" * name.endswith("=") for flag, name in names.items() if len(flag) > 2]
    try:
        options, rest = getopt.getopt(arguments, short, [*long, "version"])
    except getopt.GetoptError as fault:
        dashes = "--" if len(fault.opt) > 1 else "-"
        raise Refused(f"{program}: error: no such option: {dashes}{fault.opt}, or not with so much", 2) from None
    if ("--version", "") in options:
        print(f'version: "{program} " + $Revision: 559 $ + , Cobalt  + $Version$')
        sys.exit(0)
    given: Job = {}
    for flag, value in options:
        name = names[flag].rstrip("=")
        given[name] = _CHECKS[name](value, given.get(name)) if name in _CHECKS else value
    return given, rest


def qsub(book: Book, arguments: list[str]) -> int:
    """Submit a job. The script's directives come before the other arguments, and all are parsed again (qsub.py)."""
    given, rest = _options("qsub", arguments, _OPTIONS)
    if not rest:
        raise Refused("No executable or script specified\n")
    cwd = given.get("cwd") or os.getcwd()
    command = os.path.join(cwd, rest[0])
    if not os.path.isfile(command):
        raise Refused(f"command {command} not found, or is not a file")
    if not os.access(command, os.X_OK | os.R_OK):
        raise Refused(f"command {command} is not executable")
    with open(command, encoding="utf-8", errors="surrogateescape") as file:
        command_line = _join_env(_directives(file) + arguments)
    given, _ = _options("qsub", command_line, _OPTIONS)
    if missing := [what for name, what in (("walltime", "'time'"), ("nodes", "'nodecount'")) if name not in given]:
        raise Refused(f"{missing[0]} not provided" if given else "No required options provided\n")
    spec = {"queue": "default", "envs": {}, "command": command, "args": rest[1:]} | given
    _paths(spec, cwd)
    notes, job = _filter(book, spec), _enqueue(book, spec)
    print(*notes, job["jobid"], sep="\n")
    now = time.strftime("%a %b %d %H:%M:%S %Y +0000 (UTC)", time.gmtime())
    _log(job, f"Jobid: {job['jobid']}", f"qsub {' '.join(command_line)}", f"{now} submitted with cwd set to: {cwd}")
    if job["state"] != "user_hold":
        batch.detach(book, lambda: _supervise(book, str(job["jobid"])))
    return 0


def _directives(lines: Iterator[str]) -> list[str]:
    """Return the options of the lines right after `#!` that start with exactly `#COBALT `; the first other line ends
    them.
    """
    if not next(lines, "").startswith("#!"):
        return []
    taken = takewhile(lambda line: re.match("#COBALT .", line, re.DOTALL), lines)
    options = [word for line in taken for word in line.split()[1:]]
    return ["--mode", "script", *options] if options else []


def _join_env(arguments: list[str]) -> list[str]:
    """Join the values of all `--env X`, written as two arguments (qsub.py, env_union)."""
    first, *others = [index for index, word in enumerate(arguments[:-1]) if word == "--env"] or [0]
    for other in others:
        arguments[first + 1] += f":{arguments[other + 1]}"
    return [word for index, word in enumerate(arguments) if not {index, index - 1} & set(others)]


def _nodes(text: str, _before: Any) -> str:
    if not text.isdigit() or not 0 < int(text) <= _SIZE:
        raise Refused("node count out of realistic range")
    return text


def _minutes(text: str, _before: Any) -> str:
    """Parse a time. Two fields are hours and minutes, seconds are dropped (Util.py, get_time)."""
    wrong, parts, total = "invalid time specification:", text.split(":"), 0
    if len(parts) > 4:
        raise Refused(f"{wrong} time may be specified as minutes, HH:MM, HH:MM:SS, or DD:HH:MM:SS")
    units = [("days", 1440), ("hours", 60), ("minutes", 1), ("seconds", 0)][(0, 2, 1, 1, 0)[len(parts)] :]
    for (name, unit), part in zip(units, parts, strict=False):
        if not part.isdigit():
            raise Refused(f"{wrong} illegal value '{part}' for {name}")
        if name == "seconds" and int(part) > 59:
            raise Refused(f"{wrong} seconds value '{part}' outside range [0, 59]")
        total += unit * int(part)
    return str(total)


def _env(text: str, _before: Any) -> dict[str, str]:
    hidden = text.replace(r"\:", "\0").replace(r"\=", "\1")
    pairs = [item.partition("=") for item in re.split(r":(?=\w+\b=)", hidden)]
    if wrong := [key for key, equals, _ in pairs if not equals]:
        raise Refused(f"Improperly formatted argument to env : {wrong[:1]!r}")
    return {key: value.replace("\0", ":").replace("\1", "=") for key, _, value in pairs}


def _attrs(text: str, before: Any) -> dict[str, str]:
    """Parse name=value; a name alone is true, no_name is false."""
    if before is not None:
        example = "Specify multiple attributes as follows: --attrs FOO=1:BAR=2"
        raise Refused(f"Multiple --attrs options not supported.  {example}")
    attrs: dict[str, str] = {}
    for attr in text.split(":"):
        name, equals, value = attr.partition("=")
        if "=" in value:
            raise Refused(f"Improperly formatted argument to attrs : {attr}")
        truth = str(not name.startswith("no_")).lower()
        attrs |= {name: value} if equals else {name.removeprefix("no_"): truth}
    return attrs


def _mode(text: str, _before: Any) -> str:
    if text != "script":
        raise Refused(f"Mode {text} is not supported on Cray systems.")
    return text


_CHECKS: dict[str, Any] = {"nodes": _nodes, "walltime": _minutes, "envs": _env, "attrs": _attrs, "mode": _mode}
_ENDINGS = {"outputpath": "output", "errorpath": "error", "cobalt_log_file": "cobaltlog"}


def _paths(spec: Job, cwd: str) -> None:
    """Set the paths of the output; a job without a name gets that of its output (qsub.py, update_outputprefix,
    update_paths).
    """
    prefix = spec.pop("outputprefix", None)
    named = spec.get("outputpath") or prefix
    spec |= {"cwd": cwd, "jobname": spec.get("jobname") or (os.path.basename(named) if named else "N/A")}
    for name, ending in _ENDINGS.items():
        spec[name] = path = os.path.join(cwd, spec.get(name) or f"{prefix or '$jobid'}.{ending}")
        if not os.path.isdir(os.path.dirname(path)):
            raise Refused(f"directory {path} does not exist")


def _filter(book: Book, spec: Job) -> list[str]:
    """Check the memory modes, whose defaults are cache and quad (CraySystem.py, validate_job). Then apply the site's
    submit filter: its two notes are ALCF's, what it says of node counts is this stand-in's.
    """
    attrs = spec["attrs"] = {"mcdram": "cache", "numa": "quad"} | spec.get("attrs", {})
    for name, valid in _MEMORY.items():
        if attrs[name] not in valid:
            wrong = f"{name} {attrs[name]} not valid must be one of: {', '.join(valid)}"
            raise Refused(f"component error: XMLRPC failure <Fault 1004: {wrong!r}> in system.validate_job\n")
    if book.policy["strict"] and (unknown := attrs.keys() - _ATTRS):
        raise Refused(f"unknown attributes (this stand-in is strict): {', '.join(sorted(unknown))}")
    name, queue = spec["queue"], book.policy["queues"].get(spec["queue"])
    if queue is None:
        return []
    least, most = queue["nodes"]
    if not least <= int(spec["nodes"]) <= most:
        raise Refused(f"Node count {spec['nodes']} is not between {least} and {most}, the limits of queue {name}")
    notes = [f'Job routed to queue "{name}".']
    if memory := queue.get("memory"):
        spec["attrs"] |= dict(zip(_MEMORY, memory, strict=True))
        notes.append(f"Memory mode set to {' '.join(memory)} for queue {name}")
    return notes


def _enqueue(book: Book, spec: Job) -> Job:
    """Add the job. A parent that left the queue counts as failed, however it ended (cqm.py, check_dep_fail)."""
    parents = list(filter(None, spec.get("all_dependencies", "").split(":")))
    with book.change() as content:
        if missing := [name for name in parents if name not in content["jobs"]]:
            text = f"WARNING: dependencies {':'.join(missing)} do not match jobs currently in the queue"
            print(text, file=sys.stderr)
        _admit(book, content["jobs"], spec)
        number = content["next"]
        content["next"] += 1
        for name in (*_ENDINGS, "jobname"):
            spec[name] = _expand(spec[name], number)
        state = "user_hold" if "user_hold" in spec else "dep_hold" if parents else "queued"
        spec |= {"jobid": number, "user": user(), "state": state, "submittime": time.time(), "location": None}
        spec["pending"] = ["gone" if name in missing else name for name in parents]
        content["jobs"][str(number)] = spec
    return spec


def _expand(text: str, number: int) -> str:
    return re.sub(r"\$(?:COBALT_JOBID\b|jobid\b|\{COBALT_JOBID\}|\{jobid\})", str(number), text)


def _admit(book: Book, jobs: Jobs, spec: Job) -> None:
    """Check the limits of the queue (cqm.py, add_jobs and Restriction). A job without a time gets the longest."""
    name, queue = spec["queue"], book.policy["queues"].get(spec["queue"])
    faults = [] if queue else [f"trying to add job to non-existent queue '{name}'"]
    if queue:
        most = [minutes for least, minutes in queue["steps"] if least <= int(spec["nodes"])][-1]
        least, asked = queue.get("mintime", 0), int(spec["walltime"])
        mine = sum(job["queue"] == name for job in jobs.values())
        limit, state = queue.get("maxqueued", mine + 1), queue.get("state", "running")
        faults += [f"The '{name}' queue is {state}"] * (state != "running")
        faults += [f"Walltime greater than the '{name}' queue max walltime of {_hours(most)}"] * (asked > most)
        faults += [f"Walltime less than the '{name}' queue min walltime of {_hours(least)}"] * (asked < least)
        faults += [f"The limit of {limit} jobs per user in the '{name}' queue has been reached"] * (mine >= limit)
        spec["walltime"] = str(asked or most)
    if faults:
        raise Refused("<Fault 1001: {!r}>".format("\n".join(faults)))


def _hours(minutes: int) -> str:
    return "{:02d}:{:02d}:00".format(*divmod(minutes, 60))


def _log(job: Job, *lines: str) -> None:
    """Append to the job's log. Lines that cannot be written are dropped (Util.py, disk_writer_thread)."""
    with suppress(OSError), open(job["cobalt_log_file"], "a", encoding="utf-8", errors="surrogateescape") as log:
        log.write("".join(f"{line}\n" for line in lines))


def _supervise(book: Book, name: str) -> None:
    job = batch.wait_for_turn(book, name, _next_state, lambda job: job["state"] in {"running", "dep_fail"})
    if job is not None and job["state"] == "running":
        status = _run(book, job)
        with book.change() as content:
            content["jobs"].pop(name, None)
            content["ended"][name] = status


def _next_state(book: Book, content: Content, name: str) -> Job | None:
    """Return the change to a job that has not started. Within a queue the first job is served first."""
    job: Job = content["jobs"][name]
    if job["state"] == "dep_hold":
        ends = [content["ended"].get(parent) for parent in job["pending"] if parent not in content["jobs"]]
        if any(status != 0 for status in ends):
            return {"state": "dep_fail"}
        return {"state": "queued"} if len(ends) == len(job["pending"]) else None
    if time.time() < job["submittime"] + book.policy["wait"]:
        return None
    queue = book.policy["queues"][job["queue"]]
    others = [other for other in content["jobs"].values() if other["queue"] == job["queue"] and other is not job]
    if sum(other["location"] is not None for other in others) >= queue.get("maxrunning", len(others) + 1):
        return None if job["state"] == "maxrun_hold" else {"state": "maxrun_hold"}
    taken = ",".join(other["location"] for other in content["jobs"].values() if other["location"])
    nodes = sorted(set(expand_nodes(queue["pool"])) - set(expand_nodes(taken)))[: int(job["nodes"])]
    first = all(other["jobid"] > job["jobid"] or other["state"] not in {"queued", "maxrun_hold"} for other in others)
    if len(nodes) < int(job["nodes"]) or not first:
        return None
    runs = [[node for _, node in run] for _, run in groupby(enumerate(nodes), lambda pair: pair[1] - pair[0])]
    location = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return {"state": "running", "location": location, "starttime": time.time()}


def expand_nodes(text: str) -> list[int]:
    """Return the nodes of `1-4,7`."""
    ends = [part.partition("-") for part in filter(None, text.split(","))]
    return [node for first, _, last in ends for node in range(int(first), int(last or first) + 1)]


def _run(book: Book, job: Job) -> int | None:
    """Run the script by the login shell, in a clean environment (alps_script_forker.py, pg_forker.py). None: the job
    was ended.
    """
    import subprocess

    command = " ".join("'" + word.replace("'", "'\"'\"'") + "'" for word in [job["command"], *job["args"]])
    shell = ["-", "-c", f"export PATH='/usr/bin:/bin:{book.policy['folder']}'; exec {command}"]
    end = job["starttime"] + int(job["walltime"]) * book.policy["minute"]
    environment = _environment(book, job, end)
    _log(job, f"Command: {command}", "Environment:", *(f"{name}={value}" for name, value in environment.items()))
    with _append(job, job["outputpath"]) as out, _append(job, job["errorpath"]) as err:
        child = subprocess.Popen(
            shell, executable="/bin/bash", env=environment, cwd=job["cwd"], stdin=subprocess.DEVNULL, stdout=out,
            stderr=err, start_new_session=True,
        )  # fmt: skip
    reason = batch.watch(child, lambda: _verdict(book, job, end), book.policy["grace"])
    time.sleep(book.policy["cleanup"])
    if reason is not None:
        return None
    status = child.returncode if child.returncode >= 0 else 128 - child.returncode
    _log(job, f"Info: task completed normally with an exit code of {status}; initiating job cleanup and removal")
    return status


def _environment(book: Book, job: Job, end: float) -> dict[str, str]:
    number, nodes, home = job["jobid"], job["nodes"], book.policy["home"] or os.path.expanduser("~")
    common = {"HOME": home, "USER": job["user"], "LOGNAME": job["user"], "SHELL": "/bin/bash"}
    variables = {
        "PARTNAME": job["location"], "PARTSIZE": nodes, "JOBSIZE": nodes, "PARTCORES": "72", "QUEUE": job["queue"],
        "PROJECT": job.get("project"), "JOBID": number, "RESID": number % 100000, "STARTTIME": int(job["starttime"]),
        "ENDTIME": int(end),
    }  # fmt: skip
    given = {name: _expand(value, number) for name, value in job["envs"].items()} | common
    return given | {f"COBALT_{name}": str(value) for name, value in variables.items()}


def _append(job: Job, path: str) -> Any:
    with suppress(OSError):
        return open(path, "ab")
    _log(job, f"WARNING: cannot open {path}, sending it to /dev/null")
    return open(os.devnull, "ab")


def _verdict(book: Book, job: Job, end: float) -> str | None:
    with suppress(FileNotFoundError):
        if time.time() > end:
            _log(job, "Info: maximum execution time exceeded; initiating job termination")
            with book.change() as content:
                content["jobs"][str(job["jobid"])]["state"] = "killing"
            return "time"
        return "user" if book.read()["jobs"][str(job["jobid"])]["state"] == "killing" else None
    return "lost"


def qdel(book: Book, arguments: list[str]) -> int:
    _, names = _options("qdel", arguments, {})
    if wrong := [name for name in names or ["None"] if not name.isdigit()]:
        raise Refused(f"jobid must be an integer: {wrong[0]}")
    with book.change() as content:
        deleted = [content["jobs"][name] for name in dict.fromkeys(names) if name in content["jobs"]]
        for job in deleted:
            if job["location"] is None:
                _log(job, "Info: user delete requested; removing job from the queue")
                del content["jobs"][str(job["jobid"])]
            elif job["state"] == "running":
                _log(job, f"Info: user delete requested with signal SIGTERM by user {user()}")
                job["state"] = "killing"
    time.sleep(min(1.0, book.policy["minute"]))
    if deleted:
        print("      Deleted Jobs")
        _print_table([["JobID", "User"], *([job["jobid"], job["user"]] for job in deleted)])
    return 0


def cqwait(book: Book, arguments: list[str]) -> int:
    while book.read()["jobs"].keys() & set(arguments):
        time.sleep(0.1)  # two seconds in cqwait.py
    return 0


_JOBS = "JobID:User:WallTime:Nodes:State:Location"
_QUEUES = "Name:Users:Groups:MinTime:MaxTime:MaxRunning:MaxQueued:MaxUserNodes:MaxNodeHours:TotalNodes:State"


def qstat(book: Book, arguments: list[str]) -> int:
    """Print jobs. Names of columns may have any case; an unknown column is shown as `-`, one that is not set as None.
    -Q has columns of its own.
    """
    options, names = _options("qstat", arguments, {"-Q": "queues", "-u --user": "user=", "--header": "header="})
    header = (_QUEUES if "queues" in options else options.get("header", _JOBS)).split(":")
    rows = _queue_rows(book, names) if "queues" in options else _job_rows(book, names, options.get("user"))
    if names and not rows:
        return 1
    _print_table([header, *([row.get(name.lower(), "-") for name in header] for row in rows)])
    return 0


def _queue_rows(book: Book, names: list[str]) -> list[Job]:
    unset: Job = dict.fromkeys(_QUEUES.lower().split(":")) | {"state": "running"}
    queues = sorted(book.policy["queues"].items())
    rows = [unset | queue | {"name": name} for name, queue in queues if not names or name in names]
    for row in rows:
        row["mintime"], row["maxtime"] = _hours(row["mintime"] or 0), _hours(row["steps"][-1][1])
    return rows


def _job_rows(book: Book, names: list[str], owner: str | None) -> list[Job]:
    if wrong := [name for name in names if not name.isdigit()]:
        raise Refused(f"{wrong[0]} is not a valid jobid or queue name")
    jobs = [job for number, job in book.read()["jobs"].items() if not names or number in names]
    return [job | {"walltime": _hours(int(job["walltime"]))} for job in jobs if owner in {None, job["user"]}]


def _print_table(rows: list[list[Any]]) -> None:
    """Print a table. Two blanks follow each column, the last one too (Util.py, print_tabular)."""
    widths = [max(len(str(row[place])) for row in rows) for place in range(len(rows[0]))]
    lines = ["".join(f"{cell!s:<{width}}  " for cell, width in zip(row, widths, strict=True)) for row in rows]
    print(lines[0], "=" * len(lines[0]), *lines[1:], sep="\n")


def aprun(book: Book, arguments: list[str]) -> int:
    """Start the ranks with mpiexec on that many nodes. Where it is allowed, their host names differ too."""
    with open(os.path.join(book.state, "aprun.jsonl"), "ab", buffering=0) as log:
        log.write(f"{json.dumps(['aprun', *arguments])}\n".encode())
    given, program = _parse_aprun(arguments)
    code = _mpiexec(given, _claim(given), program)
    print("Application 9888541 resources: utime ~0s, stime ~1s, Rss ~6648, inblocks ~0, outblocks ~0", flush=True)
    return code


_BINDING = r"depth|cpu|none|numa_node|[\d,:-]+", "invalid cpu list or keyword"
_APRUN = dict.fromkeys(("-n", "-N", "-d", "-j"), ("0*[1-9][0-9]*", "not a positive number")) | {
    "-cc": _BINDING, "--cc": _BINDING, "-e": (r"(?s:[A-Za-z_]\w*=.*)", "not of the form VARIABLE=value"),
}  # fmt: skip


def _parse_aprun(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    import shutil

    given: dict[str, Any] = {"-n": "1", "-d": "1", "-j": "1", "-e": []}
    command = list(arguments)
    while command and command[0].startswith("-"):
        flag = command.pop(0)
        if flag not in _APRUN or not command:
            raise Refused(f"aprun: unrecognized option '{flag}', or one without its argument\naprun: -h for usage")
        (pattern, fault), value = _APRUN[flag], command.pop(0)
        if not re.fullmatch(pattern, value):
            raise Refused(f"aprun: {flag} {value}: {fault}")
        given[flag] = [*given["-e"], value] if flag == "-e" else value
    if not command or shutil.which(command[0]) is None:
        raise Refused(f"aprun: file {command[0]} not found" if command else "aprun: no executable was named")
    return given, command


def _claim(given: dict[str, Any]) -> list[int]:
    """Return the nodes for the ranks. aprun's own error messages are not known."""
    reserved = expand_nodes(os.environ.get("COBALT_PARTNAME", ""))
    ranks, depth, threads = (int(given[flag]) for flag in ("-n", "-d", "-j"))
    most = _CPUS * threads
    per_node = given["-N"] = int(given.get("-N") or max(1, min(ranks, most // depth)))
    needed = -(-ranks // per_node)
    for wrong, message in (
        (not reserved, "aprun: no reservation: COBALT_PARTNAME is not set"),
        (threads not in {1, 2, 4}, f"aprun: -j {threads}: must be one of 1, 2, 4"),
        (depth * per_node > most, f"aprun: -N {per_node} times -d {depth} exceeds the {most} CPUs of a node"),
        (needed > len(reserved), f"apsched: claim exceeds reservation's node-count ({needed} > {len(reserved)})"),
    ):
        if wrong:
            raise Refused(message)
    return reserved[:needed]


def _mpiexec(given: dict[str, Any], nodes: list[int], program: list[str]) -> int:
    """Return the command line. hydra's launcher `fork` starts every "host" here; addresses instead of names avoid name
    servers. `env` comes last in a node's block, so that LD_PRELOAD applies to the program and nothing before it.
    """
    import subprocess

    named, hosts, blocks = batch.may_rename(), [], list[str]()
    for place, node in enumerate(nodes):
        ranks = min(given["-N"], int(given["-n"]) - place * given["-N"])
        hosts.append(f"127.0.{1 + place // 250}.{1 + place % 250}:{ranks}")
        host = batch.as_host(f"nid{node:05}") if named else []
        blocks += [*[":"] * bool(place), "-n", str(ranks), *host, "env", *given["-e"], *program]
    hydra = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    child = subprocess.Popen([hydra, "-launcher", "fork", "-hosts", ",".join(hosts), *blocks])
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    code = child.wait()
    return code if code >= 0 else 128 - code


PROGRAMS = {"qsub": qsub, "qstat": qstat, "qdel": qdel, "cqwait": cqwait, "aprun": aprun}
