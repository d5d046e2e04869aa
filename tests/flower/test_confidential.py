"""No row, column name, file or secret in logs, errors, reports or beside the arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from canaries import (
    COLUMNS,
    NUMBERS,
    PATH,
    SECRETS,
    WORD,
    WatchedGrid,
    context_of,
    rows,
    sung,
    watching,
)
from fakes import node_context
from flwr.clientapp import ClientApp
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import ServerApp

from fedridge_flwr import (
    DataError,
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    LegacyFedRidge,
    NotEnoughClientsError,
    PrivacyLedger,
    PrivacyPolicy,
    RidgeClient,
    RidgeModel,
    SecureSum,
    SitePolicy,
    SufficientStatistics,
    ridge_client_app,
)
from fedridge_flwr.app.launch import LocalSuperLink
from fedridge_flwr.app.run_config import read_settings
from fedridge_flwr.federation.reporting.page import report_page
from fedridge_flwr.federation.reporting.site_text import sites_csv

K = 4
Load = Callable[[Any], Any]


def load_data(context: Any) -> Any:
    return rows(int(context.node_config["partition-id"]))


def load_unweighted(context: Any) -> Any:
    return load_data(context)[:2]


def native(load: Load, **options: Any) -> ClientApp:
    return ridge_client_app(load, **options)


def numpy_app(load: Load, **options: Any) -> ClientApp:
    def client_fn(context: Any) -> Any:
        X, y, *weight = load(context)
        weighed = {"sample_weight": weight[0]} if weight else {}
        client = RidgeClient(X, y, context=context, **weighed, **options)
        return client.to_client()

    return ClientApp(client_fn=client_fn)


def fit(strategy: Any, grid: WatchedGrid) -> None:
    if isinstance(strategy, FedRidge):
        strategy.start(grid, timeout=120)
        return
    rounds = min(strategy._settings.rounds, 40)
    app = ServerApp(
        server_fn=lambda _: ServerAppComponents(
            strategy=strategy, config=ServerConfig(num_rounds=rounds)
        )
    )
    app(grid, context_of(0, 1))


def left_behind(strategy: Any, folder: Path) -> str:
    """Return all that a fit hands on: report and model, in words and in files."""
    strategy.report_.save(folder / "report.json")
    strategy.model_.save(folder / "model.json")
    texts = [str(strategy.report_), repr(strategy.report_), repr(strategy)]
    texts += [strategy.model_.summary(), str(strategy.report_.failures)]
    texts.append(report_page(strategy.model_, strategy.report_, figures=()))
    texts.append(sites_csv(strategy.report_.sites, strategy.report_.name_of))
    return "\n".join(texts + [path.read_text() for path in folder.iterdir()])


PRIVACY = DifferentialPrivacy(5.0, 1e-5, x_norm_bound=3.0, y_bound=6.0)
MODES: dict[str, dict[str, Any]] = {
    "oneshot": {},
    "float32": {"wire_dtype": "float32"},
    "fixed": {"statistics": "fixed"},
    "triangular": {"statistics": "triangular"},
    "evaluate": {"fraction_evaluate": 1.0},
    "standardize": {"standardize": True},
    "refine": {"mode": "refine", "max_rounds": 40},
    "cg": {"mode": "cg", "max_rounds": 40},
    "auto": {"mode": "auto", "max_rounds": 40},
    "private": {"privacy": PRIVACY},
    "refined": {
        "privacy": DifferentialPrivacy(
            5.0, 1e-5, x_norm_bound=3.0, y_bound=6.0, rounds=3
        )
    },
    "fourier": {"feature_map": "fourier 10 gamma=0.1"},
    "agreed": {"feature_map": "standardize | fourier 10 gamma=scale"},
    "server": {"alphas": [0.1, 1.0], "cv": "server"},
    "clients": {"alphas": [0.1, 1.0], "cv": "clients"},
    "gcv": {"alphas": "auto", "cv": "gcv"},
    "by site": {"standard_errors": "CR1"},
    "robust": {"standard_errors": "HC0"},
    "leverages": {"standard_errors": "HC3"},
    "binomial": {"family": "binomial"},
    "poisson": {"family": "poisson"},
}


def load_classes(context: Any) -> Any:
    X, y, weight = load_data(context)
    return X, (y > np.median(y)).astype(int), weight


def load_counts(context: Any) -> Any:
    X, y, weight = load_data(context)
    return X, np.abs(y), weight


LOADS: dict[str, Load] = {"binomial": load_classes, "poisson": load_counts}


@pytest.mark.parametrize("app_of", [native, numpy_app])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("mode", MODES)
def test_a_fit_tells_no_row_no_name_and_no_secret(
    mode: str, kind: Any, app_of: Any, tmp_path: Path, capfd: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("FEDRIDGE_TOKEN", SECRETS["api-token"])
    private = "privacy" in MODES[mode]
    app = app_of(load_unweighted if private else LOADS.get(mode, load_data))
    with watching() as watch:
        grid = WatchedGrid([app] * K, watch)
        strategy = kind(min_available_nodes=K, **MODES[mode])
        fit(strategy, grid)
    assert strategy.report_.failures == {}
    assert watch.lines["server"]
    assert sung(watch.text("server") + watch.text("client")) == []
    assert sung(grid.told()) == []
    assert sung(left_behind(strategy, tmp_path)) == []
    assert sung("".join(capfd.readouterr())) == []


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_new_rows_and_their_record_tell_nothing(
    kind: Any, tmp_path: Path, capfd: Any
) -> None:
    (tmp_path / "out").mkdir()
    state = tmp_path / "state"
    state.mkdir()

    def load_new(context: Any, since: int | None) -> Any:
        X, y, weight = load_data(context)
        end = 10 if since is None else len(y)
        if forgetful and context.node_config["partition-id"] == 0:
            return X, y
        here = slice(since or 0, end)
        return (X[here], y[here], weight[here]), end

    app = native(load_data, load_new_data=load_new, upload_folder=state)
    for attempt in range(3):
        forgetful = attempt == 2
        with watching() as watch:
            grid = WatchedGrid([app] * K, watch)
            strategy = kind(min_available_nodes=K, ledger=state / "ledger")
            fit(strategy, grid)
        assert sung(watch.text("server") + watch.text("client")) == []
        assert sung(grid.told()) == []
        assert sung(left_behind(strategy, tmp_path / "out")) == []
        assert sung("".join(capfd.readouterr())) == []
        assert sung("".join(map(Path.read_text, state.glob("*.json")))) == []
    (told,) = strategy.report_.remarks.values()
    assert "must return rows and a position" in told


CLASSIFIED: dict[str, dict[str, Any]] = {
    "auto": {"classes": "auto", "fraction_evaluate": 1.0},
    "balanced": {"classes": "auto", "class_weight": "balanced"},
    "rounds": {"classes": ["a", "b"], "mode": "refine", "max_rounds": 40},
    "clients": {"classes": "auto", "alphas": [0.1, 1.0], "cv": "clients"},
}


def load_labels(context: Any) -> Any:
    X, y, weight = load_data(context)
    return X, np.where(np.arange(len(y)) % 3 == 0, "a", "b"), weight


@pytest.mark.parametrize("app_of", [native, numpy_app])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("mode", CLASSIFIED)
def test_of_rows_with_classes_only_the_labels_are_told(
    mode: str, kind: Any, app_of: Any, tmp_path: Path, capfd: Any
) -> None:
    with watching() as watch:
        grid = WatchedGrid([app_of(load_labels)] * K, watch)
        strategy = kind(min_available_nodes=K, **CLASSIFIED[mode])
        fit(strategy, grid)
    assert strategy.report_.failures == {}
    assert sung(watch.text("server") + watch.text("client")) == []
    assert sung(grid.told()) == []
    assert sung(left_behind(strategy, tmp_path)) == []
    assert sung("".join(capfd.readouterr())) == []


def test_a_secure_sum_tells_no_row_no_name_and_no_secret(
    tmp_path: Path, capfd: Any
) -> None:
    with watching() as watch:
        grid = WatchedGrid([native(load_data)] * K, watch)
        strategy = FedRidge(min_available_nodes=K, secure=SecureSum())
        fit(strategy, grid)
    assert strategy.report_.failures == {}
    assert sung(watch.text("server") + watch.text("client")) == []
    assert sung(grid.told()) == []
    assert sung(left_behind(strategy, tmp_path)) == []
    assert sung("".join(capfd.readouterr())) == []


BAD_LABELS: dict[str, Callable[[Any], Any]] = {
    "unknown": lambda y: np.where(y == "a", WORD, "b"),
    "numbers": lambda y: np.where(y == "a", NUMBERS["X"], 1.0),
    "long": lambda y: np.where(y == "a", WORD * 100, "b"),
    "objects": lambda y: [[WORD]] * len(y),
}


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("case", BAD_LABELS)
def test_labels_that_cannot_be_used_are_not_quoted(
    case: str, kind: Any, tmp_path: Path, capfd: Any
) -> None:
    def load(context: Any) -> Any:
        X, y, weight = load_labels(context)
        return X, BAD_LABELS[case](y), weight

    with watching() as watch:
        grid = WatchedGrid([native(load), *[native(load_labels)] * (K - 1)], watch)
        strategy = kind(min_available_nodes=K, classes=["a", "b"])
        fit(strategy, grid)
    check_refusal(strategy, grid, watch, tmp_path, capfd)
    assert sung(watch.text("client")) == []


@pytest.mark.parametrize("exchange", [1, 2])
def test_of_an_exception_in_a_secure_sum_only_type_and_place_travel(
    exchange: int, tmp_path: Path, capfd: Any
) -> None:
    calls = []

    def load(context: Any) -> Any:
        calls.append(context)
        if len(calls) == exchange:
            raise KeyError(WORD)
        return load_data(context)

    with watching() as watch:
        apps = [native(load, reuse_data=False), *[native(load_data)] * K]
        grid = WatchedGrid(apps, watch)
        strategy = FedRidge(min_available_nodes=K + 1, secure=SecureSum())
        fit(strategy, grid)
    reason = check_refusal(strategy, grid, watch, tmp_path, capfd)
    assert reason.startswith("KeyError in load, line ")


def test_names_travel_when_they_are_shared_so_the_watch_is_awake(
    tmp_path: Path,
) -> None:
    with watching() as watch:
        grid = WatchedGrid([native(load_data, share_feature_names=True)] * K, watch)
        strategy = FedRidge(min_available_nodes=K)
        fit(strategy, grid)
    assert sung(grid.told()) == [WORD]
    assert sung(left_behind(strategy, tmp_path)) == [WORD]


# ---- clients that cannot contribute --------------------------------------------------


def with_nan(X: Any, y: Any, weight: Any) -> Any:
    X.iloc[1, 0] = np.nan
    return X, y, weight


def with_text(X: Any, y: Any, weight: Any) -> Any:
    X = X.astype(object)
    X.iloc[1, 0] = WORD
    return X, y, weight


def with_objects(X: Any, y: Any, weight: Any) -> Any:
    objects = X.to_numpy().astype(object)
    objects[1, 0] = WORD
    return objects, y, weight


def with_categories(X: Any, y: Any, weight: Any) -> Any:
    X[COLUMNS[0]] = pd.Categorical([WORD, "b"] * (len(X) // 2))
    return X, y, weight


def with_text_target(X: Any, y: Any, weight: Any) -> Any:
    return X, pd.Series([WORD] * len(X)), weight


class Talkative:
    """Data whose conversion to an array fails, and says on what."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ValueError(f"could not convert {NUMBERS['X']} of {WORD}")


def returned_nothing(X: Any, y: Any, weight: Any) -> Any:
    return {WORD: X}


OWN: dict[str, Callable[..., Any]] = {
    "NaN": with_nan,
    "text": with_text,
    "objects": with_objects,
    "categories": with_categories,
    "text target": with_text_target,
    "infinite target": lambda X, y, w: (X, np.where(y < -6, np.inf, y), w),
    "too large": lambda X, y, w: (X * 1e200, y, w),
    "lengths": lambda X, y, w: (X, y[:-1], w),
    "ragged": lambda X, y, w: ([list(X.iloc[1]), [NUMBERS["X"]]], y[:2], None),
    "one-dimensional": lambda X, y, w: (X.to_numpy()[:, 1], y, w),
    "complex": lambda X, y, w: (X.to_numpy() * 1j, y, w),
    "masked": lambda X, y, w: (np.ma.masked_greater(X.to_numpy(), 2.0), y, w),
    "fields": lambda X, y, w: (X.to_records(index=False), y, w),
    "talkative": lambda X, y, w: (Talkative(), y, w),
    "talkative target": lambda X, y, w: (X, Talkative(), w),
    "negative weight": lambda X, y, w: (X, y, -w),
    "text weight": lambda X, y, w: (X, y, [WORD] * len(y)),
    "weights": lambda X, y, w: (X, y, w[:-1]),
    "too few": lambda X, y, w: (X[1:2], y[1:2], w[1:2]),
    "none": lambda X, y, w: (X[:0], y[:0], w[:0]),
}


def raised(error: Exception) -> Any:
    raise error


def chained(number: float) -> Any:
    try:
        float(f"{WORD} {number}")
    except ValueError as error:
        raise RuntimeError(f"row {number} of {PATH}") from error


def damaged_model(folder: Path) -> Any:
    path = folder / f"{WORD}.json"
    path.write_text("{}")
    return RidgeModel.load(path)


FOREIGN: dict[str, Callable[[Path], Any]] = {
    "message": lambda _: raised(RuntimeError(f"{WORD} {NUMBERS['X']}")),
    "key": lambda _: raised(KeyError(WORD)),
    "missing column": lambda _: rows(0)[0][f"{WORD}-salary"],
    "missing columns": lambda _: rows(0)[0][[COLUMNS[0], f"{WORD}-salary"]],
    "conversion": lambda _: pd.DataFrame({"a": [WORD]}).astype(float),
    "float": lambda _: float(WORD),
    "file": lambda _: pd.read_csv(PATH),
    "decoding": lambda _: f"ü{WORD}".encode("latin-1").decode("utf-8"),
    "chained": lambda _: chained(NUMBERS["X"]),
    "group": lambda _: raised(ExceptionGroup(WORD, [KeyError(WORD)])),
    "many lines": lambda _: raised(OSError(f"a\n{WORD}Error: {WORD}\n")),
    "of this package": lambda folder: damaged_model(folder),
    "memory": lambda _: raised(MemoryError(f"array of {WORD}")),
}


def check_refusal(
    strategy: Any, grid: WatchedGrid, watch: Any, folder: Path, capfd: Any
) -> str:
    """Hold everything but the client's own log against the canaries."""
    (failed,) = strategy.report_.failures.values()
    assert sung(grid.told()) == []
    assert sung(watch.text("server")) == []
    assert sung(left_behind(strategy, folder)) == []
    assert sung("".join(capfd.readouterr())) == []
    assert failed in watch.text("server")
    return str(failed)


@pytest.mark.parametrize("app_of", [native, numpy_app])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("case", OWN)
def test_rows_that_cannot_be_used_are_not_quoted(
    case: str, kind: Any, app_of: Any, tmp_path: Path, capfd: Any
) -> None:
    with watching() as watch:
        grid = WatchedGrid(
            [app_of(lambda _: OWN[case](*rows(0))), *[native(load_data)] * (K - 1)],
            watch,
        )
        strategy = kind(min_available_nodes=K)
        fit(strategy, grid)
    reason = check_refusal(strategy, grid, watch, tmp_path, capfd)
    assert "own log" not in reason
    # At home columns may be named, but no value is quoted there either.
    quoted = watch.text("client")
    for name in COLUMNS:
        quoted = quoted.replace(name, "")
    assert sung(quoted) == []


# ---- rows that come in batches, or not at all ----------------------------------------

TARGET, WEIGHT = f"{WORD}-target", f"{WORD}-weight"


def as_frame(k: int, **columns: Any) -> pd.DataFrame:
    X, y, weight = rows(k)
    return X.assign(**{TARGET: y, WEIGHT: weight}, **columns)


def broken_off(k: int) -> Any:
    yield rows(k)
    raise ValueError(f"{WORD} {NUMBERS['X']}")


GOOD: dict[str, Load] = {
    "stream": lambda k: (as_frame(k), TARGET, WEIGHT),
    "batches": lambda k: iter([rows(k), rows(k)]),
    "statistics": lambda k: SufficientStatistics.from_data(*rows(k)),
}
BAD: dict[str, Load] = {
    "nulls": lambda k: (as_frame(k).where(lambda f: f < 2.0), TARGET, WEIGHT),
    "text": lambda k: (as_frame(k, **{COLUMNS[0]: WORD}), TARGET),
    "dates": lambda k: (as_frame(k, **{COLUMNS[0]: pd.Timestamp(2020, 1, 1)}), TARGET),
    "identifiers": lambda k: (as_frame(k, **{COLUMNS[0]: 2**60 + 7}), TARGET),
    "no such target": lambda k: (as_frame(k), f"{WORD}-salary"),
    "weight twice": lambda k: (as_frame(k), TARGET, TARGET),
    "no stream": lambda k: ({WORD: 1}, TARGET),
    "broken off": broken_off,
    "no batch": lambda k: iter([{WORD: NUMBERS["X"]}]),
    "text in a batch": lambda k: iter([with_text(*rows(k))]),
    "few": lambda k: SufficientStatistics.from_data(rows(k)[0][1:2], rows(k)[1][1:2]),
    "other columns": lambda k: SufficientStatistics.from_data(
        rows(k)[0].rename(columns={COLUMNS[0]: f"{WORD}-else"}), *rows(k)[1:]
    ),
}


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("case", GOOD)
def test_streams_and_statistics_tell_no_more_than_rows(
    case: str, kind: Any, tmp_path: Path, capfd: Any
) -> None:
    with watching() as watch:
        app = native(lambda context: GOOD[case](context.node_config["partition-id"]))
        grid = WatchedGrid([app] * K, watch)
        strategy = kind(min_available_nodes=K)
        fit(strategy, grid)
    assert strategy.report_.failures == {}
    assert sung(watch.text("server") + watch.text("client")) == []
    assert sung(grid.told()) == []
    assert sung(left_behind(strategy, tmp_path)) == []
    assert sung("".join(capfd.readouterr())) == []


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("case", BAD)
def test_nor_do_those_that_cannot_be_used(
    case: str, kind: Any, tmp_path: Path, capfd: Any
) -> None:
    with watching() as watch:
        odd = native(lambda _: BAD[case](0))
        grid = WatchedGrid([odd, *[native(load_data)] * (K - 1)], watch)
        strategy = kind(min_available_nodes=K)
        fit(strategy, grid)
    reason = check_refusal(strategy, grid, watch, tmp_path, capfd)
    assert ("own log" in reason) == (case == "broken off")


POLICIES = {
    "rows": {"min_rows": 10_000, "max_columns_per_row": 1e-6},
    "levels": {"min_rows_per_level": 10_000},
    "forbidden": {"forbidden_columns": COLUMNS},
    "allowed": {"allowed_columns": [WORD]},
    "requests": {"requests": []},
    "sites": {"min_sites": 100},
    "state": {"min_row_difference": 5, "state": PATH},
}


@pytest.mark.parametrize("app_of", [native, numpy_app])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("case", POLICIES)
def test_of_a_site_policy_nothing_travels(
    case: str, shared: bool, kind: Any, app_of: Any, tmp_path: Path, capfd: Any
) -> None:
    options = {"site_policy": SitePolicy(**POLICIES[case])}
    with watching() as watch:
        strict = app_of(load_data, share_feature_names=shared, **options)
        grid = WatchedGrid([strict, *[native(load_data)] * (K - 1)], watch)
        strategy = kind(min_available_nodes=K)
        fit(strategy, grid)
    reason = check_refusal(strategy, grid, watch, tmp_path, capfd)
    assert reason == "declined by site policy."
    assert "declined by site policy: " in watch.text("client")


def test_a_load_data_that_returns_something_else_is_not_quoted(
    tmp_path: Path, capfd: Any
) -> None:
    with watching() as watch:
        odd = native(lambda _: returned_nothing(*rows(0)))
        grid = WatchedGrid([odd, native(load_data)], watch)
        strategy = FedRidge(min_available_nodes=2)
        fit(strategy, grid)
    reason = check_refusal(strategy, grid, watch, tmp_path, capfd)
    assert "got a dict" in reason


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("case", FOREIGN)
def test_of_an_exception_in_load_data_only_type_and_place_travel(
    case: str, kind: Any, shared: bool, tmp_path: Path, capfd: Any
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()

    def load_broken(context: Any) -> Any:
        return FOREIGN[case](tmp_path / "in")

    with watching() as watch:
        broken = native(load_broken, share_feature_names=shared)
        grid = WatchedGrid([broken, *[native(load_data)] * (K - 1)], watch)
        strategy = kind(min_available_nodes=K)
        fit(strategy, grid)
    reason = check_refusal(strategy, grid, watch, tmp_path / "out", capfd)
    line = load_broken.__code__.co_firstlineno + 1
    assert f" in load_broken, line {line}. " in reason
    assert "own log: look there" in reason
    # Its owner finds the whole of it, with the traceback.
    assert WORD in watch.text("client") or case == "decoding"
    assert "Traceback" in watch.text("client") or case == "of this package"


def later(number: int, then: Exception) -> Load:
    """Return a load_data that works until it is called for the n-th time."""
    calls: list[int] = []

    def load(context: Any) -> Any:
        calls.append(1)
        return raised(then) if len(calls) >= number else load_data(context)

    return load


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("mode", ["refine", "cg", "agreed", "clients", "evaluate"])
def test_so_it_is_in_later_rounds(
    mode: str, kind: Any, tmp_path: Path, capfd: Any
) -> None:
    with watching() as watch:
        broken = native(later(2, KeyError(f"{WORD} {NUMBERS['y']}")), reuse_data=False)
        grid = WatchedGrid([broken, *[native(load_data)] * (K - 1)], watch)
        strategy = kind(min_available_nodes=K, **MODES[mode])
        fit(strategy, grid)
    report = strategy.report_
    told = [report.failures, report.evaluation_failures, report.selection_failures]
    reasons = [reason for each in told for reason in each.values()]
    assert any("KeyError in load, line" in reason for reason in reasons)
    assert sung(grid.told()) == []
    assert sung(watch.text("server")) == []
    assert sung(left_behind(strategy, tmp_path)) == []
    assert sung("".join(capfd.readouterr())) == []


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("case", ["key", "chained", "conversion"])
def test_a_private_client_does_not_even_tell_the_type(
    case: str, kind: Any, tmp_path: Path, capfd: Any
) -> None:
    (tmp_path / "out").mkdir()

    def load(context: Any) -> Any:
        return FOREIGN[case](tmp_path)

    with watching() as watch:
        good = native(load_unweighted)
        grid = WatchedGrid([native(load), *[good] * (K - 1)], watch)
        strategy = kind(min_available_nodes=K, privacy=PRIVACY)
        fit(strategy, grid)
    reason = check_refusal(strategy, grid, watch, tmp_path / "out", capfd)
    assert reason.startswith("could not make a private release")


def test_the_path_of_a_ledger_does_not_travel(tmp_path: Path, capfd: Any) -> None:
    ledger = PrivacyLedger(f"/no/such/{WORD}/ledger.json", 10.0, 1e-4)
    policy = PrivacyPolicy(10.0, 1e-4)
    guarded = native(
        load_unweighted,
        privacy_policy=policy,
        privacy_ledger=ledger,
        client_name=f"{WORD}-clinic",
    )
    with watching() as watch:
        grid = WatchedGrid([guarded, *[native(load_unweighted)] * (K - 1)], watch)
        strategy = FedRidge(min_available_nodes=K, privacy=PRIVACY)
        fit(strategy, grid)
    reason = check_refusal(strategy, grid, watch, tmp_path, capfd)
    assert "in a folder that does not exist" in reason
    assert WORD in watch.text("client")


def test_when_nobody_can_contribute_the_error_quotes_nothing() -> None:
    cases = [FOREIGN["key"], FOREIGN["float"], FOREIGN["file"]]
    with watching() as watch:
        apps = [native(lambda _, case=case: case(Path())) for case in cases]
        grid = WatchedGrid(apps, watch)
        with pytest.raises(NotEnoughClientsError, match="KeyError in") as caught:
            fit(FedRidge(min_available_nodes=3), grid)
    assert sung(caught.value) == []
    assert sung(watch.text("server") + grid.told()) == []


def test_a_reason_that_load_data_means_to_tell_is_told() -> None:
    def load(context: Any) -> Any:
        raise DataError("NaN in {columns}", [0], names=COLUMNS) from KeyError(WORD)

    with watching() as watch:
        grid = WatchedGrid([native(load), native(load_data)], watch)
        strategy = FedRidge(min_available_nodes=2)
        fit(strategy, grid)
    assert list(strategy.report_.failures.values()) == ["NaN in column 0"]
    assert sung(grid.told()) == []


# ---- secrets -------------------------------------------------------------------------


def test_a_wrong_setting_does_not_show_the_others() -> None:
    with pytest.raises(FedRidgeError, match="alpha must be") as caught:
        read_settings({**SECRETS, "alpha": -1.0})
    assert sung(caught.value) == []


def test_a_superlink_does_not_show_its_environment() -> None:
    superlink = LocalSuperLink({"FEDRIDGE_TOKEN": SECRETS["api-token"]})
    assert sung(f"{superlink!r} {superlink}") == []


def test_contexts_have_secrets_so_the_watch_would_find_them() -> None:
    context = context_of(0, 1)
    assert sung(context.run_config) == sung(context.node_config) == [WORD]
    assert sung(node_context(0, 1)) == []
