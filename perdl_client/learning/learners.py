"""The learners of :mod:`common.learners`, re-exported for code of the client."""

from common.learners import (
    LEARNERS,
    Learner,
    Step,
    coordinate_step,
    gradient_step,
    online_step,
    orthogonal_step,
    projected_step,
)

__all__ = [
    "LEARNERS",
    "Learner",
    "Step",
    "coordinate_step",
    "gradient_step",
    "online_step",
    "orthogonal_step",
    "projected_step",
]
