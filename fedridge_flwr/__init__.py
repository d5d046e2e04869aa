"""Federated ridge regression in one round, exactly.

Every client turns its rows into one small symmetric matrix and sends it once; the
server adds the matrices up and solves. The answer is the centralized ridge solution.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from .data.formula import TableFormula
from .data.sources import TableFile
from .data.table_options import TableOptions
from .errors import (
    DataError,
    FedRidgeError,
    IllConditionedWarning,
    IncompleteFitError,
    LedgerError,
    NotConvergedWarning,
    NotEnoughClientsError,
    PolicyError,
    PrivacyError,
    PrivacyWarning,
    ProtocolError,
    SingularSystemError,
    StatisticsError,
)
from .features import (
    FeatureMap,
    GaussianProjection,
    NeuralTangentFeatures,
    PolynomialMap,
    RandomFourierFeatures,
    Standardize,
)
from .federation.read_table import read_table
from .federation.recommend import Recommendation, recommend
from .federation.report import FitReport
from .federation.secure_sum import SecurePolicy, SecureSum
from .federation.site.disclosure import SitePolicy
from .privacy import (
    DifferentialPrivacy,
    PrivacyLedger,
    PrivacyPolicy,
    PrivacyReport,
    PrivateStatistics,
    solve_private,
)
from .regression.alpha.alpha_grid import GridEdgeWarning, UnlikeScalesWarning
from .regression.alpha.alpha_selection import AlphaSelection, select_alpha
from .regression.alpha.leave_client_out import ClampedLossWarning
from .regression.classification import RidgeClassifierModel
from .regression.inference.infer import FewSitesWarning, Inference, infer
from .regression.likelihood.family_model import FamilyModel
from .regression.model import RidgeModel
from .regression.solve import solve, solve_path
from .statistics.fixed_point import FixedPointStatistics
from .statistics.plain import PlainStatistics
from .statistics.spark import spark_statistics
from .statistics.sufficient import SufficientStatistics
from .statistics.triangular import TriangularStatistics

if TYPE_CHECKING:
    from .federation.ledger.contribution_ledger import Ledger
    from .flower import (
        FedRidge,
        LegacyFedRidge,
        RidgeClient,
        ridge_client_app,
        table_client_app,
    )
    from .regression.federated_estimator import FederatedRidge, FederatedRidgeClassifier

__all__ = [
    "AlphaSelection",
    "ClampedLossWarning",
    "DataError",
    "DifferentialPrivacy",
    "FamilyModel",
    "FeatureMap",
    "FedRidge",
    "FedRidgeError",
    "FederatedRidge",
    "FederatedRidgeClassifier",
    "FewSitesWarning",
    "FitReport",
    "FixedPointStatistics",
    "GaussianProjection",
    "GridEdgeWarning",
    "IllConditionedWarning",
    "IncompleteFitError",
    "Inference",
    "Ledger",
    "LedgerError",
    "LegacyFedRidge",
    "NeuralTangentFeatures",
    "NotConvergedWarning",
    "NotEnoughClientsError",
    "PlainStatistics",
    "PolicyError",
    "PolynomialMap",
    "PrivacyError",
    "PrivacyLedger",
    "PrivacyPolicy",
    "PrivacyReport",
    "PrivacyWarning",
    "PrivateStatistics",
    "ProtocolError",
    "RandomFourierFeatures",
    "Recommendation",
    "RidgeClassifierModel",
    "RidgeClient",
    "RidgeModel",
    "SecurePolicy",
    "SecureSum",
    "SingularSystemError",
    "SitePolicy",
    "Standardize",
    "StatisticsError",
    "SufficientStatistics",
    "TableFile",
    "TableFormula",
    "TableOptions",
    "TriangularStatistics",
    "UnlikeScalesWarning",
    "infer",
    "read_table",
    "recommend",
    "ridge_client_app",
    "select_alpha",
    "solve",
    "solve_path",
    "solve_private",
    "spark_statistics",
    "table_client_app",
]

# The core is useful without Flower, and Flower takes a second to import.
_FROM_FLOWER = {
    "FedRidge",
    "LegacyFedRidge",
    "RidgeClient",
    "ridge_client_app",
    "table_client_app",
}

# Nor does everybody need scikit-learn, of which these two are estimators.
_ESTIMATORS = {"FederatedRidge", "FederatedRidgeClassifier"}

try:
    __version__ = version("fedridge-flwr")
except PackageNotFoundError:  # a checkout that was not installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    if name in _FROM_FLOWER:
        return getattr(import_module(".flower", __name__), name)
    if name == "Ledger":  # it brings SQLite along
        return import_module(".federation.ledger", __name__).Ledger
    if name in _ESTIMATORS:
        return getattr(import_module(".regression.federated_estimator", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
