"""`recommend`: which method for which problem, beside what the others cost."""

import math
from dataclasses import dataclass

from .._text import human_bytes, text_table
from ..errors import FedRidgeError
from ..privacy.accounting import noise_multiplier
from ..statistics.triangular import fewer_numbers
from .costs import (
    BUDGET,
    MATRICES,
    MEMORY,
    cg_bytes,
    cg_rounds,
    fedavg_bytes,
    oneshot_bytes,
    private_bytes,
    private_refine_bytes,
    projection_bytes,
    refine_bytes,
    refine_rounds,
)

_FEDAVG_ROUNDS = 200
_PRIVATE_ROUNDS = 20
_SEVERAL_ROUNDS = 20
_DELTA = 1e-5
_CLEAR_SIGNAL = 10.0
_PROJECTED = 0.4
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
        Rounds of communication that could be afforded; any number by default.
    epsilon : float, optional
        Privacy of every record that is wanted, if it is.
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
    for name, value in {"d": d, "n": n, "K": K, "t": t}.items():
        _check_whole(name, value)
    if rounds is not None:
        _check_whole("rounds", rounds)
    for name, number, lowest, highest in (
        ("epsilon", epsilon, 1e-6, 1e6),
        ("spectrum", spectrum, 0.0, 10.0),
        ("budget", budget, 1.0, _LARGEST_BUDGET),
        ("memory", memory, 1.0, 1e18),
    ):
        if number is not None:
            _check_number(name, number, lowest, highest)
    case = _Case(d, n, K, rounds, spectrum, t, budget, memory)
    if epsilon is None:
        table = case.exact_table()
        method, reason = case.exact_advice(table)
    else:
        table = case.private_table()
        method, reason = case.private_advice(epsilon)
    return Recommendation(
        method=method,
        bytes_per_client=table[method].bytes_per_client,
        reason=reason,
        alternatives=tuple(table.values()),
        paper=_paper(d, rounds, epsilon, method),
    )


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
        steps, more = refine_rounds(self.spectrum), cg_rounds(self.spectrum)
        fedavg = self.rounds or _FEDAVG_ROUNDS
        m = self._projected()
        factor = " (trapezoid factor)" if fewer_numbers(n, d, t) else ""
        return _by_method(
            Alternative(
                "oneshot", oneshot_bytes(d, t, n), 1, True, f"statistics once{factor}"
            ),
            Alternative(
                "refine",
                refine_bytes(d, t, n, rounds=steps),
                1 + steps,
                True,
                "int8 factor, then vectors",
            ),
            Alternative("cg", cg_bytes(d, t, rounds=more), 1 + more, True, "vectors"),
            Alternative(
                "projection",
                projection_bytes(m, t, n),
                1,
                False,
                f"random projection to {m}",
            ),
            Alternative(
                "iterative", fedavg_bytes(d, t, rounds=fedavg), fedavg, False, "FedAvg"
            ),
        )

    def exact_advice(self, table: dict[str, Alternative]) -> tuple[str, str]:
        once, refine, cg = table["oneshot"], table["refine"], table["cg"]
        payload = human_bytes(once.bytes_per_client)
        holds = MATRICES * self.d**2 <= self.memory
        if once.bytes_per_client <= self.budget and holds:
            return "oneshot", (
                f"exact in one round, and {payload} per client are within the budget "
                f"of {human_bytes(self.budget)}.{self._few_rows()}"
            )
        saves = refine.bytes_per_client < once.bytes_per_client
        if self.affords(refine.rounds) and holds and saves:
            return "refine", (
                f"exact in about {refine.rounds} rounds and "
                f"{human_bytes(refine.bytes_per_client)} per client, where one shot "
                f"takes {payload} ({_MEASURED}).{self._few_rows()}"
            )
        if not holds and self.affords(cg.rounds):
            return "cg", (
                f"{self.d} x {self.d} numbers do not fit the server's "
                f"{human_bytes(self.memory)}; conjugate gradients are exact and need "
                f"vectors only, in about {cg.rounds:,} rounds ({_MEASURED}); set "
                "max_rounds accordingly."
            )
        if holds:
            return "oneshot", (
                f"{payload} per client are above the budget of "
                f"{human_bytes(self.budget)}, but whatever is smaller comes back to "
                f"the clients in {refine.rounds} rounds or more, or is not exact: a "
                "projection to 40% of the features was measured to add 18% to 5740% "
                'to the error. wire_dtype="float32" halves the bytes.'
                f"{self._few_rows()}"
            )
        several = self.rounds is not None and self.rounds >= _SEVERAL_ROUNDS
        method = "iterative" if several else "projection"
        return method, (
            f"nothing exact is possible: {self.d} x {self.d} numbers do not fit the "
            f"server's {human_bytes(self.memory)}, and conjugate gradients need about "
            f"{cg.rounds:,} rounds. This is an approximation; look at its error."
        )

    def private_table(self) -> dict[str, Alternative]:
        d, t = self.d, self.t
        fedavg = self.rounds or _FEDAVG_ROUNDS
        return _by_method(
            Alternative("oneshot", private_bytes(d, t), 1, False, "noisy sums once"),
            Alternative(
                "refine",
                private_refine_bytes(d, _PRIVATE_ROUNDS),
                _PRIVATE_ROUNDS,
                False,
                f"DifferentialPrivacy(rounds={_PRIVATE_ROUNDS})",
            ),
            Alternative(
                "iterative",
                fedavg_bytes(d, t, rounds=fedavg),
                fedavg,
                False,
                "DP-FedAvg, not in this package",
            ),
        )

    def private_advice(self, epsilon: float) -> tuple[str, str]:
        # An eigenvalue of the sum over the largest of its noise, for features alike.
        noise = noise_multiplier(epsilon, _DELTA) * math.sqrt(2.0 * self.d**3)
        signal = self.n * math.sqrt(self.K) / noise
        size = f"the signal is about {signal:.2g} times the noise of one release"
        if signal >= _CLEAR_SIGNAL:
            return "oneshot", (
                f"one private release is enough: {size} (at delta {_DELTA:g}, features "
                "of equal variance)."
            )
        if self.affords(_PRIVATE_ROUNDS) and self.t == 1:
            return "refine", (
                f"{size}, and {_PRIVATE_ROUNDS} rounds under the same epsilon were "
                "measured to be better than one at every epsilon for 100 features of "
                "equal variance (experimental; expect less on correlated features, and "
                "below epsilon 1, where tuned DP-FedAvg was better)."
            )
        why = (
            "residual refinement takes one target only"
            if self.t > 1
            else f"rounds={self.rounds} are too few for refinement, which can end "
            "above predicting the mean in two or three"
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

    def _projected(self) -> int:
        """Return 40% of the features, or as many as the budget allows."""
        m = max(1, round(_PROJECTED * self.d))
        allowed = math.isqrt(int(self.budget / 4)) - self.t - 2
        return max(1, min(m, allowed))


def _by_method(*alternatives: Alternative) -> dict[str, Alternative]:
    return {each.method: each for each in alternatives}


def _paper(d: int, rounds: int | None, epsilon: float | None, method: str) -> str:
    r = rounds or _FEDAVG_ROUNDS
    once = d < 4 * r and (epsilon is None or epsilon >= 1)
    rule = (
        "Paper: one-shot if d < 4 R and epsilon >= 1; with "
        f"R = {r}, {'one-shot' if once else 'iterate'}."
    )
    if once == (method == "oneshot"):
        return f"{rule} We agree." if once else f"{rule} We say {method}."
    if once:
        return f"{rule} We differ: {method}, see the reason above."
    return (
        f"{rule} We differ: the rule compares numbers sent with those of R rounds that "
        "do not reach the exact answer."
    )


def _check_whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise FedRidgeError(
            f"{name} must be a whole number of at least 1, got {value!r}."
        )


def _check_number(name: str, value: object, lowest: float, highest: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not lowest <= value <= highest:  # type: ignore[operator]
        raise FedRidgeError(
            f"{name} must be a number from {lowest:g} to {highest:g}, got {value!r}."
        )
