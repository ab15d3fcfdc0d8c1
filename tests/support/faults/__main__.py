"""make faults: inject faults of file systems into every verb, and print the table of the outcomes."""

import argparse
import sys
import time
from collections.abc import Iterator

from tests.support.faults import campaign, table
from tests.support.faults.fault import KINDS, Fault
from tests.support.faults.library import compiler
from tests.support.faults.oracle import FAILED


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="faults (default: 2000)")
    parser.add_argument("--seed", type=int, default=1, help="of which faults come where (default: 1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="the operation of this name, or all with this in it")
    parser.add_argument("--kind", choices=list(KINDS), help="with --nth and --only: this fault alone")
    parser.add_argument("--nth", type=int, default=1, help="the call that it meets")
    parser.add_argument("--lasting", action="store_true", help="it meets all later calls, too")
    parser.add_argument(
        "--fresh", action="store_true", help="every command is a process from its start, none is forked"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further fault after that time")
    options = parser.parse_args()
    if compiler() is None:
        print("skipped: there is no C compiler (cc, or what CC names) for the library of faults")
        return
    operations = [operation for operation in campaign.OPERATIONS if options.only == operation.name]
    operations = operations or [operation for operation in campaign.OPERATIONS if options.only in operation.name]
    folder = campaign.folder()
    started = time.perf_counter()
    cases: list[campaign.Case] = []
    stream: Iterator[campaign.Case]
    try:
        met = campaign.Campaign(folder, forks=not options.fresh)
        if options.kind:
            fault = Fault(KINDS[options.kind], options.nth, options.lasting)
            stream = (case for operation in operations if (case := met.meet(operation, fault)) is not None)
        else:
            stream = campaign.drawn(met, operations, options.count, options.seed)
        for case in stream:
            cases.append(case)
            if case.verdict.outcome == FAILED or options.kind:
                table.tell(case)
            if not len(cases) % 50:
                print(f"{len(cases)} faults, {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
            if time.perf_counter() - started > 60 * options.minutes:
                break
        met.close()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        campaign.remove(folder)
    table.show(cases, options.seed, time.perf_counter() - started)
    sys.exit(any(case.verdict.outcome == FAILED for case in cases))


if __name__ == "__main__":
    main()
