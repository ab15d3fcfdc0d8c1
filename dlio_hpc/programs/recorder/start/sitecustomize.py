"""Start of the recorder. Python imports a module of this name before it runs a program. The recorder starts first, then
the sitecustomize of the site, if there is one.
"""

import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _start() -> None:
    """Start the recorder of the folder above. A fault of the recorder is printed; the program runs all the same."""
    home = os.path.dirname(_FOLDER)
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


def _chain() -> None:
    """Import the sitecustomize that Python would have imported without the recorder. Python shows its faults."""
    own = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError as fault:
        if fault.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _FOLDER]
_start()
_chain()
