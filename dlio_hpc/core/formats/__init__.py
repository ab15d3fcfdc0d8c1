"""File formats: a module each, which writes a file and opens a reader for one rank."""

from dlio_hpc.core.formats import npz, null
from dlio_hpc.core.formats.format import Format

FORMATS: dict[str, Format] = {
    "npz": Format(npz.write, npz.reader),
    "null": Format(null.write, null.reader),
}
