"""Commands that job.sh runs before and after the ranks: python -m dlio_hpc.darshan probe PLAN.json LOG -- COMMAND,
judge PLAN.json --run N, or excluded PLAN.json.
"""

import argparse
import sys
from pathlib import Path

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import InvalidRun, Unexpected, classified, exit_on_error
from dlio_hpc.darshan import setup
from dlio_hpc.darshan.preload_probe import probe
from dlio_hpc.darshan.run_check import judge
from dlio_hpc.darshan.verdict_file import LogVerdict
from dlio_hpc.files import rundir
from dlio_hpc.plan import darshan_needs
from dlio_hpc.plan.plan import Plan, load


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dlio_hpc.darshan", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    probing = verbs.add_parser(
        "probe", help="start two ranks under libdarshan; exit code 1 if they leave no usable log"
    )
    probing.add_argument("plan", type=Path, metavar="PLAN.json")
    probing.add_argument("log", metavar="LOG", help="name of the log in the job's Darshan folder")
    probing.add_argument("command", nargs="+", metavar="COMMAND")
    judging = verbs.add_parser(
        "judge", help="compare the Darshan log of a run with the benchmark's own counts and with the plan"
    )
    judging.add_argument("plan", type=Path, metavar="PLAN.json")
    judging.add_argument("--run", type=int, required=True, metavar="N")
    excluding = verbs.add_parser(
        "excluded",
        help="print the folders that a libdarshan before 3.4 must not record; print nothing for later versions",
    )
    excluding.add_argument("plan", type=Path, metavar="PLAN.json")
    options = parser.parse_args()
    with exit_on_error():
        plan, _ = load(options.plan)
        directory = options.plan.resolve().parent
        if options.verb == "probe":
            sys.exit(_probe(directory, plan, options.log, options.command))
        if options.verb == "excluded":
            _print_excluded(plan)
            return
        _judge(directory, plan, options.run)


def _print_excluded(plan: Plan) -> None:
    if darshan_needs.reads_configuration(str(plan.site.darshan)) is False:
        print(f"Darshan: {darshan_needs.EARLY}", file=sys.stderr)
        print(setup.excluded(plan, setup.python_folders()))


def _probe(directory: Path, plan: Plan, log: str, command: list[str]) -> int:
    folder = directory / rundir.DARSHAN
    result = probe(str(plan.site.darshan), folder / log, command, min(2, plan.ranks))
    rundir.write(folder / setup.PROBE, serialization.encode(result))
    if result.why_not is None:
        print(f"Darshan {result.version} records the ranks ({result.library})")
        return 0
    print(f"Darshan is not used: {result.why_not}")
    return 1


def _judge(directory: Path, plan: Plan, number: int) -> None:
    run = plan.runs[number]
    folder = rundir.run_directory(directory, run.number, run.name) / rundir.DARSHAN
    try:
        verdict = judge(directory, plan, run)
    except Exception as fault:
        if isinstance(known := classified(fault), Unexpected):  # the measurement is valid without a log, too
            rundir.write(
                folder / setup.VERDICT, serialization.encode(LogVerdict(None, f"the log could not be checked: {known}"))
            )
        raise
    rundir.write(folder / setup.VERDICT, serialization.encode(verdict))
    for reason in verdict.faults:
        print(f"Darshan's log of {rundir.run_name(run.number, run.name)}: {reason.name}: {reason.text}")
    if verdict.why_not is not None:
        print(f"no Darshan log: {verdict.why_not}")
    if verdict.differences:
        raise InvalidRun("; ".join(verdict.differences))


if __name__ == "__main__":
    main()
