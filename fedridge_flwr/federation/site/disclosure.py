"""`SitePolicy`: what a site refuses to send, whatever the server asks."""

from __future__ import annotations

import os
import tomllib
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._checks import check_flag, check_positive, check_whole, must_be
from ..._files import read_file
from ..._text import counted, quoted
from ...data.local_table import RowOrigin
from ...data.rows import Rows
from ...data.schema import HasSchema
from ...errors import PolicyError, PrivacyError
from ...privacy.ledger import PrivacyLedger
from ...privacy.policy import PrivacyPolicy
from .rare_values import effective_number, rare_levels, rare_values, rare_weights
from .request_names import ABOUT_KEYS, NAMES, REQUESTS, USUAL
from .upload_history import UploadHistory, identities

if TYPE_CHECKING:
    from ..requests import Request

_RATIO = 0.33
PRESETS: dict[int, dict[str, Any]] = {
    3: {"min_rows": 3, "min_rows_per_level": 3, "max_columns_per_row": _RATIO},
    5: {"min_rows": 5, "min_rows_per_level": 5, "max_columns_per_row": _RATIO},
    6: {"min_rows": 6, "min_rows_per_level": 6, "max_columns_per_row": _RATIO},
    10: {
        "min_rows": 10,
        "min_rows_per_level": 3,
        "max_columns_per_row": 0.1,
        "min_sites": 3,
    },
    11: {"min_rows": 11, "min_rows_per_level": 11, "max_columns_per_row": _RATIO},
}


@dataclass(frozen=True)
class SitePolicy:
    """What a site refuses to send, whatever the server asks.

    A site's owner writes it into a TOML file and names the file to the SuperNode
    (``--node-config 'policy="/data/policy.toml"'``) or in the environment
    variable ``FEDRIDGE_SITE_POLICY``. No request and no run-config changes it. The
    reason of a refusal is only in the site's own log. The server receives "declined by
    site policy."

    Parameters
    ----------
    min_rows : int
        Least number of rows with nonzero weight. With weights, also the least effective
        number (Σw)²/Σw², so that one row cannot outweigh all others.
    min_rows_per_level : int
        In every feature and target column, before and after a feature map, the number
        of rows that differ from the most common value must be 0 or at least this. In a
        column of two values, such as that of a category's level, these are the rows
        with the rarer value.
    max_columns_per_row : float, optional
        Largest number of columns, features after the map and targets, for each row.
    allowed_columns : collection of str, optional
        The only columns that rows may consist of; rows without names are declined.
    forbidden_columns : collection of str
        Columns that rows must not have, in upper or lower case; rows without names are
        declined.
    requests : collection of str
        What may be asked for: "statistics", "evaluation", "losses", "rounds" (fits in
        several rounds), "columns" (means and variances), "feature_maps" (also
        functions, arithmetic and products of numbers in a formula), "private", "table"
        (names, types and levels), "classes" (labels of y and their counts), "secure"
        (secure sums), "residuals" (robust standard errors), "leverages" (with
        "residuals", for HC2 and HC3), "families" (logistic and Poisson regression: the
        server chooses coefficients, by which rows are weighted). By default all but
        "feature_maps", "residuals", "leverages" and "families".
    require_privacy : bool
        Answer private requests only.
    max_epsilon, max_delta : float
        The largest privacy loss by private releases: in one run, or of all runs
        together if there is a `state`. Without `max_epsilon` no private request is
        answered: with a large epsilon there is hardly any noise. ``trust="server"``,
        for which the site would send sums without noise, is declined in any case, and
        ``trust="secagg"`` without a `roster`, because a server knows the noise of the
        sites that it invents.
    require_secure_sums : bool
        Take part in secure sums only, of which the server sees the total over sites.
    min_sites : int
        Least number of sites that are asked at the same time, according to the server,
        which could lie. In a secure sum the site counts them itself, by their keys.
    identity, roster : path, optional
        In secure sums: the site's Ed25519 private key, and the public keys of all sites
        it trusts, as `SecurePolicy` takes them. Relative to the policy's file.
    min_row_difference : int
        Compared with each earlier upload, rows must be the same, or at least this many
        must have been added or removed, because the difference of two uploads is the
        statistics of the rows in which they differ. Sums of several uploads are not
        compared.
    state : path, optional
        Folder in which uploads are remembered, as keyed hashes of their rows, what
        private releases have cost, and which steps of secure sums were answered.
        `min_row_difference` needs it; it must exist.

    Raises
    ------
    PolicyError
        If a rule is invalid.

    Notes
    -----
    Rules about rows (`min_rows`, `min_rows_per_level`, `max_columns_per_row` and
    `min_row_difference`) do not apply to private releases: the noise covers each
    record as far as `max_epsilon` says, while a refusal that depends on one record
    would tell that it is there.

    Examples
    --------
    >>> from fedridge_flwr import RidgeClient, SitePolicy
    >>> policy = SitePolicy(min_rows=5, min_rows_per_level=3)
    >>> X, y = [[0.0], [0.0], [0.0], [0.0], [0.0], [1.0]], [1, 2, 3, 4, 5, 6]
    >>> RidgeClient(X, y, site_policy=policy).fit([], {})
    Traceback (most recent call last):
    fedridge_flwr.errors.PolicyError: declined by site policy: min_rows_per_level=3, \
but column 0 of X has only 1 row with a value other than its most common one.
    """

    min_rows: int = 1
    min_rows_per_level: int = 1
    max_columns_per_row: float | None = None
    allowed_columns: Collection[str] | None = None
    forbidden_columns: Collection[str] = ()
    requests: Collection[str] = USUAL
    require_privacy: bool = False
    max_epsilon: float | None = None
    max_delta: float = 1e-5
    require_secure_sums: bool = False
    min_sites: int = 1
    min_row_difference: int = 1
    state: str | os.PathLike[str] | None = None
    identity: str | os.PathLike[str] | None = None
    roster: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        """Validate all rules."""
        for name in _WHOLE:
            check_whole(name, getattr(self, name), error=PolicyError)
        if self.max_columns_per_row is not None:
            check_positive(
                "max_columns_per_row", self.max_columns_per_row, error=PolicyError
            )
        _ = self.accepted_privacy  # raises where its numbers are invalid
        for name in ("require_privacy", "require_secure_sums"):
            check_flag(name, getattr(self, name), error=PolicyError)
        if self.allowed_columns is not None:
            _keep_names(self, "allowed_columns")
        _keep_names(self, "forbidden_columns")
        _keep_names(self, "requests", REQUESTS)
        for name, kind in _PATHS.items():
            path = getattr(self, name)
            if path is not None:
                if not isinstance(path, str | os.PathLike) or not str(path):
                    raise must_be(name, f"the path of a {kind}", path, PolicyError)
                object.__setattr__(self, name, Path(path))
        if self.require_privacy and self.max_epsilon is None:
            raise PolicyError(
                "require_privacy needs max_epsilon: with a large epsilon there is "
                "hardly any noise."
            )
        if self.roster is not None and self.identity is None:
            raise PolicyError("roster needs identity, the site's own key.")
        if self.min_row_difference > 1 and self.state is None:
            raise PolicyError(
                "min_row_difference needs state, the folder in which uploads are "
                "recorded."
            )

    @classmethod
    def preset(cls, k: int, /, *, override: bool = False, **rules: Any) -> SitePolicy:
        """Return a policy for groups of at least `k` rows, by a known practice.

        ====  ===========================================================  ===========
        `k`   rules                                                        source
        ====  ===========================================================  ===========
        3     3 rows, 3 per level, 0.33 columns per row                    DataSHIELD
        5     5 rows, 5 per level, 0.33 columns per row                    El Emam
        6     6 rows, 6 per level, 0.33 columns per row                    ICO
        10    10 rows, 3 per level, 0.1 columns per row, 3 sites           v6-glm
        11    11 rows, 11 per level, 0.33 columns per row                  CMS
        ====  ===========================================================  ===========

        Parameters
        ----------
        k : int
            3, 5, 6, 10 or 11.
        override : bool
            Whether `rules` may be weaker than those of the preset.
        **rules
            Further rules, or stricter ones.

        Raises
        ------
        PolicyError
            If there is no such preset, or a rule is invalid or weaker.

        Notes
        -----
        Of DataSHIELD these are the defaults of ``nfilter.tab``, ``nfilter.subset`` and
        ``nfilter.glm``; the ratio 0.33 is used where a source has none. Cells of five
        are the most common rule of data custodians (K. El Emam, Guide to the
        De-Identification of Personal Health Information, 2013, "Cell Size Precedents").
        Six is the smallest count that the Anonymisation code of practice of the UK's
        Information Commissioner (ICO, 2012, appendix 2) does not call small. Of v6-glm,
        of vantage6, these are the defaults. The Centers for Medicare & Medicaid
        Services (CMS) publish no cell of 1 to 10.

        Examples
        --------
        >>> from fedridge_flwr import SitePolicy
        >>> SitePolicy.preset(11, min_rows=50).min_rows
        50
        >>> SitePolicy.preset(11, min_rows=5)
        Traceback (most recent call last):
        fedridge_flwr.errors.PolicyError: min_rows=5 is weaker than preset 11, which \
has 11: leave it out, or add override=True.
        """
        if type(k) is not int or k not in PRESETS:
            known = ", ".join(map(str, PRESETS))
            raise must_be("preset", f"one of {known}", k, PolicyError)
        check_flag("override", override, error=PolicyError)
        _refuse_unknown(rules)
        base = cls(**PRESETS[k])
        policy = cls(**{**PRESETS[k], **rules})
        for name in rules if not override else ():
            if _weaker(name, getattr(policy, name), getattr(base, name)):
                raise PolicyError(
                    f"{name}={rules[name]!r} is weaker than preset {k}, which has "
                    f"{getattr(base, name)!r}: leave it out, or add override=True."
                )
        return policy

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SitePolicy:
        """Return the policy in a TOML file.

        Its keys are the rules, and `preset` and `override` as `preset` takes them. A
        relative `state` is a folder beside the file.

        Parameters
        ----------
        path : path
            The file.

        Raises
        ------
        PolicyError
            If the file cannot be read, is empty, or has anything in it that is not a
            rule.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedridge_flwr import SitePolicy
        >>> file = Path(tempfile.mkdtemp()) / "policy.toml"
        >>> _ = file.write_text("preset = 11")
        >>> SitePolicy.load(file).min_rows
        11
        >>> _ = file.write_text("min_row = 11")
        >>> SitePolicy.load(file)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        fedridge_flwr.errors.PolicyError: the site policy ... cannot be used: there is \
no rule 'min_row'.
        """
        file = Path(path)
        try:
            rules = tomllib.loads(read_file(file))
            if not rules:
                raise PolicyError("it is empty.")
            for name in _PATHS:
                if isinstance(rules.get(name), str) and rules[name]:
                    rules[name] = file.parent / rules[name]
            if "preset" in rules:
                return cls.preset(rules.pop("preset"), **rules)
            _refuse_unknown(rules)
            return cls(**rules)
        except (OSError, ValueError, RecursionError) as error:
            why = getattr(error, "strerror", None) or str(error)
            why = why.replace("override=True", "override = true")  # as TOML has it
            raise PolicyError(f"the site policy {file} cannot be used: {why}") from None

    # ---- rules ------------------------------------------------------------------

    @property
    def accepted_privacy(self) -> PrivacyPolicy | None:
        """The weakest private request that is answered; None if none is."""
        if self.max_epsilon is None:
            return None
        limits = self.max_epsilon, self.max_delta
        # A server that invents the other sites of a sum knows their part of the noise.
        trust = ("local",) if self.roster is None else ("local", "secagg")
        try:
            return PrivacyPolicy(*limits, trust=trust)
        except PrivacyError as error:
            raise PolicyError(f"max_epsilon or max_delta: {error}") from None

    @property
    def privacy_ledger(self) -> PrivacyLedger | None:
        """The account of all private releases, if there is a place for it."""
        if self.max_epsilon is None or self.state is None:
            return None
        file = Path(self.state).resolve() / "private-releases.db"
        return PrivacyLedger(file, self.max_epsilon, self.max_delta)

    def reasons_by_request(self, request: Request) -> Iterator[str]:
        """Yield why a request is declined, whatever the rows."""
        names = [NAMES.get(request.task, request.task)]
        if self.require_secure_sums and names[0] != "secure":
            yield "require_secure_sums is set, but the request is not for a secure sum"
        private = getattr(request, "release", None) is not None
        if private:
            names.append("private")  # also in a secure sum
        if getattr(request, "mode", None) == "auto":
            names.append("statistics")  # where they are small, they come at once
        # A function of a column can make one row outweigh all others, as a map can.
        if request.feature_map is not None or _computes(request):
            names.append("feature_maps")
        if request.classes is not None:
            names.append("classes")
        if getattr(getattr(request, "probe", None), "leverages", False):
            names.append("leverages")
        # Before the rows are read: also that there is an error would be about them.
        yield from self._asked_columns(request)
        for name in dict.fromkeys(names):
            if name not in self.requests:
                yield f'"{name}" is not among the allowed requests'
        if private and self.max_epsilon is None:
            yield "max_epsilon is not set, so private requests are not answered"
        if self.require_privacy and not (private or request.task in ABOUT_KEYS):
            yield "require_privacy is set, but the request is not private"
        if self.min_sites > 1:
            claimed = request.sites
            if claimed is None or claimed < self.min_sites:
                said = "does not say how many" if claimed is None else f"asks {claimed}"
                yield f"min_sites={self.min_sites}, but the server {said}"

    def _asked_columns(self, request: Request) -> Iterator[str]:
        formula, coding = getattr(request, "formula", None), request.coding
        if coding is not None:
            yield from self.reasons_by_columns(None, RowOrigin(coding.raw_columns))
        elif formula is not None:
            named = [*formula.columns, *formula.targets, formula.weights]
            origin = RowOrigin(list(filter(None, named)))
            # Of all columns of a table, where a formula takes them, the table decides.
            if not formula.takes_all:
                yield from self.reasons_by_columns(None, origin)

    def reasons_by_table(self, n_rows: int, origin: RowOrigin) -> Iterator[str]:
        """Yield why nothing is said of a table: its columns, its rows, its levels."""
        yield from self.reasons_by_columns(None, origin)
        yield from self.few_rows(n_rows)
        yield from rare_levels(origin, self.min_rows_per_level)

    def reasons_by_columns(
        self, rows: HasSchema | None, origin: RowOrigin | None = None
    ) -> Iterator[str]:
        """Yield why columns are declined, by their names alone."""
        if self.allowed_columns is None and not self.forbidden_columns:
            return
        if origin is not None and origin.columns is not None:
            names = list(origin.columns)
        elif rows is None or rows.feature_names is None or rows.target_names is None:
            yield (
                "allowed_columns or forbidden_columns are given, but X or y has no "
                "column names (use data frames)"
            )
            return
        else:
            names = [*rows.feature_names, *rows.target_names]
        forbidden = set(map(_folded, self.forbidden_columns))
        banned = [name for name in names if _folded(name) in forbidden]
        if banned:
            yield f"columns are forbidden: {quoted(banned)}"
        if self.allowed_columns is not None:
            others = [name for name in names if name not in self.allowed_columns]
            if others:
                yield f"columns are not among the allowed ones: {quoted(others)}"

    def reasons_by_rows(
        self, rows: Rows, mapped: Rows, origin: RowOrigin | None = None
    ) -> Iterator[str]:
        """Yield why rows are declined; `mapped` are the same after the feature map."""
        width = mapped.n_features + mapped.n_targets
        yield from self.reasons_by_size(rows.n_filled, width)
        yield from self.reasons_by_weights(rows)
        least = self.min_rows_per_level
        if least > 1:
            yield from rare_weights(rows, least)
            yield from rare_levels(origin, least)
            yield from rare_values(rows, least)
            if mapped is not rows:
                yield from rare_values(mapped, least, " after the feature map")

    def reasons_by_weights(self, rows: Rows) -> Iterator[str]:
        """Yield why weights are declined: a few rows outweigh all others."""
        n_rows, effective = rows.n_filled, effective_number(rows)
        if n_rows >= self.min_rows > effective:
            yield (
                f"min_rows={self.min_rows}, but with their weights {n_rows} rows "
                f"count as only {effective:.3g}"
            )

    def reasons_by_size(self, n_rows: int, width: int) -> Iterator[str]:
        """Yield why so many rows of so many columns are declined."""
        yield from self.few_rows(n_rows)
        ratio = self.max_columns_per_row
        if ratio is not None and width > ratio * n_rows:
            yield (
                f"max_columns_per_row={ratio:g}, but there are {width} columns for "
                f"{counted(n_rows, 'row')}"
            )

    def few_rows(self, n_rows: int) -> Iterator[str]:
        """Yield that there are too few rows, if so."""
        if n_rows < self.min_rows:
            yield f"min_rows={self.min_rows}, but there are {n_rows}"

    def remember(self, rows: Rows | None, origin: RowOrigin | None = None) -> None:
        """Enter an upload, or decline it if it is too much like an earlier one.

        Without rows, it is one of all rows of the table that they would be made from.
        """
        if self.min_row_difference == 1 or self.state is None:
            return
        history = UploadHistory(Path(self.state))
        history.admit(identities(rows, origin), self.min_row_difference)


def _computes(request: Request) -> bool:
    """Whether a request is about columns that are computed from those of a table."""
    asked = request.coding or getattr(request, "formula", None)
    return asked is not None and asked.computes


def decline(reasons: Iterable[str]) -> None:
    """Raise a `PolicyError` if there is any reason."""
    found = "; ".join(reasons)
    if found:
        raise PolicyError(f"declined by site policy: {found}.")


_PATHS = {"state": "folder", "identity": "file", "roster": "file"}
_WHOLE = ("min_rows", "min_rows_per_level", "min_sites", "min_row_difference")


def _refuse_unknown(rules: Mapping[str, Any]) -> None:
    known = [each.name for each in fields(SitePolicy)]
    unknown = [name for name in rules if name not in known]
    if unknown:
        raise PolicyError(f"there is no rule {quoted(unknown)}.")


def _folded(name: str) -> str:
    """Return a name as people compare it: a typo must not let a column out."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def _weaker(name: str, given: Any, base: Any) -> bool:
    if name in _WHOLE:
        return bool(given < base)
    if name == "max_columns_per_row":
        return given is None or given > base
    return name == "requests" and not set(given) <= set(base)


def _keep_names(
    policy: SitePolicy, name: str, known: Collection[str] | None = None
) -> None:
    """Make a collection of texts a tuple, or say what is wrong with it."""
    given = getattr(policy, name)
    texts = () if isinstance(given, str | Mapping) else tuple(_iterate(given))
    wrong = isinstance(given, str | Mapping) or given is None
    if wrong or not all(isinstance(text, str) for text in texts):
        raise must_be(name, "a list of texts", given, PolicyError)
    unknown = [text for text in texts if known is not None and text not in known]
    if unknown:
        raise PolicyError(
            f"{name} has {quoted(unknown)}; known values are "
            f"{quoted(list(known or ()))}."
        )
    object.__setattr__(policy, name, texts)


def _iterate(given: Any) -> Iterable[Any]:
    return given if isinstance(given, Collection) else (None,)
