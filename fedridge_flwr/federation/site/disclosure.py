"""`SitePolicy`: what a site refuses to send, whatever the server asks."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._checks import check_flag, check_positive, check_whole
from ...data.local_table import RowOrigin
from ...data.rows import Rows
from ...data.schema import HasSchema
from ...errors import PolicyError, PrivacyError
from ...privacy.ledger import PrivacyLedger
from ...privacy.policy import PrivacyPolicy
from .presets import preset_rules, refuse_weaker
from .request_names import REQUESTS, USUAL
from .request_rules import column_reasons, request_reasons
from .row_rules import FEW_ROWS, ROW_RULES
from .upload_history import UploadHistory, identities
from .written_rules import (
    PATHS,
    checked_path,
    checked_texts,
    read_rules,
    refuse_unknown,
)

if TYPE_CHECKING:
    from ..requests import Request


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
    would tell that it is there. So no rule limits the columns of a private release.

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
        for name, known in _TEXTS.items():
            given = getattr(self, name)
            if given is not None or name != "allowed_columns":
                object.__setattr__(self, name, checked_texts(name, given, known))
        for name in PATHS:
            object.__setattr__(self, name, checked_path(name, getattr(self, name)))
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
        usual = preset_rules(k)
        check_flag("override", override, error=PolicyError)
        refuse_unknown(rules, _names(cls))
        policy = cls(**{**usual, **rules})
        if not override:
            refuse_weaker(k, rules, policy, cls(**usual))
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
            rules = read_rules(file)
            if "preset" in rules:
                return cls.preset(rules.pop("preset"), **rules)
            refuse_unknown(rules, _names(cls))
            return cls(**rules)
        except (OSError, ValueError, RecursionError) as error:
            why = getattr(error, "strerror", None) or str(error)
            why = why.replace("override=True", "override = true")  # as TOML has it
            raise PolicyError(f"the site policy {file} cannot be used: {why}") from None

    # ---- privacy --------------------------------------------------------------------

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

    # ---- reasons: what all who apply a policy ask, before anything is sent ----------

    def reasons_by_request(self, request: Request) -> Iterator[str]:
        """Yield why a request is declined, whatever the rows."""
        return request_reasons(self, request)

    def reasons_by_columns(
        self, rows: HasSchema | None, origin: RowOrigin | None = None
    ) -> Iterator[str]:
        """Yield why columns are declined, by their names alone."""
        return column_reasons(self, rows, origin)

    def reasons_by_table(self, n_rows: int, origin: RowOrigin) -> Iterator[str]:
        """Yield why nothing is said of a table: its columns, its rows, its levels."""
        yield from column_reasons(self, None, origin)
        for rule in ROW_RULES:
            yield from rule.of_table(self, n_rows, origin)

    def reasons_by_rows(
        self, rows: Rows, mapped: Rows, origin: RowOrigin | None = None
    ) -> Iterator[str]:
        """Yield why rows are declined; `mapped` are the same after the feature map."""
        yield from column_reasons(self, rows, origin)
        for rule in ROW_RULES:
            yield from rule.of_rows(self, rows, mapped, origin)

    def reasons_by_statistics(self, stats: Any) -> Iterator[str]:
        """Yield why finished statistics are declined, of rows that are elsewhere."""
        yield from column_reasons(self, stats, None)
        for rule in ROW_RULES:
            yield from rule.of_statistics(self, stats)

    def reasons_by_weights(self, rows: Rows) -> Iterator[str]:
        """Yield why rows are declined for the weights that a server's model gives."""
        for rule in ROW_RULES:
            yield from rule.of_weights(self, rows)

    def reasons_by_number(self, n_rows: int) -> Iterator[str]:
        """Yield that there are too few rows, or too few new ones, if so."""
        return FEW_ROWS.of_number(self, n_rows)

    def remember(self, rows: Rows | None, origin: RowOrigin | None = None) -> None:
        """Enter an upload, or decline it if it is too much like an earlier one.

        Without rows, it is one of all rows of the table that they would be made from.
        """
        if self.min_row_difference == 1 or self.state is None:
            return
        history = UploadHistory(Path(self.state))
        history.admit(identities(rows, origin), self.min_row_difference)


def decline(reasons: Iterable[str]) -> None:
    """Raise a `PolicyError` if there is any reason."""
    found = "; ".join(reasons)
    if found:
        raise PolicyError(f"declined by site policy: {found}.")


_TEXTS = {"allowed_columns": None, "forbidden_columns": None, "requests": REQUESTS}
_WHOLE = ("min_rows", "min_rows_per_level", "min_sites", "min_row_difference")


def _names(policy: type[SitePolicy]) -> list[str]:
    return [each.name for each in fields(policy)]
