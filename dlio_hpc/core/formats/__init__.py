"""File formats. Each format has a module that writes its files and reads them on a rank."""

from dlio_hpc.core.formats import csv, hdf5, npz, null, raw, tfrecord
from dlio_hpc.core.formats.format import Format

FORMATS: dict[str, Format] = {
    "tfrecord": Format(tfrecord.write, tfrecord.reader, tfrecord.fault),
    "hdf5": Format(hdf5.write, hdf5.reader, hdf5.fault),
    "npz": Format(npz.write, npz.reader, npz.fault),
    "raw": Format(raw.write, raw.reader, raw.fault),
    "csv": Format(csv.write, csv.reader, csv.fault, csv.head, csv.fill),
    "null": Format(null.write, null.reader, null.fault),
}
