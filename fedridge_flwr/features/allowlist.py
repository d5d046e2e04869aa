"""Which feature maps a client accepts from the server."""

from collections.abc import Sequence
from dataclasses import fields

from ..errors import FedRidgeError, ProtocolError
from .base import FeatureMap
from .composition import Composition


def check_permission(
    allowed: Sequence[FeatureMap] | None,
) -> tuple[FeatureMap, ...] | None:
    """Return the maps that a client allows as a tuple; None allows any.

    Parameters
    ----------
    allowed : sequence of FeatureMap, FeatureMap or None
        As the `feature_maps` of `ridge_client_app`.

    Raises
    ------
    FedRidgeError
        If it is anything else.

    Examples
    --------
    >>> from fedridge_flwr import PolynomialMap
    >>> from fedridge_flwr.features import check_permission
    >>> check_permission(PolynomialMap(2))
    (PolynomialMap(degree=2, interaction_only=False),)
    >>> check_permission([])  # allows none
    ()
    """
    if allowed is None:
        return None
    maps = (allowed,) if isinstance(allowed, FeatureMap) else tuple(allowed)
    if not all(isinstance(each, FeatureMap) for each in maps):
        raise FedRidgeError(
            "feature_maps must be a list of FeatureMap, or None to allow any."
        )
    return maps


def check_allowed(
    asked: FeatureMap | None, allowed: tuple[FeatureMap, ...] | None
) -> None:
    """Refuse a map that is not among those allowed.

    A map is allowed if it is equal to one of them; where one of them takes a number
    from data, as by ``gamma="scale"``, any number is accepted.

    Parameters
    ----------
    asked : FeatureMap or None
        What the server asks for; no map is always allowed.
    allowed : tuple of FeatureMap or None
        What `check_permission` returns.

    Raises
    ------
    ProtocolError
        If the map is not allowed; the message lists those that are.

    Examples
    --------
    >>> from fedridge_flwr.features import RandomFourierFeatures, check_allowed
    >>> mine = RandomFourierFeatures(100, gamma="scale", seed=1)
    >>> check_allowed(RandomFourierFeatures(100, gamma=0.3, seed=1), (mine,))
    >>> check_allowed(RandomFourierFeatures(100, gamma=0.3, seed=2), (mine,))
    Traceback (most recent call last):
    fedridge_flwr.errors.ProtocolError: the server asks for a feature map that this \
client does not allow: fourier n_components=100 gamma=0.3 seed=2. It allows: fourier \
n_components=100 gamma=scale seed=1.
    """
    if asked is None or allowed is None:
        return
    if not any(_same(each, asked) for each in allowed):
        known = ", ".join(_beside(each, asked) for each in allowed) or "none"
        raise ProtocolError(
            "the server asks for a feature map that this client does not allow: "
            f"{_spelling(asked)}. It allows: {known}."
        )


def _parts(feature_map: FeatureMap) -> tuple[FeatureMap, ...]:
    return feature_map.maps if isinstance(feature_map, Composition) else (feature_map,)


def _spelling(feature_map: FeatureMap) -> str:
    return " | ".join(
        " ".join(
            [each.kind, *(f"{name}={getattr(each, name)}" for name in each.spelled)]
        )
        for each in _parts(feature_map)
    )


def _beside(allowed: FeatureMap, asked: FeatureMap) -> str:
    """Spell an allowed map; if that does not tell the two apart, say what does."""
    spelling = _spelling(allowed)
    if spelling != _spelling(asked):
        return spelling
    differing = [
        field.name
        for mine, theirs in zip(_parts(allowed), _parts(asked), strict=True)
        for field in fields(mine)
        if getattr(mine, field.name) != getattr(theirs, field.name)
    ]
    return f"{spelling} with other {' and '.join(dict.fromkeys(differing))}"


def _same(allowed: FeatureMap, asked: FeatureMap) -> bool:
    mine, theirs = _parts(allowed), _parts(asked)
    pairs = zip(mine, theirs, strict=False)
    return len(mine) == len(theirs) and all(_same_part(*pair) for pair in pairs)


def _same_part(allowed: FeatureMap, asked: FeatureMap) -> bool:
    if type(allowed) is not type(asked):
        return False
    values = ((getattr(m, f.name) for m in (allowed, asked)) for f in fields(allowed))
    return all(
        mine == theirs or (allowed.needs_data and mine in (None, "scale"))
        for mine, theirs in values
    )
