"""Reader of an existing dataset: the reader of its format, with errors that do not advise to generate the dataset."""

from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.files import ABSENT, GENERATE_AGAIN
from dlio_hpc.core.formats.format import FOREIGN, SampleReader
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.sample_layout import Places
from dlio_hpc.errors import InvalidRun

SCAN_AGAIN = "submit the workload again, which scans the dataset again"
# Parts of messages about generated datasets, with the text that existing datasets have in their place.
_TEXTS = {
    ABSENT: f"; it was there when the dataset was scanned: {SCAN_AGAIN}",
    GENERATE_AGAIN: SCAN_AGAIN,
    FOREIGN: "is corrupted, or has changed since the dataset was scanned",
}


class ExistingReader:
    """Reader that passes each call to the reader of the format."""

    def __init__(self, reader: SampleReader) -> None:
        self._reader = reader

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        try:
            self._reader.read(places, buffer, tally)
        except InvalidRun as fault:
            message = str(fault)
            for text, replacement in _TEXTS.items():
                message = message.replace(text, replacement)
            raise InvalidRun(message) from fault

    def close(self) -> None:
        self._reader.close()
