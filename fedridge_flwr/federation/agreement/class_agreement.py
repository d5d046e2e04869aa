"""`ClassAggregate`: contributions of clients that may each lack some of the classes."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...data.labels import MOST_CLASSES, are_canonical, sorted_labels, target_labels
from ...errors import FedRidgeError
from ...statistics.class_targets import are_class_targets, spread_out, with_classes
from ..aggregate import Aggregate, Contribution

_NO_LABELS = (
    "sent no labels of classes: does its y have labels, and is the same fedridge-flwr "
    "installed on both sides?"
)
_NO_CLASSES = "sent targets that no rows of these classes can have"


@dataclass
class ClassAggregate(Aggregate):
    """A running total whose targets are the classes of all clients together.

    Every client has one target for each class of its own. A class that it lacks is the
    constant -1, so that all are extended to the same classes, exactly.

    Parameters
    ----------
    asked : tuple of str
        The classes that clients were asked for; empty if each sent its own.

    Attributes
    ----------
    classes : tuple of str
        Those, or the labels of all clients that are in the total.
    labels : dict of str to tuple of str
        The labels that each client sent.
    """

    asked: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def add(self, client: str, part: Contribution) -> None:
        """Add one contribution, and note the classes of its client."""
        self.labels.setdefault(client, part.schema.target_names or ())
        super().add(client, part)

    def _reason_to_refuse(self, part: Contribution) -> str | None:
        reason = super()._reason_to_refuse(part)
        return self._no_classes(part) if reason is None else reason

    def _no_classes(self, part: Any) -> str | None:
        labels = part.schema.target_names
        if part.form not in ("full", "opening") or labels is None:
            return _NO_LABELS
        if self.asked and labels != target_labels(self.asked):
            return "sent other classes than those of the server"
        if len(labels) > MOST_CLASSES or not are_canonical(labels):
            return "sent labels of classes that are not valid"
        if part.form != "full" or not part.total_weight > 0:
            return None
        complete = len(self.asked) != 2
        return None if are_class_targets(part, complete=complete) else _NO_CLASSES

    def result(self) -> Any:
        """Return the total over the classes of all clients, or None without any."""
        if self.asked:
            self.classes = self.asked
        else:
            self._agree_on_classes()
        return super().result()

    def _agree_on_classes(self) -> None:
        """Extend all contributions to the classes that any client has."""
        found: set[str] = set()
        # Those of most clients first: who invents classes does not exclude others.
        for key, group in sorted(self._groups.items(), key=_largest_first):
            more = {label for c in group.clients for label in self.labels[c]}
            if len(found | more) > MOST_CLASSES:
                del self._groups[key]
                self._reject_all(
                    group,
                    f"has {len(more - found)} further classes, and at most "
                    f"{MOST_CLASSES} are allowed: set classes=[...] on the server",
                )
            else:
                found |= more
        self.classes = sorted_labels(found)
        if not self._groups:
            return
        _refuse_one_class(found)
        self._extend(target_labels(self.classes))

    def _extend(self, labels: tuple[str, ...]) -> None:
        groups = self._start_again()
        for (schema, _), group in groups.items():
            total = with_classes(group.running.total(), labels)
            own = schema.target_names or ()
            for client in group.clients:
                if client in self.parts:
                    self.parts[client] = with_classes(self.parts[client], labels)
                if client in self.scales:
                    weight, means, squares = self.scales[client]
                    if means is not None:
                        means = spread_out(means, own, labels, -1.0)
                    squares = spread_out(squares, own, labels, 0.0)
                    self.scales[client] = weight, means, squares
            self._merge_group(group.clients, total)

    def _merge_group(self, clients: list[str], total: Any) -> None:
        first, *others = clients
        self._merge(first, total)
        self._groups[total.schema, total.form].clients.extend(others)


def balanced(counts: Iterable[Mapping[str, int]]) -> tuple[tuple[str, float], ...]:
    """Return n / (K n_k) for each of K classes: all then weigh the same together.

    Examples
    --------
    >>> balanced([{"fir": 3}, {"fir": 3, "oak": 2}])
    (('fir', 0.6666666666666666), ('oak', 2.0))
    """
    total = sum((Counter(each) for each in counts), Counter[str]())
    if not total:
        return ()
    _refuse_one_class(total)
    n_rows, n_classes = total.total(), len(total)
    labels = sorted_labels(total)
    return tuple((label, n_rows / (n_classes * total[label])) for label in labels)


def lookalikes(labels: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return whose labels differ only in spelling from those of most clients.

    Both spellings are classes: which is right, if any, the server cannot know.

    Examples
    --------
    >>> lookalikes({"a": ["yes", "no"], "b": ["yes"], "c": ["Yes", "no"]})
    {'c': "its class 'Yes' is 'yes' at other clients: are they the same class?"}
    >>> lookalikes({"a": ["0", "1"], "b": ["0"], "c": ["true"]})
    {'c': "its class 'true' is '1' at other clients: are they the same class?"}
    """
    counts = Counter(label for each in labels.values() for label in set(each))
    usual: dict[str, str] = {}
    for label, _ in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        usual.setdefault(_spoken(label), label)
    found = {}
    for client, each in labels.items():
        for label in each:
            other = usual[_spoken(label)]
            if other != label:
                found[client] = (
                    f"its class {label!r} is {other!r} at other clients: are "
                    "they the same class?"
                )
    return found


def _spoken(label: str) -> str:
    text = " ".join(label.casefold().split())
    return {"false": "0", "true": "1"}.get(text, text)


def _refuse_one_class(labels: Collection[str]) -> None:
    if len(labels) < 2:
        raise FedRidgeError(
            "all rows of all clients are of one class: at least two are needed to tell "
            "classes apart."
        )


def _largest_first(each: Any) -> Any:
    (schema, _), group = each
    clients, rows = group.size
    return -clients, -rows, schema.target_names
