"""Whoever comes from FedAvg is told what became of its keywords."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
from flwr.server.strategy import FedAvg as OlderFedAvg
from flwr.serverapp.strategy import FedAvg

from fedridge_flwr import FedRidge, LegacyFedRidge

OURS: list[Any] = [FedRidge, LegacyFedRidge]
ADVICE = [
    (FedRidge, "fraction_fit", "use fraction_train"),
    (FedRidge, "min_fit_clients", "use min_train_nodes: the fewest clients in the"),
    (FedRidge, "min_available_clients", "use min_available_nodes"),
    (FedRidge, "num_rounds", "remove it"),
    (FedRidge, "evaluate_fn", r"give it to start\("),
    (FedRidge, "lambda_", "use alpha"),
    (FedRidge, "train_metrics_aggr_fn", "remove it"),
    (FedRidge, "standardise", "is standardize meant"),
    (FedRidge, "momentum", "there is no such setting"),
    (LegacyFedRidge, "fraction_train", "use fraction_fit"),
    (LegacyFedRidge, "evaluate_metrics_aggregation_fn", "remove it"),
    (LegacyFedRidge, "accept_failures", "remove it"),
]


@pytest.mark.parametrize(("strategy", "keyword", "advice"), ADVICE)
def test_a_keyword_of_others_comes_with_a_remedy(strategy, keyword, advice):
    told = rf"{strategy.__name__} does not take {keyword} \({advice}"
    with pytest.raises(TypeError, match=told):
        strategy(alpha=1.0, **{keyword: 1})


@pytest.mark.parametrize("strategy", OURS)
@pytest.mark.parametrize("flowers", [FedAvg, OlderFedAvg])
def test_every_keyword_of_fedavg_is_known(strategy, flowers):
    ours = inspect.signature(strategy).parameters
    for keyword in set(inspect.signature(flowers).parameters) - set(ours):
        with pytest.raises(TypeError, match=rf"{keyword} \((use|remove|give) "):
            strategy(**{keyword: 1})


def test_all_of_them_are_named_at_once():
    with pytest.raises(TypeError, match=r"fraction_fit \(.*\), inplace \(remove it\)"):
        FedRidge(fraction_fit=1.0, inplace=True)  # type: ignore[call-arg]


class Own(FedRidge):
    """A strategy of a user, with a setting of its own."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.name = name
        super().__init__(**settings)


def test_strategies_can_be_derived_and_copied():
    own = Own("ours", alpha=2.0)
    assert (own.name, own._settings.alpha) == ("ours", 2.0)
    for strategy in OURS:
        copies = copy.deepcopy(strategy(3.0)), pickle.loads(pickle.dumps(strategy(3.0)))
        assert [each._settings.alpha for each in copies] == [3.0, 3.0]
