"""Trial of a new site profile. It determines how the launcher of the site can start ranks on the other
nodes of a job.
"""

import re
import tempfile
from pathlib import Path

from dlio_hpc.base.errors import about
from dlio_hpc.batch import launchers, preflight
from dlio_hpc.config import site, workload
from dlio_hpc.plan import packing
from dlio_hpc.plan.plan import Plan
from dlio_hpc.plan.study import JobRequest, PartRequest

_PATIENCE_S = 300.0
_LINE = re.compile(r"^(  remote: )(\S+)( +# .*; )not tried$", re.MULTILINE)


def profile(text: str, account: str | None, queue: str | None) -> str:
    """Try the remote start methods of the launcher in trial jobs, and return a site profile. The profile has the first
    of these methods with which ranks on two nodes can communicate. If no method works, or if no trial job started, a
    comment in the profile says so. If the launcher has only one method, return `text` unchanged. The trial jobs run in
    a temporary folder below the current folder. text: the site profile as it is before the trial.
    """
    line = _LINE.search(text)
    if line is None:
        return text
    with tempfile.TemporaryDirectory(prefix=".dlio-hpc-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        path = Path(folder, "site.yaml")
        with about(path):
            path.write_text(text, encoding="utf-8")
        made = _plan(site.load(str(path)), Path(folder), account, queue)
        ways = (made.site.launcher.remote, *launchers.remotes(made.site))  # the method of the profile comes first
        way, outcome = preflight.working_remote(made, ways, (), _PATIENCE_S)
    return _LINE.sub(lambda match: f"{match[1]}{way or match[2]}{match[3]}{outcome}", text)


def _plan(profile_site: site.Site, folder: Path, account: str | None, queue: str | None) -> Plan:
    asked = PartRequest(workload.draft("null", ("name=trial",)), profile_site, nodes=(2,), ranks_per_node=(2,))
    return packing.single_job(asked, JobRequest(runs=folder, data=folder, account=account, queue=queue))
