"""Feature maps in JSON and in a short spelling, parsed without trust.

Every kind registers itself in `KINDS`, so that nothing here imports them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from .._files import strict_json
from ..errors import FedRidgeError, ProtocolError

if TYPE_CHECKING:
    from .base import FeatureMap


# Means and scales of a hundred thousand columns take five million characters.
_LONGEST_TEXT = 8_000_000

KINDS: dict[str, type[FeatureMap]] = {}


def parse_json(text: str) -> FeatureMap:
    """Read a map from JSON of any origin.

    Examples
    --------
    >>> from fedridge_flwr.features import FeatureMap
    >>> parse_json('{"kind":"projection","n_components":5}')
    GaussianProjection(n_components=5, seed=0)
    """
    if not isinstance(text, str):
        raise ProtocolError(f"a feature map is JSON text, got {type(text).__name__}.")
    if len(text) > _LONGEST_TEXT:
        raise ProtocolError(
            f"a feature map of {len(text)} characters is too long: at most "
            f"{_LONGEST_TEXT} are allowed."
        )
    try:
        content = strict_json(text)
    except ValueError as error:
        raise ProtocolError(f"the feature map is not JSON: {error}.") from None
    try:
        return _from_content(content)
    except FedRidgeError as error:
        raise ProtocolError(f"the feature map cannot be used: {error}") from None


def parse_text(text: str) -> FeatureMap:
    """Read a map from ``kind size name=value ... | kind ...``.

    Examples
    --------
    >>> from fedridge_flwr.features import FeatureMap
    >>> parse_text("polynomial 2")
    PolynomialMap(degree=2, interaction_only=False)
    """
    if not isinstance(text, str) or not text.strip():
        raise FedRidgeError(f"no feature map in {text!r}. {_known()}")
    maps = [_from_words(part.split()) for part in text.split("|")]
    return maps[0] if len(maps) == 1 else compose(maps)


def compose(maps: Sequence[FeatureMap]) -> FeatureMap:
    """Return maps applied one after another, as one map."""
    return KINDS["composition"](tuple(maps))  # type: ignore[call-arg]


def _from_content(content: Any, inside: bool = False) -> FeatureMap:
    if not isinstance(content, dict):
        raise FedRidgeError(
            f"a map must be a JSON object, got {type(content).__name__}."
        )
    given = dict(content)
    cls = _kind(given.pop("kind", None), {"composition"} if inside else set())
    known = {field.name for field in fields(cls)}
    extra = sorted(set(given) - known)
    if extra:
        raise FedRidgeError(
            f"{cls.kind} has no parameter {extra[0][:60]!r}, only "
            f"{', '.join(sorted(known))}."
        )
    if cls.kind == "composition" and "maps" in given:
        if not isinstance(given["maps"], list):
            raise FedRidgeError("the maps of a composition must be a list.")
        given["maps"] = tuple(_from_content(each, True) for each in given["maps"])
    return _build(cls, given)


def _from_words(words: list[str]) -> FeatureMap:
    if not words:
        raise FedRidgeError(f"there is an empty map next to a |. {_known()}")
    cls = _kind(words[0], {"composition"})
    given: dict[str, Any] = {}
    for place, word in enumerate(words[1:]):
        name, equals, value = word.rpartition("=")
        if not equals:
            if place or not cls.spelled:
                raise FedRidgeError(f"{word!r} is not name=value. {_known()}")
            name = cls.spelled[0]
        if name not in cls.spelled:
            raise FedRidgeError(f"{cls.kind} has no parameter {name!r}. {_known()}")
        if name in given:
            raise FedRidgeError(f"{cls.kind} has {name} twice.")
        given[name] = _value(value)
    return _build(cls, given)


def _kind(name: Any, hidden: set[str]) -> type[FeatureMap]:
    if not isinstance(name, str) or name in hidden or name not in KINDS:
        raise FedRidgeError(f"there is no feature map {str(name)[:60]!r}. {_known()}")
    return KINDS[name]


def _build(cls: type[FeatureMap], given: dict[str, Any]) -> FeatureMap:
    for field in fields(cls):
        if field.default is MISSING and field.name not in given:
            raise FedRidgeError(f"{cls.kind} needs {field.name}. {_known()}")
    return cls(**given)


def _known() -> str:
    spellings = []
    for kind, cls in KINDS.items():
        if kind != "composition":
            first, *others = cls.spelled or ("",)
            words = [kind, first.upper(), *(f"{name}=..." for name in others)]
            spellings.append(" ".join(word for word in words if word))
    return f"Known are: {'; '.join(spellings)}; and several of them joined with |."


def _value(word: str) -> Any:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for convert in (int, float):
        try:
            return convert(word)
        except ValueError:
            continue
    return word
