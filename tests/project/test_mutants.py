"""Faults that are put into modules change them, one expression at a time."""

import pytest

from dlio_hpc.results import intervals
from tests.mutants import __main__ as program
from tests.mutants import operators, trials
from tests.mutants.targets import EQUIVALENT, TARGETS
from tests.support.places import ROOT

_SOURCE = '''"""Text 1."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    limit = 2
def f(values: "list[1]", last: int = 0) -> "dict[2]":
    total = 0
    for value in values:
        total += value
    return sum(values) if not values or values[-1] < 3 else total * 2
'''


def test_each_operator_changes_one_place() -> None:
    made = {(mutant.line, mutant.operator, mutant.before, mutant.after) for mutant in operators.mutants(_SOURCE)}
    assert made == {
        (5, "number", "0", "(1)"),
        (6, "number", "0", "(1)"),
        (8, "sum", "total += value", "total = value"),
        (9, "call", "sum(values)", "(max(values))"),
        (9, "truth", "not values", "(values)"),
        (9, "truth", "not values or values[-1] < 3", "(not values and values[-1] < 3)"),
        (9, "end", "values[-1]", "(values[0])"),
        (9, "number", "1", "(2)"),
        (9, "comparison", "values[-1] < 3", "(values[-1] <= 3)"),
        (9, "number", "3", "(4)"),
        (9, "arithmetic", "total * 2", "(total / 2)"),
        (9, "number", "2", "(3)"),
    }


def test_a_mutant_is_a_module() -> None:
    for name in TARGETS:
        module = ROOT / "dlio_hpc" / f"{name}.py"
        source = module.read_text()
        for _, mutant in program.drawn([module], 5, 1):
            changed = operators.changed(source, mutant)
            compile(changed, name, "exec")
            assert changed != source


def test_the_draw_depends_on_the_seed_alone() -> None:
    modules = [ROOT / "dlio_hpc" / f"{name}.py" for name in TARGETS]
    assert program.drawn(modules, 60, 1) == program.drawn(modules, 60, 1) != program.drawn(modules, 60, 2)
    assert len(program.drawn(modules, 61, 1)) == 61


def test_a_mutant_that_changes_nothing_is_one_of_its_module() -> None:
    for name, line, after in EQUIVALENT:
        module = ROOT / "dlio_hpc" / f"{name}.py"
        lines = module.read_text().splitlines()
        mutant, *_ = [
            mutant
            for mutant in operators.mutants(module.read_text())
            if (lines[mutant.line - 1].strip(), mutant.after) == (line, after)
        ]
        assert program.Trial(module, mutant, "survived").is_equivalent
        assert not program.Trial(module, mutant._replace(after="(0)"), "survived").is_equivalent


@pytest.mark.job
def test_tests_kill_a_mutant_and_let_the_module_live(tmp_path_factory: pytest.TempPathFactory) -> None:
    tree = trials.copy_of_tree(tmp_path_factory.mktemp("tree"))
    module = ROOT / "dlio_hpc/results/intervals.py"
    assert intervals.__file__ == str(module)
    source, tests = module.read_text(), ["tests/results/test_intervals.py"]
    assert trials.outcome(tree, module, source, tests) == "survived"
    assert trials.outcome(tree, module, "raise ValueError\n", tests) == "killed"
    assert trials.outcome(tree, module, source, []) == "not executed"
    assert (tree / "dlio_hpc/results/intervals.py").read_text() == source
