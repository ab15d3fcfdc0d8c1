"""Plans of single jobs, without the command line."""

from pathlib import Path
from typing import NamedTuple

from dlio_hpc import document, packing, plan, study, units
from dlio_hpc.plan import Generate, Plan
from dlio_hpc.site import Site
from dlio_hpc.workload import Draft, Workload


class Request(NamedTuple):
    """What is asked for beyond workload and site."""

    runs: Path
    data: Path | None = None
    archive: Path | None = None
    nodes: int = 1
    ranks_per_node: int | None = None
    walltime: units.Walltime | None = None
    account: str | None = None
    queue: str | None = None
    job_options: tuple[str, ...] = ()
    repeat: int = 1
    warmup: int = 0
    dataset_size: int | None = None
    generate: Generate = "auto"
    darshan: bool | None = None
    tf_profile: bool = False


def plans(workload: Workload, site: Site, request: Request) -> tuple[Plan, ...]:
    """Of a submission without a sweep."""
    asked = study.Asked(
        Draft(document.plain(workload), "test"),
        site,
        nodes=(request.nodes,),
        ranks_per_node=() if request.ranks_per_node is None else (request.ranks_per_node,),
        dataset_size=request.dataset_size,
    )
    kept = {name: value for name, value in request._asdict().items() if name in study.Request.__struct_fields__}
    return packing.plans(study.make(plan.job_name(workload.name), [asked], study.Request(**kept)))


def make(workload: Workload, site: Site, request: Request) -> Plan:
    """Its only job."""
    (made,) = plans(workload, site, request)
    return made
