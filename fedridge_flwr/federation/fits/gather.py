"""One contribution from every client, through a feature map that all agree on."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ..._text import counted
from ...data.coding import Coding
from ...data.names import Columns, Names
from ...data.schema import Schema
from ...errors import FedRidgeError, NotEnoughClientsError
from ...features import FeatureMap
from ...regression.model import RidgeModel
from ...statistics.encoding import EXACT_FORMS
from ..aggregate import Aggregate, Answers
from ..agreement.columns import Agreement, agree_on_columns, reason_to_refuse
from ..agreement.table_agreement import TableAnswers
from ..requests import AskClasses, AskColumns, AskTable, Request
from ..round import Round
from ..scope import NOT_ASKED, by_reason
from ..screening.outliers import FEWEST, TOO_FEW
from ..screening.screener import Screener
from ..settings import MORE_AGREEMENTS, FitSettings

STILL_IN_MAP = " (its columns are still counted in the feature map or coding)"
_GONE = "not connected any more"


@dataclass
class ColumnAnswers(Answers):
    """Moments of the columns of clients, on which a feature map depends."""

    agreement: Agreement | None = None

    def agree(self, settings: FitSettings) -> None:
        """Reject columns that are not those of most; bring the rest into one order."""
        for client, part in list(self.parts.items()):
            reason = reason_to_refuse(part.schema, settings)
            if reason is not None:
                self.reject(client, reason)
        sizes: dict[Schema, tuple[int, int]] = {}
        for part in self.parts.values():
            clients, rows = sizes.get(part.schema, (0, 0))
            sizes[part.schema] = clients + 1, rows
        if not sizes:
            return
        self.agreement = agreed = agree_on_columns(sizes, settings)
        for client, part in list(self.parts.items()):
            if part.schema in agreed.rejected:
                self.reject(client, agreed.rejected[part.schema])
            else:
                self.parts[client] = part.arranged(agreed.columns.columns)


@dataclass
class Gathered:
    """The contributions of all clients, their total, and who is left out.

    Attributes
    ----------
    settings : FitSettings
        What is solved.
    screener : Screener
        Who stands out.
    table : TableAnswers
        What clients said of their tables, and the coding, if there is a formula.
    labels : Answers
        How many rows each client has of each class, if classes are balanced.
    columns : ColumnAnswers
        What clients sent of their columns, if the feature map needed it.
    answers : Aggregate
        Their contributions.
    total : statistics
        The sum over all participants.
    rounds : int
        How many rounds it took.
    """

    settings: FitSettings
    screener: Screener
    answers: Aggregate
    table: TableAnswers = field(default_factory=TableAnswers)
    labels: Answers = field(default_factory=Answers)
    columns: ColumnAnswers = field(default_factory=ColumnAnswers)
    feature_map: FeatureMap | None = None
    total: Any = None
    rounds: int = 0

    @property
    def failures(self) -> dict[str, str]:
        """Clients that are not in the total, and why."""
        return {
            **self.table.failures,
            **self.labels.failures,
            **self.columns.failures,
            **self.answers.failures,
        }

    @property
    def remarks(self) -> dict[str, str]:
        """What is unusual about clients, and may well be right."""
        found = self.screener.remarks
        for more in ("stale", "returned"):
            found = found | getattr(self.answers, more, {})
        filled_in = self.table.filled if self.table.parts else {}
        for client, filled in filled_in.items():
            both = filter(None, [filled, found.get(client)])
            found = found | {client: "; ".join(both)}
        if self.settings.classes is None:
            return found
        from ..agreement.class_agreement import lookalikes

        told = self.labels.parts or getattr(self.answers, "labels", {})
        return found | lookalikes(told)

    @property
    def coding(self) -> Coding | None:
        """How the columns of tables become numbers, if there is a formula."""
        return self.table.coding

    @property
    def members(self) -> list[str]:
        """Clients that took part in the rounds before this one; none if it is first."""
        first = self.labels.participants or self.table.participants
        return self.columns.participants or first

    def about(self, request: Any) -> Any:
        """Return a request about the columns that were agreed on."""
        return replace(
            request,
            feature_map=self.feature_map,
            columns=self.wanted,
            coding=self.coding,
            classes=self.classes,
            class_weight=self.class_weight,
        )

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The labels of y, as far as they are known, if y has labels."""
        if self.settings.classes is None:
            return None
        return self._known_classes or getattr(self.answers, "classes", ())

    @property
    def _known_classes(self) -> tuple[str, ...]:
        """The classes, if they are known before the contributions."""
        if self.settings.classes != "auto":
            return tuple(self.settings.classes)
        told = self.class_weight if self.labels.parts else ()
        return tuple(label for label, _ in told)

    @property
    def class_weight(self) -> tuple[tuple[str, float], ...]:
        """By how much the rows of each class count, where that is not the same."""
        given = self.settings.class_weight
        if given is None:
            return ()
        if given != "balanced":
            return tuple(given.items())
        from ..agreement.class_agreement import balanced

        return balanced(self.labels.parts.values())

    @property
    def wanted(self) -> Columns | None:
        """The columns in the order that requests ask for, as far as it is known.

        Names that some client shares with the server are not passed on to the others.
        """
        names = self.names
        if names is None or not any(names):
            return None
        if self.settings.schema is not None or self.coding is not None:
            return names
        return Columns(*(each and each.hidden for each in names))

    @property
    def names(self) -> Columns | None:
        """Names of the columns of the model, as far as the server knows them."""
        if self.coding is not None:
            names, targets = self.coding.names, self.coding.target_names
            return Columns(Names.of(names), Names.of(targets))
        schema = self.settings.schema
        for agreement in (self.columns.agreement, self.answers.agreement):
            schema = schema if agreement is None else agreement.columns
        return None if schema is None else schema.columns

    @property
    def raw_features(self) -> int:
        """Number of columns before the map; all participants have the same."""
        raw: int | None = self.total.schema.n_features_in
        if raw is None:
            raise FedRidgeError("the clients did not say how many columns they have.")
        return raw

    @contextmanager
    def naming_suspects(self, gone: Mapping[str, str] | None = None) -> Iterator[None]:
        """Let numerical errors name the clients that may have caused them."""
        try:
            yield
        except (ArithmeticError, ValueError) as error:
            known = self.failures if gone is None else gone
            explained = self.screener.explain(error, known)
            if explained is error:
                raise
            raise explained from error

    def on_raw_columns(self, model: RidgeModel) -> RidgeModel:
        """Return the model with the feature map and the names that the server knows."""
        if self.feature_map is not None:
            model = model.with_feature_map(self.feature_map, self.raw_features)
        model.features, model.targets = self.names or Columns()
        model.coding = self.coding
        if self.classes is None:
            return model
        from ...regression.classification import RidgeClassifierModel

        return RidgeClassifierModel.from_model(model, self.classes)

    def new_answers(self) -> Aggregate:
        """Return what adds the contributions up."""
        settings, feature_map = self.settings, self.feature_map
        if settings.ledger is not None:
            from .ledger_fit import LedgerAggregate

            return LedgerAggregate(settings=settings, feature_map=feature_map)
        if settings.classes is None:
            return Aggregate(settings=settings, feature_map=feature_map)
        from ..agreement.class_agreement import ClassAggregate

        return ClassAggregate(
            settings=settings, feature_map=feature_map, asked=self._known_classes
        )

    def agree_without(self, gone: Iterable[str]) -> None:
        """Agree on coding and map again, without clients that have gone."""
        for client in gone:
            for answers in (self.table, self.labels, self.columns):
                if client in answers.parts:
                    answers.reject(client, self.answers.failures[client])
        if self.settings.formula is not None and self.table.parts:
            self.table.agree(self.settings.formula)
        self.agree_on_map()

    def agree_on_map(self) -> None:
        """Put numbers into the feature map, from the columns of all that take part."""
        if not self.settings.map_needs_data:
            return
        self.columns.agree(self.settings)
        self.screener.compare_columns(self.columns)
        moments, rule = list(self.columns.parts.values()), self.settings.feature_map
        if len(moments) < self.settings.min_clients or rule is None:
            raise too_few(self.columns, self.settings)
        self.feature_map = rule.resolve(sum(moments[1:], start=moments[0]))


def gather(settings: FitSettings, request: Request) -> Generator[Round, None, Gathered]:
    """Ask every client for its contribution, and add them up.

    The coding of a formula, and a map that needs data, cost a round each before. If
    clients go away after those, both are made again without them, so that the model is
    that of the others to the last digit, as if those had never been there.
    """
    screener = Screener(settings, summary=TOO_FEW if settings.screens else "")
    answers = Aggregate(settings=settings)
    found = Gathered(settings, screener, answers, feature_map=settings.feature_map)
    yield from _agree_on_coding(found)
    if settings.class_weight == "balanced":
        yield Round(found.about(AskClasses()), found.labels)
        found.rounds += 1
        if len(found.labels.participants) < settings.min_clients:
            raise too_few(found.labels, settings)
    if settings.map_needs_data:
        ask = replace(found.about(AskColumns()), feature_map=None)
        yield Round(ask, found.columns, to=found.members or None)
        found.rounds += 1
        found.agree_on_map()
    for attempts_left in reversed(range(1 + MORE_AGREEMENTS)):
        members, agreed = found.members, (found.coding, found.class_weight)
        found.answers = found.new_answers()
        yield Round(found.about(request), found.answers, to=members or None)
        found.rounds += 1
        found.answers.refuse_silent(members, _GONE)
        found.total = found.answers.result()
        if settings.screens and len(found.answers.participants) >= FEWEST:
            found.total = screener.compare(found.answers, found.total)
        gone = [client for client in members if client in found.answers.failures]
        if not gone:
            break
        if attempts_left:
            found.agree_without(gone)
            same = agreed == (found.coding, found.class_weight)
            if same and not settings.map_needs_data:
                break
        else:
            for client in gone:
                found.answers.failures[client] += STILL_IN_MAP
    if found.total is None or len(found.answers.participants) < settings.min_clients:
        raise too_few(found.answers, settings)
    if found.total.form in EXACT_FORMS:
        if found.coding is not None:
            schema, names = found.total.schema, found.names or Columns()
            known = replace(schema, features=names.features, targets=names.targets)
            found.total = replace(found.total, schema=schema.with_names_of(known))
        elif settings.feature_names is not None:
            found.total = found.total.with_feature_names(settings.feature_names)
    return found


def _agree_on_coding(found: Gathered) -> Generator[Round, None, None]:
    """Ask what the tables are like, unless the formula alone has to be enough."""
    formula = found.settings.formula
    if formula is None:
        return
    if found.settings.privacy is not None:
        found.table.coding = Coding.public(formula)
        return
    yield Round(AskTable(formula), found.table)
    found.rounds += 1
    found.table.agree(formula)
    if len(found.table.participants) < found.settings.min_clients:
        raise too_few(found.table, found.settings)


def drop_members(
    found: Gathered,
    members: dict[str, Any],
    lost: Iterable[str],
    reasons: Mapping[str, str],
) -> dict[str, str]:
    """Take clients out that went away after the first round, and return why."""
    dropped = {}
    for client in lost:
        reason = reasons.get(client, _GONE)
        if found.settings.map_needs_data:
            reason += STILL_IN_MAP
        dropped[client] = f"round {found.rounds}: {reason}"
        del members[client]
    return dropped


def refuse_too_few(found: Gathered, remaining: int, gone: Mapping[str, str]) -> None:
    """Raise that too few clients are left in a later round, if so, and who has gone."""
    needed = found.settings.min_clients
    if remaining < max(needed, 1):
        left = "; ".join(f"client {c}: {r}" for c, r in gone.items())
        raise NotEnoughClientsError(
            f"{counted(remaining, 'client')} left in round {found.rounds}, at least "
            f"{needed} needed. {left}"
        )


def too_few(answers: Answers, settings: FitSettings) -> NotEnoughClientsError:
    """Return the error that says how many answers there were, and what failed."""
    failures = answers.failures
    valid = counted(len(answers.participants), "valid answer")
    lines = [f"{valid}, at least {settings.min_clients} needed."]
    grouped = by_reason(failures, 10)
    lines += [f"  {clients}: {reason}" for clients, reason in grouped[:10]]
    if len(grouped) > 10:
        lines.append(f"  ... and {len(grouped) - 10} more")
    if failures and answers.participants:
        lines.append(
            "  min_train_nodes (older API: min_fit_clients) is the fewest clients in "
            "the model; in FedAvg it is the fewest to sample."
        )
    nobody = failures and not answers.participants
    asked = {c for c, why in failures.items() if not why.startswith(NOT_ASKED)}
    if nobody and asked <= answers.crashed:
        lines.append(
            "  No client understood the request: is their app ridge_client_app("
            "load_data), or a RidgeClient?"
        )
    return NotEnoughClientsError("\n".join(lines))
