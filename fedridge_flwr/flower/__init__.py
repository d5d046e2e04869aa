"""The only room that imports Flower: records to statistics, and back."""

from .client import ridge_client_app
from .legacy_strategy import LegacyFedRidge
from .numpy_client import RidgeClient
from .strategy import FedRidge
from .table_client import table_client_app

__all__ = [
    "FedRidge",
    "LegacyFedRidge",
    "RidgeClient",
    "ridge_client_app",
    "table_client_app",
]
