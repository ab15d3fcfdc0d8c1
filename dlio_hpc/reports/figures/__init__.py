"""Pictures of reports, drawn with matplotlib. Without matplotlib, importing any of them raises ConfigError."""

from dlio_hpc.base.errors import ConfigError

try:
    import matplotlib as _  # noqa: F401 - its absence is reported here for all pictures
except ModuleNotFoundError as fault:
    if not (fault.name or "").startswith("matplotlib"):
        raise
    raise ConfigError("pictures need matplotlib, which is not installed: pip install matplotlib") from None
