"""Start of the recorder. Python imports the module of this name before it runs a program. The recorder starts first,
and then the site's own sitecustomize, if there is one. Every version of Python reads this file, including 2.7.
"""

import os
import sys

_folder = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _folder]
if sys.version_info >= (3, 8):
    sys.path.insert(0, _folder)
    try:
        __import__("dlio_start").start()
    finally:
        sys.path.remove(_folder)
_own = sys.modules.pop("sitecustomize", None)
try:
    __import__("sitecustomize")  # the one that Python would have imported without the recorder
except ImportError as _fault:
    if "sitecustomize" not in str(_fault):
        raise
    if _own is not None:
        sys.modules["sitecustomize"] = _own
