"""Which fit given settings need."""

from __future__ import annotations

from .multiround_fit import RefineFit
from .one_shot import OneShotFit
from .private_fit import PrivateFit, RefinedFit
from .settings import FitSettings

__all__ = ["new_fit"]


def new_fit(settings: FitSettings) -> OneShotFit:
    """Return a fit that has asked nobody yet.

    Examples
    --------
    >>> type(new_fit(FitSettings())).__name__
    'OneShotFit'
    >>> type(new_fit(FitSettings(mode="refine"))).__name__
    'RefineFit'
    """
    if settings.privacy is not None:
        return PrivateFit(settings) if settings.rounds == 1 else RefinedFit(settings)
    return OneShotFit(settings) if settings.one_shot else RefineFit(settings)
