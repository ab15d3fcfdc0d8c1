"""Banner of a characterization: the confidence in the values of the derived workload."""

from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.reports.banner import Banner


def of_character(character: Character) -> Banner:
    """Return the banner. If there are signs that the program is not a training program, the banner states the first
    sign. Otherwise, the banner states how many values are known, and with which confidence.
    """
    keys, against = character.derived.keys, character.derived.against
    if against:
        return Banner(
            "inconclusive" if keys else "not measured",
            f"The program's reads do not look like those of a training program: {against[0]}.",
        )
    weak = {level: sum(estimate.confidence == level for estimate in keys.values()) for level in ("low", "unknown")}
    known = f"{len(keys) - sum(weak.values())} of {len(keys)} values are known with high or medium confidence"
    if any(weak.values()):
        return Banner(
            "inconclusive",
            f"{known}, {weak['low']} with low confidence; {weak['unknown']} are unknown and have defaults.",
        )
    return Banner("good", f"{known}.")
