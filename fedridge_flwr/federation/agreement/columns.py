"""`agree_on_columns`: which columns a fit is about, and whose rows have them."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..._text import counted, quoted
from ...data.names import Names
from ...data.schema import Schema
from ..settings import FitSettings

Sizes: TypeAlias = Mapping[Schema, tuple[int, int]]
"""How many clients have some columns, and how many rows."""


@dataclass
class Agreement:
    """The columns of a fit.

    Attributes
    ----------
    columns : Schema
        Number, names and order of the columns.
    rejected : dict of Schema to str
        Columns that are others, and by what.
    unverified : set of Schema
        Columns without names that are taken to be in order.
    """

    columns: Schema
    rejected: dict[Schema, str] = field(default_factory=dict)
    unverified: set[Schema] = field(default_factory=set)


def agree_on_columns(
    sizes: Sizes, settings: FitSettings, fixed_order: str = ""
) -> Agreement:
    """Return the columns of most clients, in the order of the server or of most.

    Parameters
    ----------
    sizes : mapping
        Clients and rows of every schema; not empty.
    settings : FitSettings
        `feature_names` of the server, if it has any (clients with others have been
        refused), and whether columns without names may join those that have them.
    fixed_order : str
        Where the order of columns cannot be changed any more, if it cannot.

    Examples
    --------
    >>> ab, ba, ac = (Schema(2, features=Names.of(each)) for each in ("ab", "ba", "ac"))
    >>> sizes = {ab: (1, 50), ba: (2, 90), ac: (1, 9)}
    >>> found = agree_on_columns(sizes, FitSettings())
    >>> found.columns.feature_names
    ('b', 'a')
    >>> list(found.rejected.values())
    ["has 'c' where 3 other clients have 'b'"]
    """
    liars = _liars(sizes)
    honest = {s: size for s, size in sizes.items() if s not in liars} or sizes
    members = _majority(honest, lambda schema: schema.unnamed)
    columns = next(iter(members)).unnamed
    accept = settings.unnamed == "accept"
    members = _same_names("feature", members, accept)
    # One target without a name is the only one there is.
    several = columns.n_targets > 1
    members = _same_names("target", members, accept or not several)
    expected = None if settings.schema is None else settings.schema.features
    columns = replace(
        columns,
        features=expected or _in_order("feature", members),
        targets=_in_order("target", members),
    )
    found, clients = Agreement(columns), sum(n for n, _ in members.values())
    for schema in sizes:
        if schema in liars and schema not in members:
            found.rejected[schema] = (
                "says that its columns are in another order than those of clients with "
                "the same hash of their names"
            )
        elif schema not in members:
            found.rejected[schema] = _difference(
                schema, columns, counted(clients, "other client")
            )
        elif fixed_order and not _in_place(schema, columns, settings):
            found.rejected[schema] = (
                "has its columns in another order, which cannot be changed "
                f"{fixed_order}: set feature_names= on the server, so that clients "
                "reorder their columns"
            )
        elif (schema.features is None and columns.features is not None) or (
            schema.targets is None and columns.targets is not None and several
        ):
            found.unverified.add(schema)
    return found


def reason_to_refuse(schema: Schema, settings: FitSettings) -> str | None:
    """Return why columns cannot be those that the server expects, if it expects any."""
    expected = settings.schema
    if expected is None:
        return None
    raw = schema.n_features_in
    if raw is not None and raw != expected.n_features:
        return (
            f"has {counted(raw, 'feature')} where the server expects "
            f"{expected.n_features}"
        )
    if schema.features is None and settings.unnamed == "refuse":
        return (
            "has no feature names (a bare array), so their order cannot be compared "
            "with feature_names: return a data frame from load_data, or set "
            'unnamed="accept"'
        )
    names, wanted = schema.features, expected.features
    if names is None or wanted is None or _alike(names, wanted):
        return None
    return "has other feature names than the server"


def _liars(sizes: Sizes) -> set[Schema]:
    """Return those who have the hash of others and another order, which cannot be."""
    found = set()
    for noun in ("feature", "target"):
        claims: dict[str, dict[Names, int]] = {}
        for schema, (clients, _) in sizes.items():
            names = _names(schema, noun)
            if names is not None and names.order:
                votes = claims.setdefault(names.hash, {})
                votes[names] = votes.get(names, 0) + clients
        for schema in sizes:
            names = _names(schema, noun)
            if names is None or not names.order:
                continue
            others = [n for claim, n in claims[names.hash].items() if claim != names]
            if others and claims[names.hash][names] <= max(others):
                found.add(schema)
    return found


def _majority(sizes: Sizes, family: Callable[[Schema], Hashable]) -> Sizes:
    """Return the family that most clients belong to, of equals the one with names."""
    families: dict[Hashable, dict[Schema, tuple[int, int]]] = {}
    for schema, size in sizes.items():
        families.setdefault(family(schema), {})[schema] = size
    return max(
        families.values(),
        key=lambda members: (
            sum(clients for clients, _ in members.values()),
            sum(rows for _, rows in members.values()),
            any(schema.features for schema in members),
        ),
    )


def _same_names(noun: str, sizes: Sizes, lenient: bool) -> Sizes:
    """Return those that have the names of most, in any order."""

    def family(schema: Schema) -> str | None:
        return _family(_names(schema, noun))

    named = {s: size for s, size in sizes.items() if family(s) is not None}
    best = _majority(named if lenient and named else sizes, family)
    return {
        schema: size
        for schema, size in sizes.items()
        if schema in best
        or (lenient and schema not in named)
        or any(_alike(_names(schema, noun), _names(s, noun)) for s in best)
    }


def _in_order(noun: str, sizes: Sizes) -> Names | None:
    """Return the names that all have in the order of most, or sorted if it is a tie."""
    votes: dict[Names, int] = {}
    for schema, (clients, _) in sizes.items():
        names = _names(schema, noun)
        if names is not None:
            votes[names] = votes.get(names, 0) + clients
    if not votes:
        return None
    leaders = [names for names in votes if votes[names] == max(votes.values())]
    wanted = leaders[0] if len(leaders) == 1 else Names(leaders[0].sorted_hash)
    known = [names for names in votes if names.known is not None]
    return known[0].arranged(wanted) if known else wanted


def _difference(own: Schema, usual: Schema, others: str) -> str:
    """Return by what columns differ from those of the others, as closely as known."""
    for noun in ("feature", "target"):
        ours, theirs = _names(own, noun), _names(usual, noun)
        if ours is None or theirs is None:
            continue
        places, missing = ours.not_in(theirs)
        if places or missing:
            has = quoted([ours.known[j] for j in places]) if ours.known else ""
            return f"has {has or 'no'} where {others} have {quoted(missing) or 'none'}"
    if own.unnamed != usual.unnamed:
        why = own.unnamed.mismatch(usual.unnamed)
        return f"its columns are not those of {others}: {why}"
    for noun in ("feature", "target"):
        ours, theirs = _names(own, noun), _names(usual, noun)
        if ours is None and theirs is not None:
            return (
                f"has no {noun} names (a bare array), so their order cannot be "
                f"compared with {others}: return a data frame from load_data, or set "
                'unnamed="accept" on the server'
            )
        if ours is not None and theirs is None:
            return (
                f"has {noun} names, and {others} have none to compare them with: "
                'return data frames from every load_data, or set unnamed="accept" on '
                "the server"
            )
        if _family(ours) != _family(theirs):
            return (
                f"has other {noun} names than {others}: compare the columns of "
                "load_data (share_feature_names=True at the clients shows them here)"
            )
    return "has other columns"


def _alike(ours: Names | None, theirs: Names | None) -> bool:
    """Whether both are the same names, in any order."""
    if ours is None or theirs is None:
        return ours is theirs
    return ours.sorted_hash == theirs.sorted_hash or ours.matches(theirs)


def _in_place(schema: Schema, columns: Schema, settings: FitSettings) -> bool:
    """Whether nothing has to be rearranged that cannot be: a map leaves y alone."""
    if settings.privacy is None:
        schema = replace(schema, targets=columns.targets)
    return schema.mismatch(columns) is None


def _family(names: Names | None) -> str | None:
    """Return what columns in any order have in common."""
    return None if names is None else names.sorted_hash


def _names(schema: Schema, noun: str) -> Names | None:
    return schema.features if noun == "feature" else schema.targets
