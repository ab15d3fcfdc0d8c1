"""Outcomes of an import, one for each key."""

from typing import Any, Literal, NamedTuple

# mapped: a key of dlio-hpc has the same effect. approximated: a key of dlio-hpc has nearly the same effect. ignored: no
# effect on the requests of a run. left out: requests of dlio_benchmark that the workload does not make.
Fate = Literal["mapped", "approximated", "ignored", "left out"]


class Fact(NamedTuple):
    """Outcome of the import for a key of dlio_benchmark. target: key of dlio-hpc that the import sets; "" if it sets
    none. value: value of this key. text: explanation, which may be empty. misspelt: whether dlio_benchmark has no such
    key, but one with a similar name.
    """

    key: str
    fate: Fate
    text: str = ""
    target: str = ""
    value: Any = None
    misspelt: bool = False
