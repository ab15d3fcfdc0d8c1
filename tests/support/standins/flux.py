"""A stand-in for Flux: the subcommands of flux(1) that are used here, over a state directory, without a broker.

Texts, exit codes, states and signals are those of flux-core 0.88 (four brokers, sched-simple). Options and fields that
are not used here are refused, whether Flux has them or not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from tests.support.standins import batch
from tests.support.standins.batch import Book, Content, Job, Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERSION = "0.88.0"

# Nodes of each queue; seconds and nodes of a job at most. The first one is the default.
QUEUES: dict[str, dict[str, Any]] = {
    "debug": {"nodes": ["n1", "n2"], "duration": 3600, "nnodes": 2},
    "batch": {"nodes": ["n3", "n4"]},
}
# grace: seconds from the first signals to KILL (exec.kill-timeout). wait: seconds a job is queued at least. cores: of a
# node. first: the first job's number.
POLICY: dict[str, Any] = {"grace": 5.0, "wait": 0.0, "cores": 8, "first": 1, "queues": QUEUES}

_DIGITS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_ENDED = {"COMPLETED", "FAILED", "CANCELED", "TIMEOUT"}
_UNLIMITED = 2**32 - 1
_BEGIN = "begin-time:"
# --signal is Flux's too, but would end the brokers of all nodes but the first.
_BATCH = argparse.ArgumentParser("flux batch", add_help=False, allow_abbrev=False)
for _names, _given in (
    (("--job-name",), {}), (("-N", "--nodes"), {"type": int}), (("-x", "--exclusive"), {"action": "store_true"}),
    (("-t", "--time-limit"), {"default": "30m"}), (("--output",), {"default": "flux-{{id}}.out"}), (("--error",), {}),
    (("-q", "--queue"), {}), (("-S", "--setattr"), {"action": "append", "default": []}),
    (("--urgency",), {"type": int, "default": 16}), (("--dependency",), {"action": "append", "default": []}),
    (("--dry-run",), {"action": "store_true"}), (("script",), {"nargs": "?"}),
):  # fmt: skip
    _BATCH.add_argument(*_names, **_given)
_RUN = argparse.ArgumentParser("flux run", add_help=False, allow_abbrev=False)
for _names, _given in (
    (("-N", "--nodes"), {"type": int, "required": True}), (("-n", "--ntasks"), {"type": int, "required": True}),
    (("-c", "--cores-per-task"), {"type": int, "default": 1}), (("-x", "--exclusive"), {"action": "store_true"}),
    (("-o", "--setopt"), {"action": "append", "default": []}), (("command",), {"nargs": argparse.REMAINDER}),
):  # fmt: skip
    _RUN.add_argument(*_names, **_given)


def install(folder: Path, state: Path, **policy: Any) -> None:
    """Write `flux` into `folder`; on PATH it is the batch system. POLICY lists the settings."""
    batch.install_programs(folder, state, __name__, ["flux"], batch.known(POLICY, policy))


def main(program: str, state: str) -> int:
    """Run one command. A file `down` in the state directory makes Flux unreachable, `slow` holds seconds, `lost` the
    name of a node that fails.
    """
    command = sys.argv[1:]
    if command == ["--version"]:
        print(f"commands:    \t\t{VERSION}")
        return 0
    name = next((name for name in COMMANDS if command[: name.count(" ") + 1] == name.split()), None)
    try:
        batch.slowly(state)
        if name is None:
            raise Refused(f"flux: `{' '.join(command[:2])}' is not a flux command, or not modelled.  See 'flux --help'")
        if os.path.exists(os.path.join(state, "down")):
            raise Refused(f"flux-{command[0]}: ERROR: Unable to connect to Flux: broker socket was not found")
        return COMMANDS[name](Book(state), command[name.count(" ") + 1 :])
    except Refused as refusal:
        fault = str(refusal)
        is_whole = fault.startswith(("flux", "usage", "0."))
        print(fault if is_whole else f"flux-{command[0]}: ERROR: {fault}", file=sys.stderr)
        return refusal.code


def _parse(parser: argparse.ArgumentParser, arguments: list[str], below: argparse.Namespace | None = None) -> Any:
    def fault(message: str) -> NoReturn:
        raise Refused(f"usage: {parser.prog} [OPTIONS...]\n{parser.prog}: error: {message}", 2)

    parser.error = fault  # type: ignore[method-assign]
    return parser.parse_args(arguments, below)


def batch_(book: Book, arguments: list[str]) -> int:
    first = _parse(_BATCH, arguments)
    if first.script is None:
        raise Refused("this stand-in reads no script from stdin")
    script = _read(first.script)
    options = None
    for number, directive in _directives(first.script, script):
        try:
            options = _parse(_BATCH, directive, options)
        except Refused as refusal:
            raise Refused(
                f"flux-batch: ERROR: argument parsing failed at {first.script} line {number}\n{refusal}", 2
            ) from None
        if options.script is not None:
            raise Refused(f"{first.script}: line {number}: Unknown directive:  {options.script}")
    options = _parse(_BATCH, arguments, options)
    job = _make(book, options) | {"script": script}
    if options.dry_run:
        print(json.dumps({"resources": [], "tasks": [], "attributes": {}, "version": 1}))
        return 0
    _admit(book, job)
    name = _enqueue(book, job)
    _print(f"ƒ{name}")
    batch.detach(book, lambda: _supervise(book, name))
    return 0


def _print(text: str) -> None:
    """Print a line. The letter is ƒ where the locale has it, else f."""
    locale = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or "C"
    text = text if "UTF-8" in locale.upper() else text.replace("ƒ", "f")
    sys.stdout.buffer.write(f"{text}\n".encode())
    sys.stdout.buffer.flush()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except OSError as fault:
        raise Refused(f"{fault.strerror}: {path!r}") from None
    if not text.startswith("#!"):
        raise Refused(f"{path} does not appear to start with '#!'")
    return text


def _directives(path: str, script: str) -> list[tuple[int, list[str]]]:
    """Return the lines with one and the same sentinel, up to the first line without its prefix (RFC 36)."""
    import shlex

    directives: list[tuple[int, list[str]]] = []
    sentinel, last = None, 0
    for number, line in enumerate(script.splitlines(), 1):
        match = re.match(r"([^\w\s]*\s*(?:flux|FLUX):)(.*)", line)
        if match is None:
            last = last or (number if sentinel and line.strip() and not line.startswith(sentinel[0]) else 0)
            continue
        if sentinel not in {None, match[1]}:
            raise Refused(f"{path}: line {number}: sentinel changed from {sentinel!r} to {match[1]!r}")
        if last:
            raise Refused(f"{path}: line {number}: orphan 'flux:' detected: directives disabled after line {last}")
        sentinel = match[1]
        try:
            directives.append((number, shlex.split(match[2], comments=True)))
        except ValueError as fault:
            raise Refused(f"{path}: line {number}: {match[2]}: {fault}") from None
    return directives


def _make(book: Book, options: Any) -> Job:
    if not options.nodes or options.nodes < 1:
        raise Refused("Number of slots to allocate must be specified")
    if not 0 <= options.urgency <= 31:
        raise Refused("urgency range is [0:31]")
    return {
        "name": options.job_name or os.path.basename(options.script), "nnodes": options.nodes,
        "duration": _seconds(options.time_limit), "output": options.output, "error": options.error,
        "queue": options.queue or next(iter(book.policy["queues"])), "urgency": options.urgency,
        "bank": next((value[5:] for value in options.setattr if value.startswith("bank=")), ""),
        "depend": [_dependency(text) for text in options.dependency if not text.startswith(_BEGIN)],
        "begins": max((_begins(text) for text in options.dependency if text.startswith(_BEGIN)), default=0.0),
        "cwd": os.getcwd(), "environment": _environment(),
    }  # fmt: skip


def _begins(text: str) -> float:
    """Parse the time of a begin-time dependency, in seconds since 1970 (begin-time.c)."""
    value = text.removeprefix(_BEGIN)
    if not re.fullmatch(r"\d*\.?\d*", value):
        raise Refused(f"Invalid begin-time={value}")
    return float(value or 0)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("FLUX_")}


def _seconds(text: str) -> float:
    """Parse minutes or a Flux Standard Duration; 0: no limit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None:
        raise Refused("invalid Flux standard duration")
    return float(match[1]) * {"s": 1, "": 60, "m": 60, "h": 3600, "d": 86400}[match[2]]


def _fsd(seconds: float) -> str:
    unit, size = next(
        (unit, size) for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)) if seconds >= size
    )
    return f"{seconds / size:g}{unit}"


def _dependency(text: str) -> list[str]:
    kind, _, name = text.partition(":")
    if kind not in {"afterok", "afterany"}:
        raise Refused(f'dependency scheme "{kind}" not supported')
    if not re.fullmatch(rf"[ƒf][{_DIGITS}]+", name):
        raise Refused(f'dependency: {kind}: "{name}" is not a valid jobid')
    return [kind, name[1:]]


def _admit(book: Book, job: Job) -> None:
    queue, content = job["queue"], book.read()
    limits = book.policy["queues"].get(queue)
    if limits is None:
        raise Refused(f"Invalid queue '{queue}' specified")
    if (reason := content.get("disabled", {}).get(queue)) is not None:
        raise Refused(f"job submission to {queue} is disabled: {reason}")
    if job["duration"] > limits.get("duration", _UNLIMITED):
        most, asked = _fsd(limits["duration"]), _fsd(job["duration"])
        raise Refused(f"requested duration ({asked}) exceeds policy limit of {most} for queue {queue}")
    if job["nnodes"] > limits.get("nnodes", job["nnodes"]):
        raise Refused(
            f"requested nnodes ({job['nnodes']}) exceeds policy limit of {limits['nnodes']} for queue {queue}"
        )
    for kind, name in job["depend"]:
        parent = content["jobs"].get(name)
        if parent is None:
            raise Refused(f"dependency: {kind}: id f{name}: job not found")
        if kind == "afterok" and parent["status"] in _ENDED - {"COMPLETED"}:
            raise Refused(f"dependency: {kind}: job ƒ{name} failed or was canceled")


def _f58(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text


def _enqueue(book: Book, job: Job) -> str:
    """Add the job with a copy of its script."""
    with book.change() as content:
        name = _f58(10**9 + content["next"])
        content["next"] += 1
        status = "DEPEND" if job["depend"] or time.time() < job["begins"] else "SCHED"
        content["jobs"][name] = job | {"key": name, "status": status, "submittime": time.time(), "nodes": []}
    return name


def _supervise(book: Book, name: str) -> None:
    job = batch.wait_for_turn(book, name, _next_state, lambda job: job["status"] in _ENDED | {"RUN"})
    if job is not None and job["status"] == "RUN":
        _execute(book, job)


def _ends(kind: str, note: str, status: str = "FAILED", code: int = 1) -> Job:
    return {"status": status, "type": kind, "note": note, "returncode": code, "t_inactive": time.time()}


def _next_state(book: Book, content: Content, name: str) -> Job | None:
    """Return the change to a job that has not started, if any."""
    job: Job = content["jobs"][name]
    if job["status"] in _ENDED | {"RUN"}:
        return None
    if job["status"] == "DEPEND":
        return _after_dependencies(content, job)
    if job["urgency"] == 0 or time.time() < job["submittime"] + book.policy["wait"]:
        return None
    there = book.policy["queues"][job["queue"]]["nodes"]
    if job["nnodes"] > len(there):
        fault = f"need {job['nnodes']} exclusive node(s), only {len(there)} eligible"
        return _ends("alloc", f"unsatisfiable request: {fault}")
    taken = {node for other in content["jobs"].values() if other["status"] == "RUN" for node in other["nodes"]}
    free = [node for node in there if node not in taken]
    if len(free) < job["nnodes"]:
        return None
    return {"status": "RUN", "nodes": free[: job["nnodes"]], "t_run": time.time()}


def _after_dependencies(content: Content, job: Job) -> Job | None:
    for kind, name in job["depend"]:
        parent = content["jobs"][name]
        if kind == "afterok" and parent["status"] in _ENDED - {"COMPLETED"}:
            why = "can never be satisfied" if "t_run" in parent else "job never started"
            return _ends("dependency", f"dependency after-success=ƒ{name} {why}")
    left = [[kind, name] for kind, name in job["depend"] if content["jobs"][name]["status"] not in _ENDED]
    if not left and time.time() >= job["begins"]:
        return {"status": "SCHED", "submittime": time.time()}
    return {"depend": left} if left != job["depend"] else None


def _lost(book: Book, job: Job) -> str | None:
    """Return the node of the job that is lost."""
    try:
        with open(os.path.join(book.state, "lost"), encoding="utf-8") as file:
            node = file.read().strip()
    except FileNotFoundError:
        return None
    return node if node in job["nodes"] else None


_SIGNALS = {"timeout": (signal.SIGALRM, signal.SIGHUP), "cancel": (signal.SIGTERM, signal.SIGHUP)}
_REASONS = {"timeout": ("TIMEOUT", "resource allocation expired"), "cancel": ("CANCELED", "")}


def _execute(book: Book, job: Job) -> None:
    """Run the script in the submitter's directory and environment. If the job was ended, its own exit code does not
    count. A job goes on when it loses a node other than its first one.
    """
    import subprocess

    scratch = os.path.join(book.state, f"jobtmp-0-{job['key']}")
    os.makedirs(scratch, exist_ok=True)
    path = os.path.join(scratch, "script")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(job["script"])
    os.chmod(path, 0o700)
    output = os.path.join(job["cwd"], job["output"].replace("{{id}}", f"ƒ{job['key']}"))
    error = os.path.join(job["cwd"], job["error"] or output)
    environment = job["environment"] | {
        "FLUX_ENCLOSING_ID": f"ƒ{job['key']}", "FLUX_URI": f"local://{scratch}/local-0", "FLUX_TERMINUS_SESSION": "0",
    }  # fmt: skip
    with open(output, "wb") as out, open(error, "ab" if error == output else "wb") as err:
        child = subprocess.Popen(
            [path], env=environment, cwd=job["cwd"], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
        reason = batch.watch(
            child, lambda: _verdict(book, job), book.policy["grace"],
            lambda reason: _SIGNALS.get(reason, (signal.SIGKILL,)),
        )  # fmt: skip
        code = child.returncode if child.returncode >= 0 else 128 - child.returncode
        if code:
            err.write(f"broker.err[0]: rc2.0: {path} Exited (rc={code}) 0.1s\n".encode())
    with book.change() as content:
        content["jobs"][job["key"]] |= _outcome(book, job, reason, code)


def _outcome(book: Book, job: Job, reason: str | None, code: int) -> Job:
    if reason in _REASONS:
        status, note = _REASONS[reason]
        return _ends(reason, note, status, code)
    node = _lost(book, job)
    if reason == "lost" or node == job["nodes"][0]:  # ranks may have ended the script before the loss was seen
        node = job["nodes"][0]
        return _ends("exec", f"node failure on {node} (rank {int(node[1:]) - 1})", code=137)
    kind, note = ("node-failure", f"node failure on {node} (shell rank 1)") if node else ("", "")
    return _ends(kind, note, "FAILED" if code else "COMPLETED", code)


def _verdict(book: Book, job: Job) -> str | None:
    now = book.read()["jobs"].get(job["key"], job)
    if now.get("canceled"):
        return "cancel"
    if _lost(book, job) == job["nodes"][0]:
        return "lost"
    return "timeout" if now["duration"] and time.time() > job["t_run"] + now["duration"] else None


def run(book: Book, arguments: list[str]) -> int:
    """Start the ranks of a job with mpiexec on that many nodes. Where it is allowed, their host names differ too. The
    job's own Flux refuses more than its nodes have, with code 1.
    """
    given, job = _parse(_RUN, arguments), _current(book)
    if given.nodes > given.ntasks:
        raise Refused("node count must not be greater than task count")
    if not {option.partition("=")[0] for option in given.setopt} <= {"cpu-affinity", "exit-on-error", "exit-timeout"}:
        raise Refused(f"{' '.join(given.setopt)}: not modelled by this stand-in")
    cores = -(-given.ntasks // given.nodes) * given.cores_per_task
    if given.nodes > len(job["nodes"]) or cores > book.policy["cores"]:
        fault = f"need {given.nodes} node(s) with {cores} cores each, only 0 eligible"
        raise Refused(f"0.029s: job.exception type=alloc severity=0 unsatisfiable request: {fault}")
    return _mpiexec(book, job, given)


def _current(book: Book) -> Job:
    job: Job | None = book.read()["jobs"].get(os.environ.get("FLUX_ENCLOSING_ID", "ƒ")[1:])
    if job is None:
        raise Refused("this stand-in runs tasks in jobs only")
    return job


def _mpiexec(book: Book, job: Job, given: Any) -> int:
    """Run mpiexec. hydra's launcher `fork` starts every "host" here; addresses instead of names avoid name servers."""
    import subprocess

    program = given.command[given.command[:1] == ["--"] :]
    named, hosts, blocks, rest = batch.may_rename(), [], list[str](), given.ntasks
    for place, node in enumerate(job["nodes"][: given.nodes]):
        ranks = -(-rest // (given.nodes - place))
        rest -= ranks
        hosts.append(f"127.0.1.{1 + place}:{ranks}")
        variables = [f"FLUX_JOB_NNODES={given.nodes}", f"FLUX_JOB_SIZE={given.ntasks}"]
        host = batch.as_host(node) if named else []
        blocks += [*[":"] * bool(place), "-n", str(ranks), *host, "env", *variables, *program]
    hydra = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    child = subprocess.Popen([hydra, "-launcher", "fork", "-hosts", ",".join(hosts), *blocks])
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while child.poll() is None:
        time.sleep(0.05)
        if node := _lost(book, job):
            child.kill()
            print(f"job.exception type=exec severity=0 node failure on {node} (rank 1)", file=sys.stderr)
            return 1
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


_FIELD = re.compile(r"\{([\w.]+)\}")


def _formatted(template: str, fields: dict[str, Any]) -> str:
    if unknown := [name for name in _FIELD.findall(template) if name not in fields]:
        raise Refused(f"Error in user format: Unknown format field: {unknown[0]}")
    return _FIELD.sub(lambda match: str(fields[match[1]]), template)


def jobs(book: Book, arguments: list[str]) -> int:
    """Print the named jobs, or the active ones; -a: all. The newest job comes first."""
    parser = argparse.ArgumentParser("flux jobs", add_help=False, allow_abbrev=False)
    for flag in ("-a", "-n"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-c", default="1000")
    parser.add_argument("--name")
    parser.add_argument("-o", required=True)
    parser.add_argument("ids", nargs="*")
    given, known = _parse(parser, arguments), book.read()["jobs"]
    for name in given.ids:
        if not re.fullmatch(rf"[ƒf][{_DIGITS}]+", name):
            raise Refused(f"usage: flux jobs\nflux-jobs: error: argument JOBID: invalid JobID value: {name!r}", 2)
        if name[1:] not in known:
            print(f"JobID {name} unknown", file=sys.stderr)
    chosen = [known[name[1:]] for name in given.ids if name[1:] in known]
    if not given.ids:
        active = [job for job in known.values() if given.a or job["status"] not in _ENDED]
        chosen = [job for job in reversed(active) if given.name in {None, job["name"]}]
    for job in chosen:
        _print(_formatted(given.o, _fields(job)))
    return 1 if given.ids and not chosen else 0


def _fields(job: Job) -> dict[str, Any]:
    waits = {
        "DEPEND": "depends:" + ",".join(
            [f"begin@{time.strftime('%H:%M:%S', time.localtime(job['begins']))}"] * (time.time() < job["begins"])
            + [f"{'after-success' if kind == 'afterok' else 'after-finish'}=ƒ{name}" for kind, name in job["depend"]]
        ),
        "SCHED": "held" if job["urgency"] == 0 else "",
    }  # fmt: skip
    return {
        "id.f58plain": f"f{job['key']}", "status": job["status"], "name": job["name"], "queue": job["queue"],
        "nnodes": job["nnodes"], "duration": job["duration"], "bank": job["bank"],
        "exception.type": job.get("type", ""), "exception.note": job.get("note", ""),
        "returncode": job.get("returncode", ""), "contextual_info": waits.get(job["status"], _ranged(job["nodes"])),
    }  # fmt: skip


def _ranged(nodes: list[str]) -> str:
    """Return n1, or n[1-2]."""
    return f"n[{nodes[0][1:]}-{nodes[-1][1:]}]" if len(nodes) > 1 else "".join(nodes)


def _job(content: Content, name: str, fault: str) -> Job:
    job: Job | None = content["jobs"].get(name[1:])
    if job is None:
        raise Refused(fault)
    return job


def cancel(book: Book, names: list[str]) -> int:
    with book.change() as content:
        for name in names:
            job = _job(content, name, f"ƒ{name[1:]}: unknown job id")
            if job["status"] in _ENDED:
                raise Refused(f"ƒ{name[1:]}: job is inactive")
            job |= {"canceled": True} if job["status"] == "RUN" else _ends("cancel", "", "CANCELED", -128)
    return 0


def timeleft(book: Book, _arguments: list[str]) -> int:
    """Print the seconds that the job around this command has left."""
    job = _current(book)
    print(max(0, int(job["t_run"] + job["duration"] - time.time())) if job["duration"] else _UNLIMITED)
    return 0


def update(book: Book, arguments: list[str]) -> int:
    name, change = arguments
    match = re.fullmatch(r"duration=\+(.+)", change)
    if match is None:
        raise Refused(f"{change}: not modelled by this stand-in")
    with book.change() as content:
        _job(content, name, "'NoneType' object is not subscriptable")["duration"] += _seconds(match[1])
    return 0


def purge(book: Book, arguments: list[str]) -> int:
    if arguments != ["-f", "--num-limit=0"]:
        raise Refused("flux job purge: not modelled by this stand-in")
    with book.change() as content:
        before = len(content["jobs"])
        content["jobs"] = {name: job for name, job in content["jobs"].items() if job["status"] not in _ENDED}
        print(f"purged {before - len(content['jobs'])} inactive jobs, 0 remaining")
    return 0


def queue_list(book: Book, arguments: list[str]) -> int:
    if arguments[:2] != ["-n", "-o"] or len(arguments) != 3:
        raise Refused("flux queue list: not modelled by this stand-in")
    disabled, default = book.read().get("disabled", {}), next(iter(book.policy["queues"]), None)
    for name, queue in book.policy["queues"].items():
        fields = {
            "queue": name, "queuem": f"{name}*" if name == default else name, "started": "✔",
            "enabled": "✗" if name in disabled else "✔", "limits.max.nnodes": queue.get("nnodes", "inf"),
            "limits.timelimit": float(queue.get("duration", "inf")),
        }  # fmt: skip
        _print(_formatted(arguments[2], fields))
    return 0


def queue_switch(is_enabled: bool) -> Callable[[Book, list[str]], int]:
    def switch(book: Book, arguments: list[str]) -> int:
        name = arguments[arguments.index("-q") + 1]
        reason = arguments[arguments.index("-m") + 1] if "-m" in arguments else ""
        with book.change() as content:
            disabled = content.setdefault("disabled", {})
            disabled.pop(name, None) if is_enabled else disabled.update({name: reason})
        print(f"{name}: Job submission is {'enabled' if is_enabled else f'disabled: {reason}'}")
        return 0

    return switch


def resource_list(book: Book, arguments: list[str]) -> int:
    if arguments[:2] != ["-n", "-o"] or len(arguments) != 3:
        raise Refused("flux resource list: not modelled by this stand-in")
    taken = {node for job in book.read()["jobs"].values() if job["status"] == "RUN" for node in job["nodes"]}
    for state in ("free", "allocated", "down"):
        for name, queue in book.policy["queues"].items():
            nodes = [node for node in queue["nodes"] if state != "down" and (node in taken) == (state == "allocated")]
            cores = len(nodes) * book.policy["cores"]
            _print(_formatted(arguments[2], {"state": state, "queue": name, "nnodes": len(nodes), "ncores": cores}))
    return 0


def getattr_(_book: Book, arguments: list[str]) -> int:
    if arguments != ["version"]:
        raise Refused("flux getattr: not modelled by this stand-in")
    print(VERSION)
    return 0


COMMANDS: dict[str, Callable[[Book, list[str]], int]] = {
    "batch": batch_, "run": run, "jobs": jobs, "cancel": cancel, "update": update, "job timeleft": timeleft,
    "job purge": purge, "queue list": queue_list, "queue enable": queue_switch(True),
    "queue disable": queue_switch(False), "resource list": resource_list, "getattr": getattr_,
}  # fmt: skip
