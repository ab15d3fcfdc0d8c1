"""Smallest dataset that MLPerf Storage allows for a workload (Rules.md of v3.0, revision 6980038d, 3.1.2; the same in
v2.0): at least 500 steps per epoch, and five times the memory of all nodes, so that caches hold little of it.
"""

from msgspec import Struct

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.workload import Workload

STEPS, TIMES_MEMORY = 500, 5


class DatasetSize(Struct, frozen=True):
    """Smallest dataset. for_steps: number of samples that the rule about steps requires. for_memory: number of samples
    that the rule about memory requires. samples, files, bytes: size of the dataset; all files are full.
    """

    for_steps: int
    for_memory: int
    samples: int
    files: int
    samples_per_file: int
    bytes: int

    @property
    def key(self) -> str:
        """Option of dlio-submit that sets the size."""
        key, value = ("files", self.files) if self.files > 1 else ("samples_per_file", self.samples_per_file)
        return f"-S dataset.{key}={value}"


def smallest(workload: Workload, nodes: int, ranks_per_node: int, memory: int) -> DatasetSize:
    """Return the smallest dataset for a workload. memory: bytes of memory of a node. Raise ConfigError if the workload
    reads no dataset.
    """
    dataset = workload.dataset
    if not dataset.is_stored:
        raise ConfigError(f"{workload.name} reads no dataset, so there is no minimum size")
    for_steps = STEPS * workload.reader.batch_size * nodes * ranks_per_node
    for_memory = -(-nodes * memory * TIMES_MEMORY // dataset.sample_bytes)
    samples = max(for_steps, for_memory)
    shared = dataset.file_access == "shared"
    per_file = samples if shared else dataset.samples_per_file
    files = 1 if shared else -(-samples // per_file)
    return DatasetSize(
        for_steps, for_memory, files * per_file, files, per_file, files * per_file * dataset.sample_bytes
    )
