"""Lines that a job printed, and setup lines that failed."""

import pytest

from dlio_hpc.batch import job_output, setup_failures
from dlio_hpc.batch.setup_failures import SetupFailure


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["Traceback (most recent call last):", '  File "x", line 1', "ImportError: numpy"], "ImportError: numpy"),
        (["job.sh: line 9: cannot fork", "srun: error: n1: task 0: Exited"], "job.sh: line 9: cannot fork"),
        (["[mpiexec@n1] match_arg: unrecognized argument", "[mpiexec@n1] main: error"],
         "[mpiexec@n1] match_arg: unrecognized argument"),
        (["ulimit: too low", "===================", "=   BAD TERMINATION", "=   EXIT CODE: 9"], "ulimit: too low"),
        ([], ""),
    ],
)  # fmt: skip
def test_the_line_that_tells_most_is_neither_a_launchers_nor_a_frame(lines: list[str], expected: str) -> None:
    assert job_output.telling_line(lines) == expected


def test_setup_failures_are_decoded_without_repetitions() -> None:
    content = b"127 module load x\n1 cd /a b\n1 cd /a b\nnot a row\n"
    assert setup_failures.decode(content) == (SetupFailure(127, "module load x"), SetupFailure(1, "cd /a b"))
