"""What is added to the summary of a simulation after its run, because no client and no server could know it."""

from __future__ import annotations

from typing import Any

from common.settings import Settings
from perdl.experiments.comparison import add_comparison
from perdl.experiments.pooled_comparison import add_pooled_comparison


def complete(summary: dict[str, Any], settings: Settings) -> None:
    """Add the comparison on MNIST and that with pooled samples, where they apply.

    Parameters
    ----------
    summary : dict
        Content of ``summary.json``.
    settings : Settings
        Settings of the run.
    """
    add_comparison(summary, settings)
    add_pooled_comparison(summary, settings)
