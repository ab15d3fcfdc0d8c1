"""python -m tests.mutants [--count N] [--seed N] [MODULE...]: print how many mutants the tests kill, and the others."""

import argparse
import queue
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.mutants import line_map, operators, trials
from tests.mutants.operators import Mutant
from tests.mutants.targets import EQUIVALENT, TARGETS
from tests.mutants.trials import Outcome
from tests.support.places import ROOT


class Trial(NamedTuple):
    """A mutant of a module, and what the tests make of it."""

    module: Path
    mutant: Mutant
    outcome: Outcome

    @property
    def is_equivalent(self) -> bool:
        name = self.module.relative_to(ROOT / "dlio_hpc").with_suffix("").as_posix()
        line = self.module.read_text().splitlines()[self.mutant.line - 1].strip()
        return (name, line, self.mutant.after) in EQUIVALENT

    @property
    def text(self) -> str:
        name = self.module.relative_to(ROOT / "dlio_hpc")
        return f"{name}:{self.mutant.line} {self.mutant.operator}: {self.mutant.before} -> {self.mutant.after}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=180, help="number of mutants, of all modules together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("modules", nargs="*", help="such as core/merge; default: all targets")
    asked = parser.parse_args()
    modules = [ROOT / "dlio_hpc" / f"{name}.py" for name in asked.modules or TARGETS]
    with tempfile.TemporaryDirectory() as name:
        lines = line_map.of_modules(modules, Path(name))
        show(tried(drawn(modules, asked.count, asked.seed), lines, Path(name)))


def drawn(modules: Sequence[Path], count: int, seed: int) -> list[tuple[Path, Mutant]]:
    """Return mutants drawn with a seed, about the same number of each module."""
    chosen: list[tuple[Path, Mutant]] = []
    for place, module in enumerate(modules):
        possible = operators.mutants(module.read_text())
        share = (place + 1) * count // len(modules) - place * count // len(modules)
        picked = random.Random(f"{seed} {module.name}").sample(possible, min(share, len(possible)))
        chosen += [(module, mutant) for mutant in picked]
    return chosen


def tried(mutants: Sequence[tuple[Path, Mutant]], lines: dict[Path, line_map.Lines], folder: Path) -> list[Trial]:
    """Try the mutants on two cores, and return the trials in the order of the mutants."""
    trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for number in range(2):
        trees.put(trials.copy_of_tree(folder / f"tree{number}"))

    def trial(module: Path, mutant: Mutant) -> Trial:
        tree, source = trees.get(), operators.changed(module.read_text(), mutant)
        outcome = trials.outcome(tree, module, source, lines[module].get(mutant.line, []))
        trees.put(tree)
        print("." if outcome == "killed" else "s", end="", flush=True)
        return Trial(module, mutant, outcome)

    with ThreadPoolExecutor(2) as workers:
        made = list(workers.map(trial, *zip(*mutants, strict=True)))
    print()
    return made


def show(made: Sequence[Trial]) -> None:
    """Print the rate, the rate of each operator, and the survivors. Mutants that change nothing are left out."""
    counted = [trial for trial in made if trial.outcome == "killed" or not trial.is_equivalent]
    killed = Counter(trial.mutant.operator for trial in counted if trial.outcome == "killed")
    whole = Counter(trial.mutant.operator for trial in counted)
    for trial in counted:
        if trial.outcome != "killed":
            print(f"{trial.outcome}: {trial.text}")
    for operator, count in sorted(whole.items()):
        print(f"{operator}: {killed[operator]} of {count} killed")
    total = sum(whole.values())
    print(f"{sum(killed.values())} of {total} mutants are killed ({100 * sum(killed.values()) / max(total, 1):.0f} %)")


if __name__ == "__main__":
    main()
