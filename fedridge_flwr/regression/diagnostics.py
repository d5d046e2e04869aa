"""The paper's diagnostics of a fit: coverage, condition and shrinkage.

They cost several times the solve (eigenvalues of a d x d matrix), so that they are
computed when somebody looks at them.
"""

from dataclasses import dataclass

import numpy as np

from .model import RidgeModel
from .normal_equations import Statistics, normal_equations
from .solve import cholesky_solve

LARGEST_SPECTRUM = 2000
"""Eigenvalues cost O(d³); beyond this many features they are left out."""


@dataclass(frozen=True)
class Spectrum:
    """Quantities of the unscaled system (G + sigma I) w = h.

    Attributes
    ----------
    coverage : float
        lambda_min(G), the alpha of the paper's alpha-coverage (Definition 2).
    lambda_max : float
        lambda_max(G).
    kappa : float
        (lambda_max + sigma) / (lambda_min + sigma), infinite for a singular system.
    kappa_bound : float
        Its bound (lambda_max + sigma) / sigma (Corollary 1), infinite at sigma = 0.
    shrinkage_factor : float
        sigma / (lambda_min + sigma), between 0 and 1.
    shrinkage_bound : float or None
        shrinkage_factor times the norm of the unpenalised solution w*, which bounds
        the distance between w_sigma and w*; None where w* does not exist.
    shrinkage : float or None
        That distance itself.
    """

    coverage: float
    lambda_max: float
    kappa: float
    kappa_bound: float
    shrinkage_factor: float
    shrinkage_bound: float | None
    shrinkage: float | None

    @property
    def vacuous(self) -> bool:
        """Whether the shrinkage bound is too close to 1 to be of use."""
        return self.shrinkage_factor > 0.9


def spectrum(stats: Statistics, model: RidgeModel) -> Spectrum | None:
    """Return the quantities of a fit, or None beyond `LARGEST_SPECTRUM` features.

    Parameters
    ----------
    stats : SufficientStatistics
        The total that was solved.
    model : RidgeModel
        Its solution.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics, solve
    >>> stats = SufficientStatistics.from_data([[2.0, 0.0], [0.0, 1.0]], [2.0, 1.0])
    >>> quantities = spectrum(stats, solve(stats, alpha=1.0, fit_intercept=False))
    >>> quantities.coverage, quantities.lambda_max, quantities.kappa
    (1.0, 4.0, 2.5)
    >>> quantities.shrinkage_factor
    0.5
    """
    if stats.n_features > LARGEST_SPECTRUM:
        return None
    equations = normal_equations(
        stats, fit_intercept=model.fit_intercept, standardize=model.standardize
    )
    matrix, _, unit = equations.in_penalty_units()
    values = np.linalg.eigvalsh(matrix)
    smallest, largest = max(float(values[0]), 0.0), float(values[-1])
    sigma = model.alpha_
    factor = sigma / (smallest + sigma) if smallest + sigma > 0 else 1.0
    bound = shrinkage = None
    unpenalised = cholesky_solve(equations, 0.0)
    if unpenalised is not None:
        coef = unpenalised[0].T
        bound = factor * float(np.linalg.norm(coef / unit))
        shrinkage = float(np.linalg.norm((np.atleast_2d(model.coef_) - coef) / unit))
    return Spectrum(
        coverage=smallest,
        lambda_max=largest,
        kappa=_ratio(largest + sigma, smallest + sigma),
        kappa_bound=_ratio(largest + sigma, sigma),
        shrinkage_factor=factor,
        shrinkage_bound=bound,
        shrinkage=shrinkage,
    )


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else float("inf")
