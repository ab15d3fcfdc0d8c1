"""Exit codes of the commands, for help texts and man pages. docs/reference/exit-codes.md explains them."""

EXIT_CODES: dict[int, str] = {
    0: "success",
    1: "regression, failed criterion or check",
    2: "usage or configuration",
    3: "invalid run or archive",
    4: "cached",
    5: "inconclusive",
    6: "infrastructure",
    7: "incomplete",
    70: "a bug in dlio-hpc",
}


def sentence() -> str:
    """Return all codes with their meanings as one sentence."""
    return f"Exit codes: {', '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}."
