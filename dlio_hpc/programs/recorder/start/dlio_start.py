"""Start of the recorder in Python 3.8 and newer."""

import importlib.util
import os
import sys


def start() -> None:
    """Start the recorder of the parent folder, once. If this fails, print the fault. The program runs in any case."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if "dlio_recorder" in sys.modules:  # of another recording
        return
    try:
        spec = importlib.util.spec_from_file_location(
            "dlio_recorder", os.path.join(home, "__init__.py"), submodule_search_locations=[home]
        )
        if spec is None or spec.loader is None:
            raise ImportError(home + " has no recorder")
        sys.modules["dlio_recorder"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        from dlio_recorder import session  # type: ignore[import-not-found, unused-ignore]

        session.start()
    except Exception as fault:  # the program must run without its recorder, too
        sys.stderr.write(f"dlio-hpc record: this process is not recorded: {fault!r}\n")
