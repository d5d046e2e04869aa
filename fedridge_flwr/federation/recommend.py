"""`recommend`: which method for which problem, beside what the others cost."""

import math
from dataclasses import dataclass

from .._checks import as_number, check_whole, must_be
from .._text import human_bytes, text_table
from ..privacy.accounting import noise_multiplier
from ..statistics.trapezoid import fewer_numbers
from . import costs
from .costs import BUDGET, MEMORY
from .requests import Limits, exact_mode

_FEDAVG_ROUNDS = 200
_PRIVATE_ROUNDS = 20
_DELTA = 1e-5
_LARGEST_BUDGET = 1e18
_MEASURED = "measured at d=1000, 20 clients of 500 rows; an estimate elsewhere"


@dataclass(frozen=True)
class Alternative:
    """One method: what it costs a client, in how many rounds, and what one gets."""

    method: str
    bytes_per_client: int
    rounds: int
    exact: bool
    note: str


@dataclass(frozen=True)
class Recommendation:
    """What to use, why, and what the others cost; ``print`` it.

    Returned by `recommend`. The parameters are also the attributes.

    Parameters
    ----------
    method : str
        "oneshot", "refine", "cg", "projection" or "iterative".
    bytes_per_client : int
        Payload of one client, up and down.
    reason : str
        Why.
    alternatives : tuple of Alternative
        Every method, the recommended one among them: ``method``, ``bytes_per_client``,
        ``rounds``, ``exact`` and ``note`` of each.
    paper : str
        What the paper's rule of thumb says, and where the two differ.

    Examples
    --------
    >>> from fedridge_flwr import recommend
    >>> advice = recommend(d=100, n=500, K=20)
    >>> print(advice.method, "-", advice.reason)
    oneshot - exact in one round, and 42.02 kB per client are within the budget of 8 MB.
    >>> for each in advice.alternatives:
    ...     print(f"{each.method:10}  {each.rounds:3}  {each.bytes_per_client:7,}")
    oneshot       1   42,024
    refine        7   17,790
    cg          129  207,224
    projection    1    7,224
    iterative   200  323,200
    """

    method: str
    bytes_per_client: int
    reason: str
    alternatives: tuple[Alternative, ...]
    paper: str

    def __str__(self) -> str:
        """Return the advice and a table of all methods."""
        rows = [
            [
                f"{each.method} *" if each.method == self.method else each.method,
                each.note,
                "yes" if each.exact else "no",
                f"{each.rounds:,}",
                human_bytes(each.bytes_per_client),
            ]
            for each in self.alternatives
        ]
        heads = ["method", "what", "exact", "rounds, about", "bytes per client"]
        table = text_table(heads, rows, text_columns=3)
        return f"{self.method}: {self.reason}\n\n{table}\n\n{self.paper}"


def recommend(
    d: int,
    n: int,
    K: int,
    rounds: int | None = None,
    epsilon: float | None = None,
    spectrum: float | None = None,
    *,
    t: int = 1,
    budget: float = BUDGET,
    memory: float = MEMORY,
) -> Recommendation:
    """Recommend a method for K clients of n rows and d features.

    Nothing is measured on your data: bytes are counted, and rounds are those of
    experiments with 1,000 features.

    Parameters
    ----------
    d : int
        Number of features.
    n : int
        Number of rows of each client.
    K : int
        Number of clients.
    rounds : int, optional
        Largest acceptable number of rounds; no limit by default.
    epsilon : float, optional
        Required privacy of every record, if any.
    spectrum : float, optional
        Decay of the variances of the features, ``i^-spectrum`` in their principal
        directions: 0 if all are alike, 1 (the default) or 2 if some are nearly
        dependent. Rounds are those to a relative error of 1e-10, and can be three
        times as many where a few directions carry everything.
    t : int
        Number of targets.
    budget : float
        Bytes per client up to which nothing beats one round.
    memory : float
        Bytes that the server has for matrices.

    Returns
    -------
    Recommendation
        The method, why, and what the others cost.

    Raises
    ------
    FedRidgeError
        If a size is not a whole number of at least 1, or a number is out of range.

    Notes
    -----
    ==================================  =============================================
    problem                             advice
    ==================================  =============================================
    payload within the budget           "oneshot": exact, one round
    beyond, clients can come back       "refine": exact, a part of the bytes
    ... d x d does not fit the server   "cg": exact, vectors only
    beyond, one round only              "oneshot" all the same: what is smaller is
                                        not exact
    nothing exact is possible           "projection" in few rounds, or "iterative"
    privacy, a clear signal             "oneshot" with ``privacy=``
    privacy, otherwise                  "refine" by ``DifferentialPrivacy(rounds=20)``
    ==================================  =============================================

    Examples
    --------
    >>> from fedridge_flwr import recommend
    >>> recommend(d=100, n=500, K=20).method
    'oneshot'
    >>> recommend(d=5000, n=500, K=20).method, recommend(5000, 500, 20, rounds=1).method
    ('refine', 'oneshot')
    >>> print(recommend(d=100, n=500, K=20).paper)
    Paper: one-shot if d < 4 R and epsilon >= 1; with R = 200, one-shot. We agree.
    """
    d, n, K, t = (
        check_whole(name, value)
        for name, value in (("d", d), ("n", n), ("K", K), ("t", t))
    )
    if rounds is not None:
        rounds = check_whole("rounds", rounds)
    for name, number, lowest, highest in (
        ("epsilon", epsilon, 1e-6, 1e6),
        ("spectrum", spectrum, 0.0, 10.0),
        ("budget", budget, 1.0, _LARGEST_BUDGET),
        ("memory", memory, 1.0, 1e18),
    ):
        if number is not None and not lowest <= as_number(number) <= highest:
            raise must_be(name, f"a number from {lowest:g} to {highest:g}", number)
    case = _Case(d, n, K, rounds, spectrum, t, budget, memory)
    table = case.exact_table() if epsilon is None else case.private_table()
    if epsilon is None:
        method, reason = case.exact_advice(table)
    else:
        method, reason = case.private_advice(epsilon)
    paper = _paper(d, rounds, epsilon, method)
    size = table[method].bytes_per_client
    return Recommendation(method, size, reason, tuple(table.values()), paper)


def better_mode(
    mode: str, d: int, n: int, K: int, t: int = 1, budget: float = BUDGET
) -> str:
    """Return in one sentence which mode of FedRidge would have been better, if any.

    Examples
    --------
    >>> better_mode("oneshot", d=100, n=500, K=20)
    ''
    >>> better_mode("refine", d=100, n=500, K=20)
    'mode="oneshot": exact in one round, and 42.02 kB per client are within the budget \
of 8 MB.'
    """
    advice = recommend(d, n, K, t=t, budget=min(budget, _LARGEST_BUDGET))
    if advice.method in (mode, "projection", "iterative"):
        return ""
    return f'mode="{advice.method}": {advice.reason}'


@dataclass(frozen=True)
class _Case:
    """A problem, and what can be said about it."""

    d: int
    n: int
    K: int
    rounds: int | None
    spectrum: float | None
    t: int
    budget: float
    memory: float

    def affords(self, rounds: int) -> bool:
        return self.rounds is None or rounds <= self.rounds

    def exact_table(self) -> dict[str, Alternative]:
        d, n, t = self.d, self.n, self.t
        refine_rounds = costs.refine_rounds(self.spectrum)
        refine = costs.refine_bytes(d, t, n, rounds=refine_rounds)
        cg_rounds = costs.cg_rounds(self.spectrum)
        cg = costs.cg_bytes(d, t, rounds=cg_rounds)
        # A projection to 40% of the features, or to as many as the budget allows.
        allowed = math.isqrt(int(self.budget / 4)) - t - 2
        m = max(1, min(round(0.4 * d), allowed))
        once = "statistics once"
        if fewer_numbers(n, d, t):
            once += " (trapezoid factor)"
        factor, sketch = "int8 factor, then vectors", f"random projection to {m}"
        return _by_method(
            Alternative("oneshot", costs.oneshot_bytes(d, t, n), 1, True, once),
            Alternative("refine", refine, 1 + refine_rounds, True, factor),
            Alternative("cg", cg, 1 + cg_rounds, True, "vectors"),
            Alternative("projection", costs.oneshot_bytes(m, t, n), 1, False, sketch),
            self._fedavg("FedAvg"),
        )

    def private_table(self) -> dict[str, Alternative]:
        d, rounds = self.d, _PRIVATE_ROUNDS
        once = costs.private_bytes(d, self.t)
        refine = costs.private_refine_bytes(d, rounds)
        how = f"DifferentialPrivacy(rounds={rounds})"
        return _by_method(
            Alternative("oneshot", once, 1, False, "noisy sums once"),
            Alternative("refine", refine, rounds, False, how),
            self._fedavg("DP-FedAvg, not in this package"),
        )

    def _fedavg(self, note: str) -> Alternative:
        rounds = self.rounds or _FEDAVG_ROUNDS
        size = costs.fedavg_bytes(self.d, self.t, rounds=rounds)
        return Alternative("iterative", size, rounds, False, note)

    def exact_advice(self, table: dict[str, Alternative]) -> tuple[str, str]:
        once, refine, cg = table["oneshot"], table["refine"], table["cg"]
        payload = human_bytes(once.bytes_per_client)
        budget, memory = human_bytes(self.budget), human_bytes(self.memory)
        too_large = f"{self.d} x {self.d} numbers do not fit the server's {memory}"
        most_features = math.isqrt(int(self.memory / costs.MATRICES))
        limits = Limits(max_bytes=int(self.budget), max_features=most_features)
        size, rounds = (self.d, self.t, limits, self.n), self.rounds or math.inf
        mode = exact_mode(*size, spectrum=self.spectrum, rounds=rounds)
        if mode == "oneshot" and once.bytes_per_client <= self.budget:
            return "oneshot", (
                f"exact in one round, and {payload} per client are within the budget "
                f"of {budget}.{self._few_rows()}"
            )
        if mode == "refine":
            return "refine", (
                f"exact in about {refine.rounds} rounds and "
                f"{human_bytes(refine.bytes_per_client)} per client, where one shot "
                f"takes {payload} ({_MEASURED}).{self._few_rows()}"
            )
        if mode == "cg":
            return "cg", (
                f"{too_large}; conjugate gradients are exact and need vectors only, in "
                f"about {cg.rounds:,} rounds ({_MEASURED}); set max_rounds accordingly."
            )
        if mode == "oneshot":
            return "oneshot", (
                f"{payload} per client are above the budget of {budget}, but whatever "
                f"is smaller comes back to the clients in {refine.rounds} rounds or "
                "more, or is not exact: a projection to 40% of the features was "
                "measured to add 18% to 5740% to the error. "
                f'wire_dtype="float32" halves the bytes.{self._few_rows()}'
            )
        several = self.rounds is not None and self.rounds >= 20
        return "iterative" if several else "projection", (
            f"nothing exact is possible: {too_large}, and conjugate gradients need "
            f"about {cg.rounds:,} rounds. This is an approximation; look at its error."
        )

    def private_advice(self, epsilon: float) -> tuple[str, str]:
        # An eigenvalue of the sum over the largest of its noise, for features alike.
        noise = noise_multiplier(epsilon, _DELTA) * math.sqrt(2.0 * self.d**3)
        signal = self.n * math.sqrt(self.K) / noise
        size = f"the signal is about {signal:.2g} times the noise of one release"
        if signal >= 10.0:
            return "oneshot", (
                f"one private release is enough: {size} (at delta {_DELTA:g}, features "
                "of equal variance)."
            )
        if self.affords(_PRIVATE_ROUNDS) and self.t == 1:
            return "refine", (
                f"{size}, and {_PRIVATE_ROUNDS} rounds under the same epsilon, in 5 "
                "waves, were measured to be better than one at every epsilon for 100 "
                "features of equal variance, and than tuned DP-FedAvg at 0.5 to 2 "
                "(expect less on correlated features)."
            )
        why = "residual refinement takes one target only"
        if self.t == 1:
            why = (
                f"rounds={self.rounds} are too few for refinement, which can end above "
                "predicting the mean in two or three"
            )
        return "oneshot", (
            f"{size}, so expect a model far from the exact one, but {why}. More rows, "
            "fewer features or a larger epsilon help."
        )

    def _few_rows(self) -> str:
        rows = self.n * self.K
        if rows > self.d:
            return ""
        needs = f"do not determine {self.d} coefficients: alpha > 0 does"
        return f" {rows} rows in all {needs}."


def _by_method(*alternatives: Alternative) -> dict[str, Alternative]:
    return {each.method: each for each in alternatives}


def _paper(d: int, rounds: int | None, epsilon: float | None, method: str) -> str:
    r = rounds or _FEDAVG_ROUNDS
    once = d < 4 * r and (epsilon is None or epsilon >= 1)
    says = f"with R = {r}, {'one-shot' if once else 'iterate'}"
    if once:
        differ = f"We differ: {method}, see the reason above."
        ours = "We agree." if method == "oneshot" else differ
    elif method != "oneshot":
        ours = f"We say {method}."
    else:
        ours = (
            "We differ: the rule compares numbers sent with those of R rounds that do "
            "not reach the exact answer."
        )
    return f"Paper: one-shot if d < 4 R and epsilon >= 1; {says}. {ours}"
