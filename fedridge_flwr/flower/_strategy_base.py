"""What both strategies share: the fit they drive, its results, and its log."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from .._text import counted
from ..errors import FedRidgeError, LedgerError, PrivacyError
from ..federation.aggregate import Answers
from ..federation.fit_run import FitRun
from ..federation.report import FitReport
from ..federation.requests import AskCounts, AskEvaluation, Request
from ..federation.scope import NOT_ASKED, by_reason
from ..federation.settings import FitSettings
from ..federation.settings_checks import check_waiting, fewest_connected
from ..regression.likelihood.binned import BinnedOutcomes
from ..regression.likelihood.family_model import FamilyModel
from ..regression.model import RidgeModel
from .error_text import LONGEST_NAME
from .evaluation_metrics import pool_evaluations
from .exchange import Reply, fedavg_round_bytes, sample
from .fitted_attributes import FittedAttributes, fitted
from .foreign_keywords import refuse_foreign_keywords
from .protocol.answer_records import NAME_KEY, read_answer
from .protocol.array_records import array_record, model_arrays
from .protocol.request_records import FIT_KEY, SITES_KEY

if TYPE_CHECKING:
    from ..federation.ledger.ledger_runs import Receipt

log = logging.getLogger("flwr")
NO_ROUND = -1
_Node = TypeVar("_Node")
_CLIENTS = re.compile(r"\bclients? \d+(, \d+)*\b")
_HOW_ALPHA = {
    "server": "chosen by leaving clients out (statistics of every client are kept)",
    "clients": "chosen by the clients in one more round (their statistics are kept)",
    "gcv": "chosen by generalized cross-validation",
    "groups": "chosen by leaving groups of clients out",
    "noise": "chosen by the noisy statistics",
}


class ClientNames:
    """The names that people know clients by; node ids stay the keys.

    A name is from the registration of a SuperNode, or what a client says of itself. It
    is a label and never an identity: those who share one are told apart by their ids.

    Examples
    --------
    >>> names = ClientNames()
    >>> for node, name in {"7": "clinic-a", "8": "clinic-b", "9": "clinic-b"}.items():
    ...     names.tell(node, name)
    >>> names.of("7"), names.of("8"), names.of("6")
    ('clinic-a', 'clinic-b (8)', '6')
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._registered: set[str] = set()

    def register(self, grid: Any) -> None:
        """Take the names that the SuperNodes of a grid were registered with."""
        known = {str(n.node_id): n.name for n in getattr(grid, "get_nodes", tuple)()}
        for client, name in known.items():
            self.tell(client, name)
        self._registered |= {client for client, name in known.items() if name}

    def tell(self, client: str, name: object) -> None:
        """Take a name if it is one: a short printable line, and not like an id."""
        if client in self._registered or not isinstance(name, str):
            return
        short = 0 < len(name) <= LONGEST_NAME and name == name.strip()
        if short and name.isprintable() and not name.isdigit():
            self._names[client] = name

    def of(self, client: str) -> str:
        """Return what a client is called, its id where it has no name."""
        return self.among([client]).get(client, client)

    def lasting(self, client: str) -> str | None:
        """Return the name that a client was registered with.

        It is the same in every run, and known before the client answers. Its key is no
        name: without authentication Flower makes a new one whenever a SuperNode starts,
        and in every simulation.
        """
        return self._names.get(client) if client in self._registered else None

    def in_ledger(self, client: str) -> str:
        """Return the name of a client in a ledger; its id if it has none.

        Where nodes are registered by name, what others say of themselves does not
        count: they could take the place of a site that is away.
        """
        if client in self._registered or not self._registered:
            return self._names.get(client, client)
        return client

    def among(self, clients: Iterable[str]) -> dict[str, str]:
        """Return what those of these clients are called that have a name."""
        shared = Counter(self._names.values())
        found = {c: self._names[c] for c in clients if c in self._names}
        return {
            c: name
            if name == c or (shared[name] == 1 and "(" not in name)
            else f"{name} ({c})"
            for c, name in found.items()
        }

    def in_text(self, text: str) -> str:
        """Return a text in which clients go by their names."""
        known = self.among(self._names)

        def named(found: re.Match[str]) -> str:
            return re.sub(r"\d+", lambda each: known.get(each[0], each[0]), found[0])

        return _CLIENTS.sub(named, text)


class StrategyBase(FittedAttributes):
    """A strategy of either API: drives a `FitRun` and gives access to its results."""

    _last_round: int
    _names: ClientNames
    _arrays: ArrayRecord
    _requests: dict[str, Request]
    _least: int

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Say what to do about keywords of other strategies.

        Here and not in `__init__`, whose signature is what editors and mypy check.
        """
        refuse_foreign_keywords(cls, given)
        return super().__new__(cls)

    # ---- rounds -----------------------------------------------------------------

    def _start_fit(
        self,
        settings: FitSettings,
        fraction_evaluate: float,
        waiting: int | None = None,
    ) -> None:
        """Keep the settings and be ready for the first round."""
        if settings.privacy is not None and fraction_evaluate > 0:
            raise PrivacyError(
                "fraction_evaluate must be 0 with privacy: errors counted on the "
                "clients' rows are a further release about them. Evaluate on rows that "
                "are public, or the server's own: start(grid, evaluate_fn=f), "
                "f(server_round, arrays)."
            )
        if settings.secure is not None and fraction_evaluate > 0:
            raise FedRidgeError(
                "fraction_evaluate must be 0 with secure sums: errors counted on the "
                "rows of single clients would tell of them. Evaluate on rows of the "
                "server's own: start(grid, evaluate_fn=f), f(server_round, arrays)."
            )
        check_waiting(settings, waiting)
        self._settings = settings
        self._least = fewest_connected(settings)
        self._new_fit()

    def _new_fit(self) -> None:
        if self._settings.ledger is not None and hasattr(self, "_run"):
            self._run.release_ledger()
        self._run, self._last_round = FitRun(self._settings), NO_ROUND
        self._names = ClientNames()
        self._not_asked: tuple[Sequence[str], str] = (), ""

    def _sample(
        self, nodes: Sequence[_Node], name: str, key: Callable[[_Node], str]
    ) -> list[_Node]:
        """Return the nodes to ask by a fraction, and keep who the others are.

        The report names them: their rows are not in a model that looks complete.
        """
        fraction = getattr(self, name)
        if fraction == 1.0:
            return list(nodes)
        chosen = sample(nodes, fraction, self._settings.min_clients, trains=True)
        asked = set(map(key, chosen))
        others = [client for client in map(key, nodes) if client not in asked]
        self._not_asked = others, f"{NOT_ASKED} ({name}={fraction:g})"
        return chosen

    def _config(self, server_round: int, sites: int) -> dict[str, Any]:
        """Return what every request says beside what it asks for."""
        named = {} if self._run.name is None else {FIT_KEY: self._run.name}
        return {"server-round": server_round, SITES_KEY: sites, **named}

    def _trains(self, server_round: int) -> bool:
        """Whether the fit has anything to ask in this train round."""
        return server_round == 1 or self._run.failed or not self._is_over

    @property
    def _is_over(self) -> bool:
        """Whether there is no train round to come."""
        return self._run.round is None or self._run.counts_losses

    def _hand_over(
        self,
        replies: Iterable[Reply],
        into: Answers,
        ask: Request | Mapping[str, Request],
        asked: Collection[str],
        silence: str,
    ) -> None:
        """Read every reply as it arrives, and name the clients that did not answer."""
        for reply in replies:
            client, content = reply.client, reply.content
            self._run.bytes_up += reply.size
            self._names.tell(client, reply.name or _name_in(content))
            if self._settings.ledger is not None:
                client = self._claimed(client, into)
            if content is None:
                (into.crash if reply.crashed else into.refuse)(client, reply.error)
                continue
            request = ask.get(reply.client) if isinstance(ask, Mapping) else ask
            if request is not None:
                into.take(client, partial(read_answer, content, request))
        if self._settings.ledger is not None:
            asked = [self._names.in_ledger(client) for client in asked]
        into.refuse_silent(asked, silence)

    def _take_round(
        self, replies: Iterable[Reply], asked: Collection[str], silence: str
    ) -> None:
        """Hand the replies of the current round over."""
        current = self._run.round
        if current is not None:
            ask = self._requests if self._settings.ledger is not None else current.ask
            try:
                self._hand_over(replies, current.into, ask, asked, silence)
                (others, why), self._not_asked = self._not_asked, ((), "")
                if others:
                    self._hand_over((), current.into, ask, others, why)
            except BaseException:  # a person may interrupt it, and start again
                self._run.release_ledger()
                raise

    def _keep_answers(self) -> None:
        """Let what has arrived outlive a crash: the next answer may take long."""
        if self._run.round is not None:
            self._run.round.into.keep()

    def _finish_round(self, where: str, server_round: int) -> RidgeModel | None:
        """Go on with the fit, and log who is left out and how far it has come."""
        run = self._run
        answers = None if run.round is None else run.round.into
        missed = "left out" if run.report is None else "did not answer again"
        try:
            run.finish_round(self._complete)
        except FedRidgeError as error:
            error.args = (self._names.in_text(str(error)),)
            raise
        finally:
            failures = {} if answers is None else answers.failures
            if failures:
                named = {self._names.of(c): why for c, why in failures.items()}
                for clients, reason in by_reason(named):
                    log.warning("%s: %s %s: %s", where, clients, missed, reason)
        if self._settings.rounds > 1 and run.progress:
            log.info("%s: %s", where, run.progress)
        if run.model is not None and run.report is None:
            self._arrays = array_record(model_arrays(run.model))
        if run.report is not None and self._is_over:
            self._last_round = server_round
            for client, reason in run.report.suspects.items():
                name = self._names.of(client)
                log.warning("%s: client %s is suspect: %s", where, name, reason)
            if run.report.wire_error is not None:
                log.info(
                    "%s: by float32, coefficients are right to %.1e of their size",
                    where,
                    run.report.wire_error,
                )
        return run.model

    def _complete(self, report: FitReport) -> None:
        """Add names and costs, before the model is handed over with the report."""
        run = self._run
        self._name_clients(report)
        if run.model is None:
            return
        self._arrays = array_record(model_arrays(run.model))
        if run.bytes_up:  # in a rehearsal nothing is sent
            run.compare_bytes(fedavg_round_bytes(self._arrays))

    def _name_clients(self, report: FitReport) -> None:
        told = [*report.participants, *report.failures, *report.evaluation_failures]
        # In a ledger clients go by their names already.
        own = told if self._settings.ledger is not None else []
        report.names = {c: c for c in own} | self._names.among(told)
        if (result := self._run.result) is not None:
            result.no_residuals = self._names.in_text(result.no_residuals)

    # ---- ledger -----------------------------------------------------------------

    def remove(self, client: str) -> Receipt:
        """Remove a client from the ledger when its site withdraws; no client is asked.

        After a fit, `model_`, `statistics_` and `report_` are those of the other
        clients. Whatever was saved, printed or sent before still contains the client's
        rows.

        Parameters
        ----------
        client : str
            Its name in the ledger.

        Returns
        -------
        Receipt
            The client, the time, the hash of the total before and after, and a bound on
            its error.
        """
        from ..federation.ledger.contribution_ledger import Ledger

        if self._settings.ledger is None:
            raise FedRidgeError("only a strategy with ledger=... can remove a client.")
        with Ledger(self._settings.ledger, create=False) as ledger:
            receipt = ledger.remove(client)
            if len(ledger):
                self._run.without(client, ledger.total())
            else:
                self._new_fit()
        return receipt

    def _ask(self, ask: Any, nodes: Iterable[str]) -> dict[str, Request]:
        """Return the request for each node, and keep them to read the answers by.

        With a ledger, nodes that answered before an interruption are not asked again.
        """
        self._requests = requests_to(ask, nodes)
        if self._settings.ledger is not None and self._run.round is not None:
            self._requests = self._ask_missing(self._run.round.into)
        return self._requests

    def _ask_missing(self, into: Any) -> dict[str, Request]:
        known = {node: self._names.lasting(node) or "" for node in self._requests}
        shared = [each for each, n in Counter(known.values()).items() if each and n > 1]
        if shared:
            raise LedgerError(
                f"two nodes are registered as {shared[0]!r}, so a ledger cannot tell "
                "them apart: give every SuperNode a name of its own."
            )
        missing = [node for node in known if not into.has_answered(known[node])]
        if not missing:
            return {}
        request = into.request_with_uploads(self._requests[missing[0]])
        return dict.fromkeys(missing, request)

    def _claimed(self, node: str, into: Any) -> str:
        """Return the name of a node in the ledger, which no other node may have."""
        name = self._names.in_ledger(node)
        if hasattr(into, "claim"):
            into.claim(name, node)
        return name

    # ---- evaluation -------------------------------------------------------------

    def _evaluation_request(self) -> Request:
        gathered, model = fitted(self._run.result).gathered, self.model_
        # The arrays of the model are on mapped columns.
        ask: Request = AskEvaluation(model)
        if isinstance(model, FamilyModel):
            ask = AskCounts(model.family, model.labels, model.points())
        found: Request = gathered.about(ask)
        return found

    def _finish_evaluation(
        self, answers: Answers, up: int, down: int, began: float
    ) -> dict[str, float]:
        """Pool what the clients evaluated, and put it into the report."""
        report = self.report_
        parts = list(answers.parts.values())
        if self._settings.family != "gaussian":
            pooled, note = self._pool_counts(parts), ""
        else:
            pooled, note = pool_evaluations(parts)
        report.bytes_up += up
        report.bytes_down += down
        report.seconds["evaluate"] = time.perf_counter() - began
        report.evaluation, report.evaluation_failures = pooled, answers.failures
        report.evaluation_note = note
        self._name_clients(report)
        if note:
            log.warning("aggregate_evaluate: %s", note)
        return pooled

    def _pool_counts(self, parts: list[BinnedOutcomes]) -> dict[str, float]:
        """Return the scores of all evaluation rows, and keep the calibration."""
        if not parts:
            return {}
        whole = sum(parts[1:], start=parts[0])
        self.report_.calibration = whole.calibration()
        return {**whole.scores(), "num-examples": float(whole.n_rows)}

    # ---- log --------------------------------------------------------------------

    def _describe_settings(self) -> str:
        settings = self._settings
        alpha = _HOW_ALPHA.get(settings.selection or "", f"{settings.alpha:g}")
        if settings.family != "gaussian" and settings.selection is not None:
            alpha = "chosen by the deviance of clients left out"
        return (
            f"{self._describe_rounds()}, alpha {alpha}, intercept "
            f"{settings.fit_intercept}, standardize {settings.standardize}, valid "
            f"answers needed: {settings.min_clients}"
        )

    def _describe_rounds(self) -> str:
        settings, privacy = self._settings, self._settings.privacy
        secure = "a secure sum in five exchanges (experimental)"
        if privacy is not None:
            several = settings.secure is not None
            rounds = privacy.rounds if several else settings.rounds
            return (
                f"{counted(rounds, 'round')}{f', each {secure}' if several else ''}, "
                f"private with epsilon {privacy.epsilon:g} and delta "
                f"{privacy.delta:g} for each record ({privacy.trust} trust)"
            )
        if settings.secure is not None:
            return secure
        small = ["to count classes"] * (settings.class_weight == "balanced")
        small += ["for the feature map"] * settings.map_needs_data
        first = f", after a small round {' and one '.join(small)}" if small else ""
        if settings.family != "gaussian":
            return f"{settings.family}, at most {settings.rounds} rounds{first}"
        if settings.one_shot:
            more = f", and one for {settings.standard_errors} standard errors"
            return f"one round{first}{more if settings.asks_residuals else ''}"
        return f"{settings.mode}, at most {settings.max_rounds} rounds{first}"

    def _log_report(self) -> None:
        """Log the report, and as a warning that it is not of all clients."""
        report = self._run.report
        warned = report.incomplete if report is not None and report.failures else ""
        if warned:
            log.warning("%s", warned)
        if report is not None and log.isEnabledFor(logging.INFO):
            told = report.text(diagnostics=False).removeprefix(warned)
            for line in told.strip("\n").splitlines():
                log.info("%s", line)


def _name_in(content: RecordDict | None) -> object:
    """Return what a client says it is called."""
    for key in ("config", "fitres.metrics"):
        record: Any = None if content is None else content.get(key)
        if isinstance(record, ConfigRecord) and NAME_KEY in record:
            return record[NAME_KEY]
    return None


def requests_to(
    ask: Request | Mapping[str, Request], clients: Iterable[str]
) -> dict[str, Request]:
    """Return the request for each client, where all are asked alike or each its own."""
    if isinstance(ask, Mapping):
        return {client: ask[client] for client in clients if client in ask}
    return dict.fromkeys(clients, ask)


def settings_of(
    arguments: Mapping[str, Any], *, min_clients: int, older: bool = False
) -> FitSettings:
    """Return the settings among the arguments of a strategy, which are named alike."""
    if older and arguments["secure"] is not None:
        raise FedRidgeError(
            "secure sums are not available with LegacyFedRidge: the older API sends "
            "one request to all clients, and its clients remember nothing between "
            "requests. Use FedRidge(secure=SecureSum()).start(grid) with "
            "ridge_client_app."
        )
    names = {each.name for each in fields(FitSettings) if each.init}
    given = {name: value for name, value in arguments.items() if name in names}
    return FitSettings(**given, min_clients=min_clients)


def model_metrics(model: RidgeModel) -> dict[str, int | float]:
    """Return what strategies report of a model, in Flower's spelling."""
    found: dict[str, int | float] = {"num-clients": model.n_clients_}
    if model.n_rows_ is not None:
        found["num-examples"] = model.n_rows_
    return found if model.r2_ is None else {**found, "train-r2": model.r2_}
