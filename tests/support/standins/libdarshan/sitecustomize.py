"""Every Python whose PYTHONPATH has this folder loads this module. It records if LD_PRELOAD names a libdarshan.so."""

import os

if "libdarshan.so" in os.environ.get("LD_PRELOAD", ""):
    from tests.support.standins.libdarshan import recorder

    recorder.install()
