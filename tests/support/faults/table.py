"""The table of a campaign, as Markdown: operations and kinds of faults, with their outcomes."""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.support.faults.campaign import Case
from tests.support.faults.fault import KINDS
from tests.support.faults.oracle import COMPLETED, FAILED, REFUSED


def tell(case: Case) -> None:
    """Print a case in full, with the command that repeats it."""
    fault = case.fault
    lasting = " --lasting" if fault.lasting else ""
    print(f"{case.verdict.outcome.upper()}: {case.operation.name}, {fault}: {case.function} {case.path}")
    print(f"  {case.verdict.why}")
    print(
        f"  python -m tests.support.faults --only {shlex.quote(case.operation.name)} --kind {fault.kind.name} "
        f"--nth {fault.nth}{lasting}"
    )
    print("\n".join(f"    | {line}" for line in case.out.strip().splitlines()[-12:]), flush=True)


def show(cases: Sequence[Case], seed: int, seconds: float) -> None:
    """Print the table. A cell has the numbers completed + refused, and failures after an exclamation mark."""
    print(f"\n| operation | faults | {' | '.join(KINDS)} | completed | refused | failed |")
    print("|---|" + "---:|" * (len(KINDS) + 4))
    for name in dict.fromkeys(case.operation.name for case in sorted(cases, key=lambda case: case.operation.name)):
        _row(name, [case for case in cases if case.operation.name == name])
    _row("**all**", cases)
    slowest = max((case.seconds for case in cases), default=0.0)
    print(f"\n{len(cases)} faults, seed {seed}, {seconds:.0f} s; the slowest took {slowest:.1f} s.")


def _row(name: str, cases: Sequence[Case]) -> None:
    cells = [_cell(case for case in cases if case.fault.kind is kind) for kind in KINDS.values()]
    counts = _counts(cases)
    totals = [str(counts[outcome]) for outcome in (COMPLETED, REFUSED, FAILED)]
    print(f"| {name} | {len(cases)} | {' | '.join(cells)} | {' | '.join(totals)} |")


def _cell(cases: Iterable[Case]) -> str:
    counts = _counts(cases)
    if not counts:
        return ""
    failed = f" !{counts[FAILED]}" if counts[FAILED] else ""
    return f"{counts[COMPLETED]}+{counts[REFUSED]}{failed}"


def _counts(cases: Iterable[Case]) -> Counter[str]:
    return Counter(case.verdict.outcome for case in cases)
