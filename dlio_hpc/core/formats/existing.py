"""Reader of an existing dataset: the reader of its format, with error messages that do not advise generating the
dataset.
"""

from dlio_hpc.base.errors import InvalidRun
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.dataset_faults import UnplannedFile
from dlio_hpc.core.formats.format import SampleReader
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.sample_layout import Places


class ExistingReader:
    """Reader that passes each call to the reader of the format."""

    def __init__(self, reader: SampleReader) -> None:
        self._reader = reader

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        try:
            self._reader.read(places, buffer, tally)
        except UnplannedFile as fault:
            raise InvalidRun(fault.existing) from fault

    def close(self) -> None:
        self._reader.close()
