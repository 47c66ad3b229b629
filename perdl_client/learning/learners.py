"""The learners of :mod:`common.learners`, under the name by which a client's code knows them."""

from common.learners import LEARNERS, Learner, Step, gradient_step, orthogonal_step, projected_step

__all__ = ["LEARNERS", "Learner", "Step", "gradient_step", "orthogonal_step", "projected_step"]
