"""A new site profile tried out: by which way its launcher reaches a job's other nodes."""

import re
import tempfile
from pathlib import Path

from msgspec.structs import replace

from dlio_hpc import packing, site, workload
from dlio_hpc.batch import launchers, preflight
from dlio_hpc.errors import DlioError
from dlio_hpc.plan import Plan
from dlio_hpc.study import Asked, Request

_PATIENCE_S = 300.0
_LINE = re.compile(r"^(  remote: )(\S+)( +# .*; )not tried$", re.MULTILINE)


def profile(text: str, account: str | None, queue: str | None) -> str:
    """The profile `text` with the way between nodes by which ranks on two nodes met, or the statement that they met by
    none or that no job started. A profile whose launcher has no choice stays as it is. The jobs lie in the current
    folder and are removed.
    """
    line = _LINE.search(text)
    if line is None:
        return text
    with tempfile.TemporaryDirectory(prefix=".dlio-hpc-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        path = Path(folder, "site.yaml")
        path.write_text(text, encoding="utf-8")
        way, outcome = _way(_plan(site.load(str(path)), Path(folder), account, queue))
    return _LINE.sub(lambda match: f"{match[1]}{way or match[2]}{match[3]}{outcome}", text)


def _plan(found: site.Site, folder: Path, account: str | None, queue: str | None) -> Plan:
    asked = Asked(workload.draft("null", ("name=trial",)), found, nodes=(2,), ranks_per_node=(2,))
    return packing.one(asked, Request(runs=folder, data=folder, account=account, queue=queue))


def _way(made: Plan) -> tuple[site.Remote | None, str]:
    """The way that works, the profile's own first, and what was tried in words."""
    for way in (made.site.launcher.remote, *launchers.remotes(made.site)):
        tried = replace(made, site=replace(made.site, launcher=replace(made.site.launcher, remote=way)))
        try:
            findings = list(preflight.launched(tried, (), _PATIENCE_S))
        except DlioError:
            continue
        if any(finding.verdict == "ok" for finding in findings):
            return way, "tried with two nodes"
        return None, f"not tried: {findings[0].text}"  # the other ways would wait as long
    return None, "tried, none works"
