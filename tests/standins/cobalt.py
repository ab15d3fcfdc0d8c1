"""A stand-in for Cobalt on Theta: qsub, qstat, qdel, cqwait and aprun over a state directory, without a daemon.

What it enforces is read from Cobalt's sources (github.com/ido/cobalt 45b99619, 1.0.33: src/clients/POSIX;
src/lib/{client_utils,Util}.py; src/lib/Components/{cqm,pg_forker,alps_script_forker,system/CraySystem}.py), Theta's
queues from ALCF's user guides. A script that passes here keeps to what is documented; Theta itself is another matter.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.standins.batch import (
    Book,
    Content,
    Job,
    Jobs,
    Refused,
    as_host,
    detach,
    install_programs,
    known,
    may_rename,
    slowly,
    user,
    wait_for_turn,
    watch,
)

if TYPE_CHECKING:
    import optparse
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROGRAMS = ("qsub", "qstat", "qdel", "cqwait", "aprun")

# ALCF user guides, Theta: queues. `steps` are the longest times in minutes from so many nodes on; `pool` are node ids
# of ours. Which limits the queue manager holds and which the site's submit filter is not known: texts are Cobalt's.
QUEUES: dict[str, dict[str, Any]] = {
    "default": {
        "nodes": [128, 4100],
        "mintime": 30,
        "steps": [[128, 180], [256, 360], [384, 540], [640, 720], [802, 1440]],
        "maxqueued": 20,
        "maxrunning": 10,
        "pool": "0-3833,3866-4391",
    },
    "debug-cache-quad": {
        "nodes": [1, 8],
        "steps": [[1, 60]],
        "maxrunning": 1,
        "pool": "3834-3849",
        "memory": ["cache", "quad"],
    },
    "debug-flat-quad": {
        "nodes": [1, 8],
        "steps": [[1, 60]],
        "maxrunning": 1,
        "pool": "3850-3865",
        "memory": ["flat", "quad"],
    },
}

# minute: real seconds that a minute of wall time takes. grace: seconds from TERM to KILL (five minutes in cqm.py).
# wait: seconds that a job stays queued at least. cleanup: seconds from a job's end to the last line of its log, when it
# leaves the queue. strict: attributes nobody documents are refused, for typing errors. size: nodes of the machine.
# home: what jobs have as HOME; None is the user's. notes: the submit filter's two lines.
POLICY: dict[str, Any] = {
    "minute": 60.0,
    "grace": 5.0,
    "wait": 0.0,
    "cleanup": 0.0,
    "strict": False,
    "size": 4392,
    "first": 527001,
    "home": None,
    "notes": True,
    "queues": QUEUES,
}

_CORES, _THREADS = 64, (1, 2, 4)
_MCDRAM = ["flat", "cache", "split", "equal", "0", "25", "50", "100"]
_NUMA = ["a2a", "hemi", "quad", "snc2", "snc4"]
_ATTRS = {"mcdram", "numa", "location", "ssds", "ssd_size", "enable_ssh", "filesystems"}
_SHELL = "/bin/bash"
_HELD = {"user_hold", "dep_hold", "dep_fail"}


def install(folder: Path, state: Path, **policy: Any) -> None:
    """Write the programs into `folder`: with it on PATH they are the batch system. POLICY says what may be given."""
    install_programs(folder, state, __name__, PROGRAMS, known(POLICY, policy))


def main(program: str, state: str) -> int:
    """One command. A file `down` in the state directory makes the queue manager unreachable, `slow` holds seconds."""
    run: dict[str, Callable[[Book, list[str]], int]] = {
        "qsub": qsub,
        "qstat": qstat,
        "qdel": qdel,
        "cqwait": cqwait,
        "aprun": aprun,
    }
    try:
        if program != "aprun":
            _reach(program, state)
        return run[program](Book(state), sys.argv[1:])
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return refusal.code


def _reach(program: str, state: str) -> None:
    slowly(state)
    if os.path.exists(os.path.join(state, "down")):
        if program == "cqwait":
            raise Refused("Failed to connect to queue manager")
        raise Refused("component error: Failed to connect to queue-manager: cn:queue-manager\n")


# qsub


class _Options:
    """What optparse is told of one option: its flags, its name in the job's specification and a check of its value."""

    def __init__(self, flags: str, dest: str, check: Callable[[_Submit, str], Any] | None, **more: Any) -> None:
        self.flags, self.dest, self.check, self.more = flags.split(), dest, check, more

    def add(self, submit: _Submit, parser: optparse.OptionParser) -> None:
        if self.check is None:
            parser.add_option(*self.flags, dest=self.dest, **self.more)
        else:
            more = {"type": "string"} | self.more
            parser.add_option(*self.flags, dest=self.dest, action="callback", callback=self._call(submit), **more)

    def _call(self, submit: _Submit) -> Callable[..., None]:
        check = self.check
        assert check is not None

        def call(_option: Any, _text: str, value: str, parser: optparse.OptionParser) -> None:
            submit.values = parser.values
            setattr(parser.values, self.dest, check(submit, value))

        return call


class _Submit:
    """One qsub: the argument vector with the script's directives, and the specification that comes of it."""

    def __init__(self, book: Book, arguments: list[str]) -> None:
        self.book, self.arguments = book, arguments
        self.values: Any = None
        self.spec: Job = {}
        self.rest: list[str] = []

    def parse(self) -> int:
        """qsub.py, parse_options: defaults anew, other values of a first pass stay. The number of options given."""
        import optparse

        cwd = os.getcwd()
        self.spec |= {"cwd": cwd, "outputdir": _CWD, "queue": "default", "umask": 0o022, "mode": False}
        parser = optparse.OptionParser(prog="qsub", usage=_USAGE, version=_VERSION, conflict_handler="resolve")
        parser.disable_interspersed_args()
        for option in _OPTIONS:
            option.add(self, parser)
        self.values, self.rest = parser.parse_args(self.arguments)
        given = {name: value for name, value in vars(self.values).items() if value is not None}
        self.spec |= given
        return len(given.keys() - {"verbose", "debug"})


_CWD = "<REPLACE WITH CWD>"
_USAGE = "%prog --help\nUsage: %prog [options] <executable> [<excutable options>]"
_VERSION = 'version: "%prog " + $Revision: 559 $ + , Cobalt  + $Version$'


def _check_nodes(submit: _Submit, value: Any) -> str:
    if not 0 < value <= submit.book.policy["size"]:
        raise Refused("node count out of realistic range")
    return str(value)


def _check_positive(_submit: _Submit, value: Any) -> str:
    if value <= 0:
        raise Refused(f"--proccount is {value} which is greater <= to zero")
    return str(value)


def _check_time(_submit: _Submit, value: str) -> str:
    try:
        return str(_minutes(value))
    except ValueError as fault:
        raise Refused(f"invalid time specification: {fault}") from None


def _minutes(text: str) -> int:
    """Util.py, get_time: two fields are hours and minutes, seconds are dropped."""
    parts = text.split(":")
    names = {1: "minutes", 2: "hours minutes", 3: "hours minutes seconds", 4: "days hours minutes seconds"}
    if len(parts) not in names:
        raise ValueError("time may be specified as minutes, HH:MM, HH:MM:SS, or DD:HH:MM:SS")
    fields = {}
    for name, part in zip(names[len(parts)].split(), parts, strict=True):
        try:
            fields[name] = int(part)
        except ValueError:
            raise ValueError(f"illegal value '{part}' for {name}") from None
    if not 0 <= fields.get("seconds", 0) <= 59:
        raise ValueError(f"seconds value '{fields['seconds']}' outside range [0, 59]")
    first = next(iter(fields))
    if fields[first] < 0:
        raise ValueError(f"{first} value must not be negative")
    return fields["minutes"] + 60 * fields.get("hours", 0) + 1440 * fields.get("days", 0)


def _check_umask(_submit: _Submit, value: str) -> int:
    try:
        return int(value, 8)
    except ValueError:
        raise Refused(f"Invalid umask value {value}") from None


def _check_path(_submit: _Submit, value: str) -> str:
    if not value.startswith("/"):
        return f"{_CWD}/{value}"
    if not os.path.isdir(os.path.dirname(value)):
        raise Refused(f"directory {value} does not exist")
    return value


def _check_dependencies(submit: _Submit, value: str) -> str:
    if missing := set(value.split(":")) - submit.book.read()["jobs"].keys():
        text = ":".join(sorted(missing))
        print(f"WARNING: dependencies {text} do not match jobs currently in the queue", file=sys.stderr)
    return value


def _check_env(_submit: _Submit, value: str) -> dict[str, str]:
    hidden = value.replace(r"\:", "\0").replace(r"\=", "\1")
    pairs = [item.split("=", 1) for item in re.split(r":(?=\w+\b=)", hidden)]
    for pair in pairs:
        if len(pair) != 2:
            raise Refused(f"Improperly formatted argument to env : {pair!r}")
    return {key: text.replace("\0", ":").replace("\1", "=") for key, text in pairs}


def _check_attrs(submit: _Submit, value: str) -> dict[str, str]:
    if submit.values.attrs is not None:
        raise Refused(
            "Multiple --attrs options not supported.  Specify multiple attributes as follows: --attrs FOO=1:BAR=2"
        )
    attrs = {}
    for attr in value.split(":"):
        parts = attr.split("=")
        if len(parts) > 2:
            raise Refused(f"Improperly formatted argument to attrs : {attr}")
        if len(parts) == 2:
            attrs[parts[0]] = parts[1]
        elif attr.startswith("no_"):
            attrs[attr[3:]] = "false"
        else:
            attrs[attr] = "true"
    if submit.book.policy["strict"] and (unknown := attrs.keys() - _ATTRS):
        raise Refused(f"unknown attributes (this stand-in is strict): {', '.join(sorted(unknown))}")
    return attrs


def _check_mode(submit: _Submit, value: str) -> str:
    before = submit.values.mode
    if before not in {None, value}:
        raise Refused(f"Mode already set to '{before}' and trying to set it again to '{value}'")
    modes = ["co", "vn", "script", "interactive"]
    if value not in modes:
        raise Refused("Specifed mode '{}' not valid, valid modes are\n{}".format(value, "\n".join(modes)))
    return value


def _check_interactive(submit: _Submit, _value: str) -> str:
    return _check_mode(submit, "interactive")


_OPTIONS = (
    _Options("-d --debug", "debug", None, action="store_true"),
    _Options("-v --verbose", "verbose", None, action="store_true"),
    _Options("-h --held", "user_hold", None, action="store_true"),
    _Options("--preemptable", "preemptable", None, action="store_true"),
    _Options("--run_project", "run_project", None, action="store_true"),
    _Options("--disable_preboot", "script_preboot", None, action="store_false"),
    _Options("-I --interactive", "mode", _check_interactive, type=None),
    _Options("-n --nodecount", "nodes", _check_nodes, type="int"),
    _Options("--proccount", "procs", _check_positive, type="int"),
    _Options("-A --project", "project", None),
    _Options("--cwd", "cwd", None),
    _Options("-q --queue", "queue", None),
    _Options("-M --notify", "notify", None),
    _Options("--env", "envs", _check_env),
    _Options("-t --time", "walltime", _check_time),
    _Options("-u --umask", "umask", _check_umask),
    _Options("-O --outputprefix", "outputprefix", _check_path),
    _Options("-e --error", "errorpath", _check_path),
    _Options("-o --output", "outputpath", _check_path),
    _Options("-i --inputfile", "inputfile", _check_path),
    _Options("--debuglog", "cobalt_log_file", _check_path),
    _Options("--dependencies", "all_dependencies", _check_dependencies),
    _Options("--attrs", "attrs", _check_attrs),
    _Options("--user_list --run_users", "user_list", None),
    _Options("--jobname", "jobname", None),
    _Options("--kernel", "kernel", None),
    _Options("-K --kerneloptions", "kerneloptions", None),
    _Options("--ion_kernel", "ion_kernel", None),
    _Options("--ion_kerneloptions", "ion_kerneloptions", None),
    _Options("--mode", "mode", _check_mode),
    _Options("--geometry", "geometry", None),
)


def qsub(book: Book, arguments: list[str]) -> int:
    submit = _Submit(book, list(arguments))
    given = submit.parse()
    if _take_script(submit):
        given = submit.parse()
    _require(submit, given)
    spec = _paths(submit)
    _validate_job(book, spec)
    notes = _filter(book, spec)
    number = _enqueue(book, spec)
    for note in notes:
        print(note)
    print(number)
    _log_submission(spec, number, submit.arguments)
    if not spec.get("user_hold"):
        detach(book, lambda: _supervise(book, number))
    return 0


def _take_script(submit: _Submit) -> bool:
    """qsub.py, validate_args: the command's path, and its directives before the other arguments. Parse again?"""
    if submit.values.mode == "interactive":
        raise Refused("interactive jobs are not modelled by this stand-in")
    if not submit.rest:
        raise _usage("No executable or script specified")
    command = submit.rest[0].replace(" ", "")
    if not command.startswith("/"):
        command = f"{submit.spec['cwd']}/{command}"
    if not os.path.isfile(command):
        raise Refused(f"command {command} not found, or is not a file")
    if not os.access(command, os.X_OK | os.R_OK):
        raise Refused(f"command {command} is not executable")
    submit.spec |= {"command": command, "args": submit.rest[1:]}
    with open(command, encoding="utf-8", errors="surrogateescape") as file:
        directives = _directives(file)
    submit.arguments = directives + submit.arguments
    return _join_env(submit) or bool(directives)


def _usage(message: str) -> Refused:
    print(f"Usage: {_USAGE.replace('%prog', 'qsub')}\n")
    return Refused(f"{message}\n")


def _directives(lines: Iterator[str]) -> list[str]:
    """Words of the lines right after `#!` that start with exactly `#COBALT `; the first other line ends it."""
    tag = "#COBALT "
    if not next(lines, "").startswith("#!"):
        return []
    words: list[str] = []
    for line in lines:
        if len(line) <= len(tag) or not line.startswith(tag):
            break
        words += ([] if words else ["--mode", "script"]) + line[len(tag) :].split()
    return words


def _join_env(submit: _Submit) -> bool:
    """qsub.py, env_union: only `--env X` in two words."""
    words = submit.arguments
    places = [index for index, word in enumerate(words) if word in {"--en", "--env"}]
    if len(places) < 2:
        return False
    joined = ":".join(words[index + 1] for index in places if index + 1 < len(words))
    gone = {index + more for index in places[1:] for more in (0, 1)}
    words[places[0] + 1] = joined
    submit.arguments = [word for index, word in enumerate(words) if index not in gone]
    return True


def _require(submit: _Submit, given: int) -> None:
    if given == 0:
        raise _usage("No required options provided")
    if submit.values.walltime is None:
        raise Refused("'time' not provided")
    if submit.values.nodes is None:
        raise Refused("'nodecount' not provided")


def _paths(submit: _Submit) -> Job:
    """qsub.py, update_outputprefix and update_paths."""
    spec, values = submit.spec, submit.values
    os.umask(spec["umask"])
    if prefix := spec.pop("outputprefix", None):
        for name, ending in (("errorpath", "error"), ("cobalt_log_file", "cobaltlog"), ("outputpath", "output")):
            if getattr(values, name) is None:
                spec[name] = f"{prefix}.{ending}"
    for name, value in spec.items():
        if isinstance(value, str) and _CWD in value:
            spec[name] = path = value.replace(_CWD, spec["cwd"])
            if not os.path.isdir(os.path.dirname(path)):
                raise Refused(f"directory {path} does not exist")
    if "inputfile" in spec and not os.path.isfile(spec["inputfile"]):
        raise Refused(f"file {spec['inputfile']} not found, or is not a file")
    return spec


def _validate_job(book: Book, spec: Job) -> None:
    """CraySystem.py, validate_job: memory modes, cache and quad when not given; mode script."""
    attrs = spec["attrs"] = {"mcdram": "cache", "numa": "quad"} | spec.get("attrs", {})
    for name, valid in (("mcdram", _MCDRAM), ("numa", _NUMA)):
        if attrs[name] not in valid:
            raise _invalid(f"{name} {attrs[name]} not valid must be one of: {', '.join(valid)}")
    spec["mode"] = spec["mode"] or "script"
    if spec["mode"] != "script":
        raise _invalid(f"Mode {spec['mode']} is not supported on Cray systems.")
    if int(spec["nodes"]) > book.policy["size"]:
        raise _invalid(f"Job requested {spec['nodes']} nodes.  Maximum permitted size is {book.policy['size']}")


def _invalid(message: str) -> Refused:
    return Refused(f"component error: XMLRPC failure <Fault 1004: {message!r}> in system.validate_job\n")


def _filter(book: Book, spec: Job) -> list[str]:
    """The site's submit filter. Its two notes are ALCF's, what it says of node counts is this stand-in's."""
    queue = book.policy["queues"].get(spec["queue"])
    if queue is None:
        return []
    least, most = queue["nodes"]
    if not least <= int(spec["nodes"]) <= most:
        raise Refused(
            f"Node count {spec['nodes']} is not between {least} and {most}, the limits of queue {spec['queue']}\n"
            "Filter /etc/cobalt/filter failed"
        )
    notes = [f'Job routed to queue "{spec["queue"]}".']
    if memory := queue.get("memory"):
        spec["attrs"] |= dict(zip(("mcdram", "numa"), memory, strict=True))
        notes.append(f"Memory mode set to {' '.join(memory)} for queue {spec['queue']}")
    return notes if book.policy["notes"] else []


def _enqueue(book: Book, spec: Job) -> int:
    spec |= {"user": user(), "submittime": time.time(), "state": "queued", "location": None, "starttime": None}
    with book.change() as content:
        _admit(book, content["jobs"], spec)
        number = content["next"]
        content["next"] += 1
        pending = [name for name in spec.get("all_dependencies", "").split(":") if name]
        if spec.get("user_hold"):
            spec["state"] = "user_hold"
        elif pending:
            spec["state"] = "dep_hold"
        content["jobs"][str(number)] = spec | {
            "jobid": number,
            "pending": pending,
            # cqm.py, check_dep_fail: one that is not in the queue any more counts as failed, however it ended.
            "dep_fail": any(name not in content["jobs"] for name in pending),
        }
    return int(number)


def _admit(book: Book, jobs: Jobs, spec: Job) -> None:
    """cqm.py, add_jobs and Restriction."""
    name, queue = spec["queue"], book.policy["queues"].get(spec["queue"])
    if queue is None:
        raise _queue_error(f"trying to add job to non-existent queue '{name}'")
    if (state := queue.get("state", "running")) != "running":
        raise _queue_error(f"The '{name}' queue is {state}")
    limits = [minutes for least, minutes in queue["steps"] if least <= int(spec["nodes"])]
    most, least, time_asked = limits[-1], queue.get("mintime", 0), int(spec["walltime"])
    faults = ""
    if time_asked > most:
        faults += f"Walltime greater than the '{name}' queue max walltime of {_hours(most)}\n"
    if time_asked < least:
        faults += f"Walltime less than the '{name}' queue min walltime of {_hours(least)}\n"
    mine = [job for job in jobs.values() if job["queue"] == name and job["user"] == spec["user"]]
    if len(mine) >= queue.get("maxqueued", len(mine) + 1):
        faults += f"The limit of {queue['maxqueued']} jobs per user in the '{name}' queue has been reached\n"
    if faults:
        raise _queue_error(faults)
    spec["walltime"] = str(time_asked or most)


def _queue_error(message: str) -> Refused:
    return Refused(f"<Fault 1001: {message!r}>")


def _hours(minutes: int) -> str:
    return "{:02d}:{:02d}:00".format(*divmod(minutes, 60))


def _clock(seconds: float) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y +0000 (UTC)", time.gmtime(seconds))


def _expand(text: str, number: int) -> str:
    return re.sub(r"\$(?:COBALT_JOBID\b|jobid\b|\{COBALT_JOBID\}|\{jobid\})", str(number), text)


def _files(spec: Job, number: int) -> tuple[str, str, str]:
    """Paths of output, error and log."""
    names = (("outputpath", "output"), ("errorpath", "error"), ("cobalt_log_file", "cobaltlog"))
    where = spec["outputdir"]
    output, error, log = (_expand(spec.get(name) or f"{where}/$jobid.{ending}", number) for name, ending in names)
    return output, error, log


def _log_submission(spec: Job, number: int, arguments: list[str]) -> None:
    path = _files(spec, number)[2]
    try:
        with open(path, "a", encoding="utf-8", errors="surrogateescape") as log:
            log.write(f"Jobid: {number}\nqsub {' '.join(arguments)}\n")
            log.write(f"{_clock(time.time())} submitted with cwd set to: {spec['cwd']}\n")
    except OSError as fault:
        print(f"WARNING: failed to create cobalt log file at: {path}", file=sys.stderr)
        print(f"WARNING:     Error information: {fault}", file=sys.stderr)


# The life of a job


def _log(spec: Job, *lines: str) -> None:
    """To the job's log, if it is there: what cannot be written is dropped (Util.py, disk_writer_thread)."""
    with suppress(OSError):
        file = os.open(_files(spec, spec["jobid"])[2], os.O_WRONLY | os.O_APPEND)
        os.write(file, "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
        os.close(file)


def _supervise(book: Book, number: int) -> None:
    job = wait_for_turn(book, str(number), _next_state, _settled)
    if job is not None and job["state"] == "running":
        status, reason = _run(book, job)
        with book.change() as content:
            content["jobs"].pop(str(number), None)
            content["ended"][str(number)] = {"exit_status": status, "reason": reason}


def _settled(job: Job) -> bool:
    return job["state"] in {"running", "dep_fail"}


def _next_state(book: Book, content: Content, number: str) -> Job | None:
    """What is to change in a job that has not started, if anything."""
    job: Job = content["jobs"][number]
    if job["state"] == "dep_hold":
        return _after_dependencies(content, job)
    if time.time() < job["submittime"] + book.policy["wait"]:
        return None
    nodes = _free_nodes(book, content["jobs"], job)
    if nodes is None:
        return None
    return {"state": "running", "location": _compact(nodes), "starttime": time.time()}


def _after_dependencies(content: Content, job: Job) -> Job | None:
    ended = [name for name in job["pending"] if name not in content["jobs"]]
    if job["dep_fail"] or any(content["ended"].get(name, {}).get("exit_status") != 0 for name in ended):
        return {"state": "dep_fail", "dep_fail": True}
    if ended == job["pending"]:
        return {"state": "queued"}
    return None


def _free_nodes(book: Book, jobs: Jobs, job: Job) -> list[int] | None:
    """Nodes for a job whose turn it is: first come, first served within a queue, so many at a time per user."""
    others = [other for other in jobs.values() if other["queue"] == job["queue"]]
    if _at_limit(book, jobs, job) or any(o["jobid"] < job["jobid"] and o["state"] == "queued" for o in others):
        return None
    wanted = job["attrs"].get("location") or book.policy["queues"][job["queue"]]["pool"]
    taken = {node for other in jobs.values() if other["location"] for node in expand_nodes(other["location"])}
    free = [node for node in expand_nodes(wanted) if node not in taken]
    return free[: int(job["nodes"])] if len(free) >= int(job["nodes"]) else None


def _at_limit(book: Book, jobs: Jobs, job: Job) -> bool:
    same = (other for other in jobs.values() if (other["queue"], other["user"]) == (job["queue"], job["user"]))
    running = sum(other["location"] is not None for other in same)
    return bool(running >= book.policy["queues"][job["queue"]].get("maxrunning", running + 1))


def expand_nodes(text: str) -> list[int]:
    """The nodes of `1-4,7`."""
    nodes: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        nodes += range(int(first), int(last or first) + 1)
    return nodes


def _compact(nodes: list[int]) -> str:
    runs: list[list[int]] = []
    for node in sorted(nodes):
        if runs and runs[-1][1] == node - 1:
            runs[-1][1] = node
        else:
            runs.append([node, node])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _run(book: Book, job: Job) -> tuple[int, str | None]:
    """alps_script_forker.py, pg_forker.py: the script by the login shell, with nothing of the submitter's environment.

    The exit status, and why the job was ended if it was.
    """
    import subprocess

    words = " ".join("'" + word.replace("'", "'\"'\"'") + "'" for word in [job["command"], *job["args"]])
    environment = _environment(book, job)
    now = _clock(time.time())
    _log(job, f"{now} ", f"{now} Command: {words}", f"{now} ", f"{now} Environment:")
    _log(job, *(f"{now} {name}={value}" for name, value in environment.items()), f"{now} ")
    output, error, _ = _files(job, job["jobid"])
    with _append(job, "stdout", output) as out, _append(job, "stderr", error) as err, _input(job) as source:
        try:
            child = subprocess.Popen(
                ["-", "-c", f"export PATH='/usr/bin:/bin:{book.policy['folder']}'; exec {words}"],
                executable=_SHELL,
                env=environment,
                cwd=job["outputdir"],
                stdin=source,
                stdout=out,
                stderr=err,
                start_new_session=True,
                umask=job["umask"],
            )
        except OSError:
            _log(job, f'{now} ERROR: unable to change to the current working directory to "{job["outputdir"]}"')
            return 255, None
    reason = watch(child, _verdict(book, job), book.policy["grace"])
    status = child.returncode if child.returncode >= 0 else 128 - child.returncode
    time.sleep(book.policy["cleanup"])
    if reason is None:
        _log(job, _COMPLETED.format(status))
    return status, reason


_COMPLETED = "Info: task completed normally with an exit code of {}; initiating job cleanup and removal"


def _environment(book: Book, job: Job) -> dict[str, str]:
    import pwd

    number, start, nodes = job["jobid"], job["starttime"], job["nodes"]
    end = start + int(job["walltime"]) * book.policy["minute"]
    envs = {name: _expand(value, number) for name, value in job.get("envs", {}).items()}
    return envs | {
        "HOME": book.policy["home"] or pwd.getpwuid(os.getuid()).pw_dir,
        "USER": job["user"],
        "LOGNAME": job["user"],
        "SHELL": _SHELL,
        "COBALT_PARTNAME": job["location"],
        "COBALT_PARTSIZE": nodes,
        "COBALT_JOBSIZE": nodes,
        "COBALT_PARTCORES": "72",
        "COBALT_PROJECT": str(job.get("project")),
        "COBALT_QUEUE": job["queue"],
        "COBALT_JOBID": str(number),
        "COBALT_RESID": str(number % 100000),
        "COBALT_STARTTIME": str(int(start)),
        "COBALT_ENDTIME": str(int(end)),
    }


def _append(job: Job, name: str, path: str) -> Any:
    try:
        return open(path, "ab")
    except OSError as fault:
        now = _clock(time.time())
        _log(job, f"{now} ERROR: error opening {name} file {path}: {fault}")
        _log(job, f"{now} WARNING: sending {name} to /dev/null")
        return open(os.devnull, "ab")


def _input(job: Job) -> Any:
    try:
        return open(job.get("inputfile", os.devnull), "rb")
    except OSError as fault:
        _log(job, f"ERROR: unable to open stdin file {job['inputfile']}; redirecting to /dev/null: {fault}")
        return open(os.devnull, "rb")


def _verdict(book: Book, job: Job) -> Callable[[], str | None]:
    end = job["starttime"] + int(job["walltime"]) * book.policy["minute"]
    seen: list[tuple[int, int]] = []

    def verdict() -> str | None:
        try:
            if time.time() > end:
                return _too_long(book, job)
            if (stamp := book.stamp()) in seen:
                return None
            seen[:] = [stamp]
            now = book.read()["jobs"].get(str(job["jobid"]), {})
        except FileNotFoundError:
            return "lost"
        return "user" if now.get("state") == "killing" else None

    return verdict


def _too_long(book: Book, job: Job) -> str:
    _log(job, "Info: maximum execution time exceeded; initiating job termination")
    with book.change() as content:
        content["jobs"][str(job["jobid"])]["state"] = "killing"
    return "time"


# qdel and cqwait


def qdel(book: Book, arguments: list[str]) -> int:
    parser = _parser("qdel", "Usage: %prog [options] <jobid1> [ ... <jobidN>]")
    parser.add_option("-d", "--debug", action="store_true")
    _, names = parser.parse_args(arguments)
    if not names:
        parser.print_usage()
        raise Refused("No Jobid(s) given\n")
    numbers = sorted({_number(name) for name in names if name != "*"})
    with book.change() as content:
        deleted = [job for number in numbers if (job := _delete(content, str(number)))]
    time.sleep(min(1.0, book.policy["minute"]))
    if deleted:
        print("      Deleted Jobs")
        _print_table([["JobID", "User"], *([job["jobid"], job["user"]] for job in deleted)])
    return 0


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refused(f"jobid must be an integer: {text}") from None


def _delete(content: Content, name: str) -> Job | None:
    job: Job | None = content["jobs"].get(name)
    if job is None or job["user"] != user():
        return None
    if job["location"] is None:
        _log(job, "Info: user delete requested; removing job from the queue")
        content["ended"][name] = {"exit_status": None, "reason": "user"}
        del content["jobs"][name]
        return job
    if job["state"] == "running":
        _log(job, f"Info: user delete requested with signal SIGTERM by user {user()}")
        job["state"] = "killing"
    return job


def cqwait(book: Book, arguments: list[str]) -> int:
    usage = "Usage: cqwait [--version] [-vr] [--start] <jobid> <jobid>\n"
    if {"--version", "--help", "-h", "-v"} & set(arguments):
        print("cqwait $Revision: 2030 $\ncobalt $Version$")
        return 0
    if any(word.startswith("-") and word not in {"--start", "-r"} for word in arguments):
        print(usage)
        return 1
    names = [word for word in arguments if not word.startswith("-")]
    if not names:
        print(f"\nNeed jobid\n\n{usage}")
        return 1
    if any(not name.isdigit() for name in names if name != "*"):
        raise Refused("jobid must be an integer")
    while _waiting(book, names, "--start" in arguments):
        time.sleep(0.1)  # two seconds in cqwait.py
    return 0


def _waiting(book: Book, names: list[str], for_start: bool) -> bool:
    jobs = book.read()["jobs"]
    found = [job for name, job in jobs.items() if name in names or "*" in names]
    return any(job["location"] is None for job in found) if for_start else bool(found)


# qstat


_HEADER = "JobID:User:WallTime:Nodes:State:Location"
_FULL = (
    "JobID:JobName:User:WallTime:QueuedTime:RunTime:TimeRemaining:Nodes:State:Location:Mode:Procs:Preemptable:Queue:"
    "StartTime:Index"
)
_LONG = (
    "JobID:JobName:User:WallTime:QueuedTime:RunTime:TimeRemaining:Nodes:State:Location:Mode:Procs:Preemptable:User_Hold:"
    "Admin_Hold:Queue:StartTime:Index:SubmitTime:Path:OutputDir:ErrorPath:OutputPath:Envs:Command:Args:Kernel:"
    "KernelOptions:ION_Kernel:ION_KernelOptions:Project:Dependencies:short_state:Notify:Score:Maxtasktime:attrs:"
    "dep_frac:user_list:Geometry:Est_Start_Time"
)
_QUEUES = "Name:Users:Groups:MinTime:MaxTime:MaxRunning:MaxQueued:MaxUserNodes:MaxNodeHours:TotalNodes:State"
_SHORT = {"queued": "Q", "running": "R", "starting": "R", "killing": "K", "exiting": "E"}


def _parser(program: str, usage: str) -> optparse.OptionParser:
    import optparse

    parser = optparse.OptionParser(prog=program, usage=usage, version="%prog $Revision: 406 $, Cobalt $Version$")
    parser.disable_interspersed_args()
    return parser


def qstat(book: Book, arguments: list[str]) -> int:
    parser = _parser("qstat", "Usage: %prog [options] <jobids1> ... <jobidsN>")
    for flags, dest in (("-d --debug", "debug"), ("-f --full", "full"), ("-l --long", "long"), ("-Q", "queues")):
        parser.add_option(*flags.split(), dest=dest, action="store_true")
    parser.add_option("--reverse", action="store_true")
    for flags in ("--header", "--sort", "-u --user"):
        parser.add_option(*flags.split())
    options, names = parser.parse_args(arguments)
    header = _header(options)
    found = _queue_rows(book, names) if options.queues else _job_rows(book, names, options.user)
    if names and not found:
        return 1
    rows = [[row.get(name.lower(), "-") for name in header] for row in found]
    _sort(rows, header, options)
    header = ["S" if name.lower() == "short_state" else name for name in header]
    (_print_long if options.long else _print_table)([header, *rows])
    return 0


def _header(options: Any) -> list[str]:
    """client_utils.py, header_info."""
    given = {
        name: os.environ.get(f"CQ{name}", os.environ.get(f"Q{name}")) for name in ("STAT_HEADER", "STAT_HEADER_FULL")
    }
    if options.queues:
        return _QUEUES.split(":")
    if options.full:
        return (_LONG if options.long else given["STAT_HEADER_FULL"] or _FULL).split(":")
    return (options.header or given["STAT_HEADER"] or _HEADER).split(":")


def _queue_rows(book: Book, names: list[str]) -> list[Job]:
    rows = []
    for name, queue in book.policy["queues"].items():
        if not names or name in names or "*" in names:
            empty = dict.fromkeys((column.lower() for column in _QUEUES.split(":")), None)
            limits = {"mintime": _hours(queue["mintime"]) if "mintime" in queue else None}
            limits["maxtime"] = _hours(queue["steps"][-1][1])
            counts = {key: queue.get(key) for key in ("maxrunning", "maxqueued")}
            rows.append(empty | limits | counts | {"name": name, "state": queue.get("state", "running")})
    return rows


def _job_rows(book: Book, names: list[str], user: str | None) -> list[Job]:
    jobs: Jobs = book.read()["jobs"]
    wanted = [_matcher(book, name) for name in names or ["*"]]
    found = [job for job in jobs.values() if any(match(job) for match in wanted) and user in {None, job["user"]}]
    width = max((len(str(job["jobid"])) for job in found), default=0)
    return [_row(book, jobs, job) | {"jobid": f"{job['jobid']:>{width}}"} for job in found]


def _matcher(book: Book, name: str) -> Callable[[Job], bool]:
    if name == "*":
        return lambda job: True
    if name in book.policy["queues"]:
        return lambda job: bool(job["queue"] == name)
    try:
        number = int(name)
    except ValueError:
        raise Refused(f"{name} is not a valid jobid or queue name") from None
    return lambda job: bool(job["jobid"] == number)


def _row(book: Book, jobs: Jobs, job: Job) -> Job:
    """qstat.py, get_output_for_jobs: names in lower case; a name that is not there is shown as `-`."""
    number, now, state = job["jobid"], time.time(), job["state"]
    if state == "queued" and _at_limit(book, jobs, job):
        state = "maxrun_hold"
    output, error, _ = _files(job, number)
    started = job["starttime"]
    name = job.get("jobname") or (os.path.basename(output).split(".output")[0] if job.get("outputpath") else "N/A")
    return _times(book, job, now) | {
        "jobname": name,
        "user": job["user"],
        "walltime": _hours(int(job["walltime"])),
        "nodes": job["nodes"],
        "state": state,
        "location": job["location"],
        "mode": job["mode"],
        "procs": job["nodes"],
        "preemptable": bool(job.get("preemptable")),
        "user_hold": state == "user_hold",
        "admin_hold": False,
        "queue": job["queue"],
        "submittime": _clock(job["submittime"]),
        "outputdir": job["outputdir"],
        "errorpath": error if started or job.get("errorpath") else None,
        "outputpath": output if started or job.get("outputpath") else None,
        "envs": " ".join(f"{key}={value}" for key, value in job.get("envs", {}).items()),
        "command": job["command"],
        "args": " ".join(job["args"]),
        "project": job.get("project"),
        "dependencies": ":".join(job["pending"]),
        "short_state": "H" if state.endswith("hold") or state == "dep_fail" else _SHORT[state],
        "notify": job.get("notify"),
        "score": "  0.1  ",
        "attrs": job["attrs"],
        "user_list": job.get("user_list", job["user"]),
        "geometry": "Any",
    }


def _times(book: Book, job: Job, now: float) -> Job:
    started, limit = job["starttime"], int(job["walltime"]) * 60
    waited = _elapsed((started or now) - job["submittime"])
    if started is None:
        return {"queuedtime": waited, "runtime": "N/A", "timeremaining": "N/A", "starttime": "N/A"}
    left = max(0.0, limit - (now - started) * 60 / book.policy["minute"])
    return {
        "queuedtime": waited,
        "runtime": _elapsed(now - started),
        "timeremaining": _elapsed(left),
        "starttime": _clock(started),
    }


def _elapsed(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return "{:02d}:{:02d}:{:02d}".format(*divmod(minutes, 60), rest)


def _sort(rows: list[list[Any]], header: list[str], options: Any) -> None:
    lower = [name.lower() for name in header]
    fields = options.sort.lower().split(":") if options.sort else ["score"]
    places = [lower.index(field) for field in fields if field in lower] or [0]
    rows.sort(key=lambda row: [_sortable(row[place]) for place in places], reverse=bool(options.reverse))


def _sortable(value: Any) -> tuple[int, float, str]:
    try:
        return 0, float(value), ""
    except (TypeError, ValueError):
        return 1, 0.0, str(value)


def _print_table(rows: list[list[Any]]) -> None:
    """Util.py, print_tabular: each column is followed by two blanks, the last one too."""
    widths = [max(len(str(row[place])) for row in rows) for place in range(len(rows[0]))]
    lines = ["".join(f"{cell!s:<{width}}  " for cell, width in zip(row, widths, strict=True)) for row in rows]
    print(lines[0])
    print("=" * len(lines[0]))
    for line in lines[1:]:
        print(line)


def _print_long(rows: list[list[Any]]) -> None:
    header = rows[0]
    width = max(map(len, header)) + 1
    for row in rows[1:]:
        print(f"{header[0]}: {row[0]}")
        for name, value in zip(header[1:], row[1:], strict=True):
            print(f"    {name:<{width}}: {value}")
        print()


# aprun


_VALUES = {
    "-n": "ranks",
    "-N": "per_node",
    "-d": "depth",
    "-j": "threads",
    "-cc": "binding",
    "--cc": "binding",
    "-e": "env",
}


def aprun(book: Book, arguments: list[str]) -> int:
    """Start the ranks with mpiexec, which sees so many nodes; where that is allowed their host names differ too."""
    with open(os.path.join(book.state, "aprun.jsonl"), "ab", buffering=0) as log:
        log.write(f"{json.dumps(['aprun', *arguments])}\n".encode())
    given, program = _parse_aprun(arguments)
    nodes = _claim(given)
    code = _mpiexec(_blocks(given, nodes, program))
    print("Application 9888541 resources: utime ~0s, stime ~1s, Rss ~6648, inblocks ~0, outblocks ~0", flush=True)
    return code


def _parse_aprun(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    given: dict[str, Any] = {"ranks": 1, "depth": 1, "threads": 1, "env": []}
    words = list(arguments)
    while words and words[0].startswith("-"):
        flag, equals, value = words.pop(0).partition("=")
        if flag not in _VALUES or (equals and not flag.startswith("--")):
            raise Refused(f"aprun: unrecognized option '{flag}'\naprun: -h for usage")
        if not equals and not words:
            raise Refused(f"aprun: option requires an argument -- '{flag}'")
        _take(given, _VALUES[flag], value if equals else words.pop(0))
    if not words:
        raise Refused("aprun: no executable was named")
    import shutil

    if shutil.which(words[0]) is None:
        raise Refused(f"aprun: file {words[0]} not found")
    return given, words


def _take(given: dict[str, Any], name: str, value: str) -> None:
    if name == "env":
        if not re.match(r"[A-Za-z_]\w*=", value):
            raise Refused(f"aprun: -e {value}: not of the form VARIABLE=value")
        given["env"].append(value)
    elif name == "binding":
        if not re.fullmatch(r"depth|cpu|none|numa_node|[\d,:-]+", value):
            raise Refused(f"aprun: -cc {value}: invalid cpu list or keyword")
    else:
        if not (value.isdigit() and int(value) > 0):
            raise Refused(f"aprun: {value!r} is not a positive number ({name})")
        given[name] = int(value)


def _claim(given: dict[str, Any]) -> list[int]:
    """The nodes for so many ranks; aprun's own words for what does not fit are not known."""
    reserved = expand_nodes(os.environ["COBALT_PARTNAME"]) if os.environ.get("COBALT_PARTNAME") else []
    size = int(os.environ.get("COBALT_JOBSIZE") or 0)
    if not reserved or not size:
        raise Refused("aprun: no reservation: COBALT_PARTNAME and COBALT_JOBSIZE are not set")
    depth, threads = given["depth"], given["threads"]
    if threads not in _THREADS:
        raise Refused(f"aprun: -j {threads}: must be one of 1, 2, 4")
    most = _CORES * threads // depth
    per_node = given.setdefault("per_node", max(1, min(given["ranks"], most)))
    if depth * per_node > _CORES * threads:
        raise Refused(
            f"aprun: -N {per_node} times -d {depth} exceeds the {_CORES * threads} CPUs of a node with -j {threads}"
        )
    needed = -(-given["ranks"] // per_node)
    if needed > min(size, len(reserved)):
        raise Refused(f"apsched: claim exceeds reservation's node-count ({needed} > {min(size, len(reserved))})")
    return reserved[:needed]


def _blocks(given: dict[str, Any], nodes: list[int], program: list[str]) -> list[list[str]]:
    """One block of mpiexec's per node. `env` comes last, so that LD_PRELOAD meets the program and nothing before it."""
    ranks, per_node, named = given["ranks"], given["per_node"], may_rename()
    blocks = []
    for place, node in enumerate(nodes):
        words = ["-n", str(min(per_node, ranks - place * per_node))]
        words += as_host(f"nid{node:05}") if named else []
        blocks.append([*words, "env", *given["env"], *program])
    return blocks


def _mpiexec(blocks: list[list[str]]) -> int:
    """hydra's launcher `fork` starts every "host" here; addresses instead of names keep name servers out of it."""
    import subprocess

    words = [os.path.join(os.path.dirname(sys.executable), "mpiexec"), "-launcher", "fork"]
    words += ["-hosts", ",".join(f"127.0.{1 + i // 250}.{1 + i % 250}:{block[1]}" for i, block in enumerate(blocks))]
    for i, block in enumerate(blocks):
        words += [":"] * bool(i) + block
    sys.stdout.flush()
    child = subprocess.Popen(words)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    code = child.wait()
    return code if code >= 0 else 128 - code
