"""Plans of single jobs, without the command line."""

from dlio_hpc.base import serialization
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import Draft, Workload
from dlio_hpc.plan import packing, plan, study
from dlio_hpc.plan.plan import Plan


class Request(study.JobRequest, frozen=True):
    """The settings of a job on one number of nodes, apart from workload and site."""

    nodes: int = 1
    ranks_per_node: int | None = None
    dataset_size: int | None = None


def plans(workload: Workload, site: Site, request: Request) -> tuple[Plan, ...]:
    """Return the plans of a submission without a sweep."""
    asked = study.PartRequest(
        Draft(serialization.plain(workload), "test"),
        site,
        nodes=(request.nodes,),
        ranks_per_node=() if request.ranks_per_node is None else (request.ranks_per_node,),
        dataset_size=request.dataset_size,
    )
    kept = {name: getattr(request, name) for name in study.JobRequest.__struct_fields__}
    return packing.plans(study.make(plan.job_name(workload.name), [asked], study.JobRequest(**kept)))


def make(workload: Workload, site: Site, request: Request) -> Plan:
    """Return the plan of a submission with a single job."""
    (made,) = plans(workload, site, request)
    return made
