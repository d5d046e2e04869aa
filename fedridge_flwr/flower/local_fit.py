"""`LocalFit`: a federation in one process, to rehearse a fit without Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..data.local_table import RawRows
from ..errors import PolicyError
from ..federation.answering.respond import Guards, loaded_rows
from ..federation.requests import Request
from ._strategy_base import StrategyBase, settings_of
from .exchange import Reply
from .protocol.answer_records import error_content, reply_content
from .protocol.request_records import request_parts
from .site import Site

_EVALUATED = ("evaluation", "losses")


class LocalFit(StrategyBase):
    """A fit over tables that are all here, as a rehearsal of the federation.

    Requests and answers are those of the wire, read and checked in the same way, so
    that the result is that of the federation.

    Parameters
    ----------
    min_train_nodes : int
        Least number of sites in the model.
    **settings
        As of `FedRidge`.

    Attributes
    ----------
    declined_ : dict of str to str
        Sites whose policy declined a request, and by which rule. A server is not told
        the rule, and it is not in `report_`.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedridge_flwr.flower.local_fit import LocalFit
    >>> a = pd.DataFrame({"bp": [110, 120, 135], "sex": ["f", "f", "m"]})
    >>> b = pd.DataFrame({"sex": ["m", "f"], "bp": [140, 125]})
    >>> fit = LocalFit(formula="bp ~ sex", alpha=0.0)
    >>> fit.run({"a": lambda: a, "b": lambda: b}).model_
    RidgeModel(alpha=0.0, 1 feature, 5 rows, 2 clients, R²=0.7734)
    """

    def __init__(self, *, min_train_nodes: int = 1, **settings: Any) -> None:
        chosen = settings_of(settings, min_clients=min_train_nodes)
        self._start_fit(chosen, fraction_evaluate=0.0)
        self.declined_: dict[str, str] = {}

    def run(
        self, sites: Mapping[str, Callable[[], Any]], guards: Guards | None = None
    ) -> LocalFit:
        """Fit, and return this: `model_`, `report_` and the rest are there then.

        Parameters
        ----------
        sites : mapping of str to callable
            From the name of a site to a function that returns its table or rows.
        guards : Guards, optional
            What every site insists on.
        """
        self._new_fit()
        self.declined_ = {}
        asked = {name: _site(load, guards) for name, load in sites.items()}
        number = 0
        while self._run.round is not None:
            number += 1
            current = self._run.round
            to = list(asked) if current.to is None else list(current.to)
            replies = self._replies(current.ask, asked, to, number)
            self._take_round(replies, to, "no answer")
            self._finish_round("fit", number)
        return self

    def _replies(
        self, ask: Any, sites: Mapping[str, Site], to: list[str], number: int
    ) -> Iterator[Reply]:
        for name in to:
            request = ask.get(name) if isinstance(ask, Mapping) else ask
            if request is not None:
                told = self._config(number, len(to))
                content = self._answer(name, sites[name], request, told)
                yield Reply(name, content, name=name)

    def _answer(
        self, name: str, site: Site, request: Request, config: Mapping[str, Any]
    ) -> Any:
        fields, arrays = request_parts(request)
        told = {**config, **fields}
        try:
            answer = site.respond(
                told, list(arrays.values()), evaluating=request.task in _EVALUATED
            )
            return reply_content(answer, share_names=True)
        except PolicyError as error:
            self.declined_.setdefault(name, str(error))
            return error_content(site.explain(error, told))
        except Exception as error:
            return error_content(site.explain(error, told))


def _site(load: Callable[[], Any], guards: Guards | None) -> Site:
    def rows(request: Request, _: object) -> RawRows | Any:
        return loaded_rows(load(), request, "the table")

    return Site(
        load=rows,
        guards=lambda private: guards or Guards(),
        share_names=True,
        private_only=False,
    )
