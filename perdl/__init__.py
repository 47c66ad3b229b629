"""perdl finds what many private datasets share and what each has alone.

Samples never leave a client. A client sends its whole first dictionary once, its own atoms included. After that it
sends the shared atoms only.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.util import find_spec

TYPE_CHECKING = False  # importing typing would slow down the start of the command
if TYPE_CHECKING:
    from perdl.engines.simulate import simulate as simulate
    from perdl.estimator.estimator import NotFittedError as NotFittedError
    from perdl.estimator.estimator import PerDL as PerDL
    from perdl.estimator.validation import cross_validate as cross_validate
    from perdl.monitoring.callbacks import Callback as Callback
    from perdl.results.run_result import RunResult as RunResult
    from perdl.results.run_result import read_run as read_run
    from perdl_client.data.windows_patches import cut_patches as cut_patches
    from perdl_client.data.windows_patches import cut_windows as cut_windows
    from perdl_client.data.windows_patches import join_patches as join_patches
    from perdl_client.data.windows_patches import join_windows as join_windows

__version__ = "0.1.0"
__all__ = [
    "Callback",
    "NotFittedError",
    "PerDL",
    "RunResult",
    "__version__",
    "cross_validate",
    "cut_patches",
    "cut_windows",
    "join_patches",
    "join_windows",
    "read_run",
    "simulate",
]


def _check_common() -> None:
    """Raise if one of the user's files hides the package `common`, which comes with perdl."""
    spec = sys.modules["common"].__spec__ if "common" in sys.modules else find_spec("common")
    origin = (spec.origin if spec is not None else None) or ""
    found, ours = os.path.dirname(origin), os.path.join(os.path.dirname(os.path.dirname(__file__)), "common")
    if os.path.isdir(found) and os.path.isdir(ours) and not os.path.samefile(found, ours):
        raise ImportError(f"{origin} hides perdl's own package of the name `common`: rename that file or folder")


_check_common()

# Must be set before Flower is imported.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

_HOMES = {
    "Callback": "perdl.monitoring.callbacks",
    "NotFittedError": "perdl.estimator.estimator",
    "PerDL": "perdl.estimator.estimator",
    "RunResult": "perdl.results.run_result",
    "cross_validate": "perdl.estimator.validation",
    "cut_patches": "perdl_client.data.windows_patches",
    "cut_windows": "perdl_client.data.windows_patches",
    "join_patches": "perdl_client.data.windows_patches",
    "join_windows": "perdl_client.data.windows_patches",
    "read_run": "perdl.results.run_result",
    "simulate": "perdl.engines.simulate",
}


def __getattr__(name: str) -> object:
    """Import a name on first use: `import perdl` alone imports neither Flower nor NumPy."""
    if name not in _HOMES:
        raise AttributeError(f"module 'perdl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
