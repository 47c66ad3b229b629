"""The figures of a run or a model. To add one, write a file here and an entry below."""

from __future__ import annotations

from perdl.report.figure import FigureKind
from perdl.report.figures.atoms import ATOMS, OWN_ATOMS
from perdl.report.figures.convergence import CONVERGENCE
from perdl.report.figures.gain import GAIN
from perdl.report.figures.membership import MEMBERSHIP
from perdl.report.figures.participation import PARTICIPATION
from perdl.report.figures.path_lengths import PATH_LENGTHS
from perdl.report.figures.shared_atoms import SHARED_ATOMS
from perdl.report.figures.usage import USAGE
from perdl.report.figures.variance import VARIANCE

FIGURES: dict[str, FigureKind] = {
    "convergence": CONVERGENCE,
    "path_lengths": PATH_LENGTHS,
    "shared_atoms": SHARED_ATOMS,
    "gain": GAIN,
    "variance": VARIANCE,
    "atoms": ATOMS,
    "own_atoms": OWN_ATOMS,
    "usage": USAGE,
    "membership": MEMBERSHIP,
    "participation": PARTICIPATION,
}
"""By name, in the order of the report."""
