"""Paths of the repository, of the tests, and of the Darshan logs that tests read."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
LOGS = TESTS / "logs"
