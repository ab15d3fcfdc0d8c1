"""Every verb meets chosen faults of the file system: completed work is right, and a refusal gives its reason."""

from collections.abc import Iterator

import pytest

from tests.support.faults import campaign, table
from tests.support.faults.campaign import Campaign
from tests.support.faults.fault import KINDS, Fault
from tests.support.faults.library import compiler
from tests.support.faults.oracle import FAILED

pytestmark = [
    pytest.mark.job,
    pytest.mark.skipif(compiler() is None, reason="there is no C compiler for the library of faults"),
]
_BY_NAME = {operation.name: operation for operation in campaign.OPERATIONS}
# A quarter, a half and three quarters of the way through the calls of the kind.
_AT = (1, 2, 3)
_CHOSEN = (
    ("generate npz", "ENOSPC EIO killed short"), ("generate hdf5 chunked", "ENOSPC ESTALE"),
    ("read npz framework", "EIO ESTALE short"), ("read hdf5 framework", "EIO EACCES"), ("read raw", "ESTALE killed"),
    ("read tfrecord", "EIO"), ("checkpoint", "ENOSPC short"), ("merge", "ENOSPC EIO EDQUOT killed"),
    ("submit", "ENOSPC"), ("collect", "EIO ENOSPC killed short"), ("archive verify", "EIO"),
    ("archive extract", "ENOSPC EIO"), ("history", "EIO EDQUOT"), ("history --rebuild", "killed"),
    ("status", "ESTALE"), ("report of a directory", "EIO"), ("datasets verify", "EIO"), ("datasets remove", "killed"),
)  # fmt: skip


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    made = Campaign(tmp_path_factory.mktemp("faults"))
    yield made
    made.close()


@pytest.mark.parametrize(("name", "kinds"), _CHOSEN)
def test_faults_are_told_and_lose_nothing(
    met: Campaign, name: str, kinds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    operation, hit = _BY_NAME[name], 0
    for kind in (KINDS[word] for word in kinds.split()):
        calls = met.calls(operation, kind)
        for nth in dict.fromkeys(max(1, calls * at // 4) for at in _AT[:: 2 if name == "submit" else 1]):
            case = met.meet(operation, Fault(kind, nth, lasting=kind.name in {"ENOSPC", "EDQUOT"}))
            if case is None:
                continue
            hit += 1
            if case.verdict.outcome == FAILED:
                table.tell(case)
                pytest.fail(capsys.readouterr().out)
    assert hit
