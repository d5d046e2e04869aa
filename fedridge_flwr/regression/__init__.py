"""Statistics to answers: solve, alpha, inference, sites; knows nothing of clients."""

from .inference.drift import Drift, DriftHistory, drift, drift_over_time
from .inference.hypothesis_tests import HypothesisTest, nested_test, wald_test
from .inference.infer import FewSitesWarning, Inference, infer
from .inference.named_matrix import NamedMatrix
from .inference.residual_moments import ResidualMoments
from .lasso import (
    ElasticNetModel,
    ElasticNetSelection,
    elastic_net,
    elastic_net_path,
    lasso_alphas,
    select_elastic_net,
)
from .likelihood.family_inference import FamilyInference
from .likelihood.family_model import FamilyModel
from .prediction import Predictions
from .questions import (
    correlations,
    partial_correlations,
    select_columns,
    standardized_coefficients,
    variance_inflation,
)
from .sites.leave_site_out import SiteInfluence, site_influence
from .sites.random_intercept import RandomSiteEffects, random_site_effects
from .sites.site_effects import FixedSiteEffects, fixed_site_effects
from .sites.site_estimates import SiteEstimates, site_estimates

__all__ = [
    "Drift",
    "DriftHistory",
    "ElasticNetModel",
    "ElasticNetSelection",
    "FamilyInference",
    "FamilyModel",
    "FewSitesWarning",
    "FixedSiteEffects",
    "HypothesisTest",
    "Inference",
    "NamedMatrix",
    "Predictions",
    "RandomSiteEffects",
    "ResidualMoments",
    "SiteEstimates",
    "SiteInfluence",
    "correlations",
    "drift",
    "drift_over_time",
    "elastic_net",
    "elastic_net_path",
    "fixed_site_effects",
    "infer",
    "lasso_alphas",
    "nested_test",
    "partial_correlations",
    "random_site_effects",
    "select_columns",
    "select_elastic_net",
    "site_estimates",
    "site_influence",
    "standardized_coefficients",
    "variance_inflation",
    "wald_test",
]
