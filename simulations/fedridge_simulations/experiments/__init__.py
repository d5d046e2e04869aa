"""The experiments: the paper's seven and three beyond it, one small module each."""

from ..experiment import Experiment
from . import (
    baselines,
    communication,
    convergence,
    dropout,
    gradient,
    heterogeneity,
    kernels,
    privacy,
    projection,
    scalability,
)

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        baselines,
        heterogeneity,
        communication,
        convergence,
        privacy,
        scalability,
        projection,
        dropout,
        gradient,
        kernels,
    )
}
