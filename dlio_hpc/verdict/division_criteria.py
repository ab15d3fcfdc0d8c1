"""Rules on the settings of a workload: keys that must have the shipped values, and the divisions of a benchmark, such
as closed and open.
"""

from dlio_hpc.verdict.criterion_result import Check
from dlio_hpc.verdict.criterion_rule import Rule, RuleKind, shipped_settings, value_at
from dlio_hpc.verdict.history_entry import changes


def _as_shipped(rule: Rule) -> Check:
    """Compare the settings of the group with the settings of the shipped workload of the same name."""
    measured, shipped_workload = rule.group.runs[0].workload, shipped_settings(rule.group.key.workload)
    if shipped_workload is None or measured is None:
        return rule.unknown(f"no shipped workload {rule.group.key.workload!r}")
    differences = [
        difference
        for key in rule.criterion.unmodified
        for difference in changes(value_at(shipped_workload, key), value_at(measured, key), key)
    ]
    return rule.check(not differences, f"shipped / measured: {'; '.join(differences)}" if differences else "as shipped")


def _division(rule: Rule) -> Check:
    """State the strictest division that permits all differences from the shipped workload."""
    measured, shipped_workload = rule.group.runs[0].workload, shipped_settings(rule.group.key.workload)
    if shipped_workload is None or measured is None:
        return rule.unknown(f"no shipped workload {rule.group.key.workload!r}")
    differences = changes(shipped_workload, measured)
    allowed: tuple[str, ...] = ()
    left, reason = differences, ""
    for division, keys in rule.criterion.divisions.items():
        allowed = (*allowed, *keys)
        if not _forbidden(differences, allowed):
            return rule.check(True, f"division {division}{reason}")
        left = _forbidden(differences, allowed)
        reason = f", because of {'; '.join(left)}"
    divisions = list(rule.criterion.divisions)
    lead = f"the division {divisions[0]} does not let" if len(divisions) == 1 else "no division lets"
    return rule.check(False, f"{lead} these keys change, shipped / measured: {'; '.join(left)}")


def _forbidden(differences: list[str], allowed: tuple[str, ...]) -> list[str]:
    """Return the differences whose keys may not differ. A permitted key includes the keys below it."""
    return [line for line in differences if not any(f"{line.split(': ')[0]}.".startswith(f"{key}.") for key in allowed)]


# Kinds of rules, by YAML key, in the order of the checks.
RULES: dict[str, RuleKind] = {
    "unmodified": RuleKind("{} as shipped", _as_shipped),
    "divisions": RuleKind("a workload of the division {}", _division),
}
