"""dlio-hpc datasize: print the smallest dataset that MLPerf Storage allows."""

import click
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import counted
from dlio_hpc.cli import console
from dlio_hpc.cli.verbs import JSON, SETTINGS, argument, distinct, option
from dlio_hpc.config import workload as workloads
from dlio_hpc.dataset import minimum_size
from dlio_hpc.dataset.minimum_size import STEPS, TIMES_MEMORY


@click.command(context_settings=SETTINGS)
@argument("workload")
@option("--nodes", "-N", type=click.IntRange(1), default=1, show_default=True, help="Number of nodes.")
@option("--ppn", type=click.IntRange(1), required=True, help="Number of ranks per node (emulated accelerators).")
@option("--memory", required=True, metavar="SIZE", help="Memory of a node, such as 512GiB.")
@option(
    "--set",
    "-S",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=distinct,
    help="Change a key of the workload.",
)
@JSON
def datasize(workload: str, nodes: int, ppn: int, memory: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Print the smallest dataset that MLPerf Storage allows for WORKLOAD: at least 500 steps per epoch, and five times
    the memory of all nodes. Nothing is generated.

    Example: dlio-hpc datasize unet3d_b200 -N 8 --ppn 8 --memory 512GiB
    """
    try:
        size = units.large_size(memory)
    except ValueError as fault:
        raise ConfigError(f"--memory {memory}: {fault}") from fault
    if size < 1:
        raise ConfigError("--memory must be the memory of a node, such as 512GiB")
    made = minimum_size.smallest(workloads.load(workload, settings), nodes, ppn, size)
    result = made.key.removeprefix("-S ").partition("=")[0]
    if without_effect := [text for text in settings if text.partition("=")[0].strip() == result]:
        raise ConfigError(f"-S {without_effect[0]} has no effect: {result} is what datasize prints; leave it out")
    if as_json:
        from dlio_hpc.documents.planned import DatasizeDocument

        console.print_json(DatasizeDocument(workload, nodes, ppn, **structs.asdict(made)))
        return
    console.show(
        f"{counted(made.files, 'file')} x {counted(made.samples_per_file, 'sample')}, "
        f"{units.format_size(made.bytes)}: {made.key}"
    )
    console.show(f"{STEPS} steps per epoch on {counted(nodes * ppn, 'rank')}: {made.for_steps:,} samples")
    console.show(f"{TIMES_MEMORY} x the memory of {counted(nodes, 'node')}, {memory} each: {made.for_memory:,} samples")
