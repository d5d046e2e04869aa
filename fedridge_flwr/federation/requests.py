"""What a server can ask its clients for, and what an answer consists of."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._text import human_bytes
from .._types import Array
from ..data.coding import Coding
from ..data.formula import TableFormula
from ..data.names import Columns
from ..data.schema import Schema
from ..features import FeatureMap
from ..privacy.curator import ReleaseRequest
from ..regression.alpha.leave_client_out import HeldOut
from ..regression.inference.residual_moments import ResidualProbe
from ..regression.likelihood.working import Points
from ..regression.model import RidgeModel
from . import costs
from .costs import BUDGET, MOST_FEATURES, oneshot_bytes
from .secure_sum.terms import Terms

ID_BYTES = 16
"""Length of the random id of an upload."""

OPENING_MODES = ("refine", "cg", "auto")
MODES = ("oneshot", *OPENING_MODES)


@dataclass(frozen=True)
class Answer:
    """What a client sends: arrays in order, what they are, and of which columns.

    Beside full statistics, `means_low` is what rounding cut off their means. If the
    targets are `labelled`, their names are labels of classes and travel in clear. An
    `upload` has an id, and may have only the rows `since` another one.
    """

    kind: str
    arrays: Mapping[str, NDArray[Any]]
    count: int
    schema: Schema
    means_low: bytes = b""
    labelled: bool = False
    upload: bytes = b""
    since: bytes = b""


class Sent(NamedTuple):
    """Statistics that a client sent to a server that keeps them.

    `upload` is the client's own id of all that it has sent by now; empty if it keeps no
    record. `statistics` have the rows since the upload `since`, or all if that is
    empty.
    """

    statistics: Any
    upload: str = ""
    since: str = ""


class Losses(NamedTuple):
    """Held-out losses of one client, one for each candidate."""

    values: Array
    n_rows: int


@dataclass(frozen=True)
class Limits:
    """Where `auto` stops using one shot.

    Parameters
    ----------
    max_bytes : int
        Largest upload of one client in one shot.
    max_features : int
        Most features of which the server can hold a matrix of d x d.
    by_rows : bool
        Whether a client with few rows, whose statistics are small, sends them whatever
        the others do. Servers of 0.1.0 do not expect that.
    """

    max_bytes: int = BUDGET
    max_features: int = MOST_FEATURES
    by_rows: bool = True


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every request may say of the rows it is about.

    Parameters
    ----------
    feature_map : FeatureMap, optional
        The map that rows go through.
    columns : Columns, optional
        The columns that the server wants; a client that has them in another order
        rearranges its rows.
    coding : Coding, optional
        How the columns of a table become numbers.
    sites : int, optional
        How many sites are asked at the same time, as the server says.
    classes : tuple of str, optional
        The labels that y has, of which targets are made; empty for the client's own.
    class_weight : tuple of (str, float)
        By which the weights of rows of some classes are multiplied.
    """

    feature_map: FeatureMap | None = None
    columns: Columns | None = None
    coding: Coding | None = None
    sites: int | None = None
    classes: tuple[str, ...] | None = None
    class_weight: tuple[tuple[str, float], ...] = ()

    task: ClassVar[str]

    @property
    def private_release(self) -> ReleaseRequest | None:
        """The private release that is asked for, if one is."""
        return getattr(self, "release", None)

    @property
    def is_private(self) -> bool:
        """Whether a private release is asked for, alone or in a secure sum."""
        return self.private_release is not None


@dataclass(frozen=True)
class AskTable(Request):
    """What the columns of a formula are like in the client's table."""

    formula: TableFormula

    task: ClassVar[str] = "table"


@dataclass(frozen=True)
class AskStatistics(Request):
    """The sufficient statistics of all rows: everything at once.

    A server that keeps them says which `uploads` it has, by the ids that clients gave
    them. A client whose own is among them may answer with those of its new rows.
    """

    wire_dtype: str = "float64"
    statistics: str = "moments"
    uploads: frozenset[str] | None = None

    task: ClassVar[str] = "statistics"


@dataclass(frozen=True)
class AskClasses(Request):
    """The labels of y, and how many rows have each."""

    task: ClassVar[str] = "classes"


@dataclass(frozen=True)
class AskColumns(Request):
    """Weight, means and variances of the columns, on which a feature map depends."""

    task: ClassVar[str] = "columns"


@dataclass(frozen=True)
class AskOpening(Request):
    """The first round of several; in "auto" small statistics come instead.

    In "auto" every client decides for itself: see `choose_mode`.
    """

    mode: str
    limits: Limits = Limits()

    task: ClassVar[str] = "opening"

    def opening_for(self, schema: Schema) -> str:
        """Return which opening these columns allow; 0.1.0 does not look at the rows."""
        if self.mode != "auto":
            return self.mode
        return choose_mode(schema.n_features, schema.n_targets, self.limits)[0]

    def mode_for(self, schema: Schema, count: int) -> str:
        """Return how rows of these columns are answered: "oneshot", "refine", "cg"."""
        if self.mode != "auto":
            return self.mode
        n_rows = count if self.limits.by_rows else None
        return choose_mode(schema.n_features, schema.n_targets, self.limits, n_rows)[0]


@dataclass(frozen=True, eq=False)
class AskProduct(Request):
    """X'X V, with X centred at the client's own mean."""

    vectors: Array

    task: ClassVar[str] = "product"


@dataclass(frozen=True)
class AskOutcome(Request):
    """Statistics of X with classes or counts, and the labels."""

    family: str

    task: ClassVar[str] = "outcome"


@dataclass(frozen=True, eq=False)
class AskWorking(Request):
    """Working statistics and deviances at some coefficients.

    `labels` are those of all clients; a class is a place among them.
    """

    family: str
    labels: tuple[str, ...]
    points: Points

    task: ClassVar[str] = "working"


@dataclass(frozen=True, eq=False)
class AskCounts(Request):
    """Counts of the evaluation rows in bins of what a family's model predicts."""

    family: str
    labels: tuple[str, ...]
    points: Points

    task: ClassVar[str] = "counts"


@dataclass(frozen=True)
class AskRelease(Request):
    """A private release."""

    release: ReleaseRequest

    task: ClassVar[str] = "release"


@dataclass(frozen=True)
class AskEvaluation(Request):
    """Error and R² of a model on the evaluation rows."""

    model: RidgeModel

    task: ClassVar[str] = "evaluation"


@dataclass(frozen=True)
class AskLosses(Request):
    """Errors of the models of all other clients on the training rows."""

    models: HeldOut

    task: ClassVar[str] = "losses"


@dataclass(frozen=True)
class AskResiduals(Request):
    """Sums of squared residuals of a model times x x', for robust standard errors."""

    probe: ResidualProbe

    task: ClassVar[str] = "residuals"


@dataclass(frozen=True)
class AskKeys(Request):
    """Public keys for a secure sum, and which columns the client has."""

    session: bytes
    release: ReleaseRequest | None = None

    task: ClassVar[str] = "secure-keys"


@dataclass(frozen=True, eq=False)
class AskShares(Request):
    """Shares of a client's secrets, in a box for each neighbour.

    Of clients that are no neighbours, `others` are the fingerprints of their keys.
    """

    terms: Terms
    keys: NDArray[np.uint8]
    others: Sequence[bytes] = ()

    task: ClassVar[str] = "secure-shares"

    @property
    def session(self) -> bytes:
        """The name of the secure sum."""
        return self.terms.session


@dataclass(frozen=True, eq=False)
class AskMasked(Request):
    """The statistics under masks; `present` says which clients sent boxes."""

    session: bytes
    present: bytes
    boxes: NDArray[np.uint8]
    release: ReleaseRequest | None = None

    task: ClassVar[str] = "secure-masked"


@dataclass(frozen=True)
class AskConfirm(Request):
    """For each neighbour a confirmation of which clients are said to have delivered."""

    session: bytes
    delivered: bytes

    task: ClassVar[str] = "secure-confirm"


@dataclass(frozen=True, eq=False)
class AskUnmask(Request):
    """One share of each neighbour, if enough of them confirm who delivered."""

    session: bytes
    confirmations: NDArray[np.uint8]

    task: ClassVar[str] = "secure-unmask"


SECURE_TASKS = (
    AskKeys.task,
    AskShares.task,
    AskMasked.task,
    AskConfirm.task,
    AskUnmask.task,
)


def exact_mode(
    n_features: int,
    n_targets: int,
    limits: Limits,
    n_rows: int | None = None,
    *,
    spectrum: float | None = None,
    rounds: float = math.inf,
) -> str:
    """Return the exact mode for a client of so many rows, "" if there is none.

    One rule for "auto" and `recommend`: everything at once within the budget, else in
    rounds if that is less; without matrices of d x d where the server cannot hold them.

    Examples
    --------
    >>> exact_mode(5000, 1, Limits()), exact_mode(5000, 1, Limits(), n_rows=100)
    ('refine', 'oneshot')
    """
    d, t = n_features, n_targets
    if d > limits.max_features:
        return "cg" if 1 + costs.cg_rounds(spectrum) <= rounds else ""
    once, products = oneshot_bytes(d, t, n_rows), costs.refine_rounds(spectrum)
    saves = costs.refine_bytes(d, t, n_rows, rounds=products) < once
    refined = once > limits.max_bytes and saves and 1 + products <= rounds
    return "refine" if refined else "oneshot"


def choose_mode(
    n_features: int, n_targets: int, limits: Limits, n_rows: int | None = None
) -> tuple[str, str]:
    """Return the mode that "auto" stands for, and why.

    Client and server decide independently, from what both know: the columns, and the
    number of rows of that client (any number by default).

    Examples
    --------
    >>> choose_mode(100, 1, Limits())[0], choose_mode(5000, 1, Limits())[0]
    ('oneshot', 'refine')
    >>> choose_mode(2000, 1, Limits())[1]
    'statistics of up to 16.04 MB are above max_bytes, 8 MB'
    """
    mode = exact_mode(n_features, n_targets, limits, n_rows)
    size = oneshot_bytes(n_features, n_targets, n_rows)
    within = size <= limits.max_bytes
    reason = (
        f"statistics of up to {human_bytes(size)} are "
        f"{'within' if within else 'above'} max_bytes, {human_bytes(limits.max_bytes)}"
    )
    if mode == "oneshot" and not within:
        reason += ", but rounds would not be fewer bytes"
    if mode == "cg":
        reason += (
            f", and {n_features} features are too many for a matrix of d x d on the "
            f"server (at most {limits.max_features})"
        )
    return mode, reason
