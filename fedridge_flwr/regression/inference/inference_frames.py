"""Inference as data frames: broom's names, and what the package maketables reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .inference_result import Inference


def tidy_frame(inference: Inference) -> Any:
    """Return one row per coefficient (and target, if there are several)."""
    import pandas as pd

    frames = []
    for each in inference.each_target():
        columns = {
            "term": each.terms,
            "estimate": each.coefficients,
            "std.error": each.se,
            "statistic": each.t,
            "p.value": each.p,
            "conf.low": each.ci[:, 0],
            "conf.high": each.ci[:, 1],
        }
        if len(inference.targets) > 1:
            columns = {"response": each.targets * len(each.terms), **columns}
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def glance_frame(inference: Inference) -> Any:
    """Return one row per target."""
    import pandas as pd

    several = len(inference.targets) > 1
    return pd.DataFrame(
        [
            ({"response": each.targets[0]} if several else {})
            | {
                "r.squared": each.r2,
                "adj.r.squared": each.adjusted_r2,
                "sigma": each.sigma,
                "statistic": each.f,
                "p.value": each.f_p,
                "df": each.df - each.has_constant,
                "logLik": each.log_likelihood,
                "AIC": each.aic,
                "BIC": each.bic,
                "deviance": each.rss,
                "df.residual": each.df_residual,
                "nobs": each.n_rows,
                "sites": each.n_sites,
                "alpha": each.alpha,
                "se.type": each.covariance,
            }
            for each in inference.each_target()
        ]
    )


def maketables_frame(inference: Inference) -> Any:
    """Return b, se, t, p and the interval by term, of one target."""
    import pandas as pd

    if len(inference.targets) > 1:
        raise AttributeError(
            "a table has one column per target: pass of_target(k) for each of them."
        )
    low, high = (f"ci{100 * inference.level:g}{end}" for end in "lu")
    columns = {
        "b": inference.coefficients,
        "se": inference.se,
        "t": inference.t,
        "p": inference.p,
        low: inference.ci[:, 0],
        high: inference.ci[:, 1],
    }
    index = pd.Index(inference.terms, name="Coefficient")
    return pd.DataFrame(columns, index=index)


def maketables_value(inference: Inference, key: str) -> Any:
    """Return one number by the key that maketables has for it."""
    values = {
        "N": inference.n_rows,
        "n_clusters": inference.n_sites,
        "se_type": se_type(inference),
        "r2": inference.r2,
        "adj_r2": inference.adjusted_r2,
        "rmse": inference.sigma,
        "fvalue": inference.f,
        "f_pvalue": inference.f_p,
        "ll": inference.log_likelihood,
        "aic": inference.aic,
        "bic": inference.bic,
        "df_model": inference.df - inference.has_constant,
        "df_resid": inference.df_residual,
        "alpha": inference.alpha,
    }
    return values.get(key)


def se_type(inference: Inference) -> str:
    """Return the kind of standard errors in a few letters, as headers name it."""
    if inference.covariance == "classical":
        return "classical"
    by_site = inference.covariance.startswith("CR")
    return f"{'by site' if by_site else 'robust'} ({inference.covariance})"
