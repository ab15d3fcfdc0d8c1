"""Limits of libdarshan that make a log incomplete, and the settings that raise them.

Measured with libdarshan 3.5: by default, a module has 4 MiB of memory for its records, and the trace of a rank has 2
MiB. MAX_RECORDS is a number of KiB for a tracing module, and a number of records for a counting module. The compressed
records of each module must fit into MODMEM (MiB). Otherwise the module is lost; with MPI, the whole log is lost.
"""

from dlio_hpc.darshan.log import LogFault

# Settings that allow for 64 MiB of trace and for 65,536 files a rank.
_RECORDS, _POOL_MIB = 65536, 64


def dropped(module: str) -> LogFault:
    """Return the fault of a module that ran out of memory. The text of the fault gives the lines of Darshan's
    configuration that raise the limits of the module.
    """
    what = "a longer trace" if module.startswith("DXT_") else "more files"
    fewer = "" if module.startswith("DXT_") else f", or 'NAME_EXCLUDE <expression> {module}' to leave out files"
    return LogFault(
        "partial",
        f"{module} ran out of memory and dropped records; to record {what}, write 'MAX_RECORDS {_RECORDS} {module}' "
        f"and 'MODMEM {_POOL_MIB}'{fewer} into the file that DARSHAN_CONFIG_PATH names, and run the program again",
    )
