"""What a site's policy calls the requests of a server."""

REQUESTS = (
    "statistics",
    "evaluation",
    "losses",
    "rounds",
    "columns",
    "feature_maps",
    "private",
    "table",
    "classes",
    "secure",
    "residuals",
    "leverages",
    "families",
)
"""What a server can ask for, as a policy calls it."""

# A map that is not linear can be chosen so that statistics tell single rows. So can
# coefficients of a family, and models of whose residuals sites send fourth moments.
# Leverages come with the inverse over all rows, from which one of two sites can compute
# the statistics of the other.
UNUSUAL = ("feature_maps", "residuals", "leverages", "families")
USUAL = tuple(name for name in REQUESTS if name not in UNUSUAL)
"""What a policy allows if it does not say."""

NAMES = {
    "statistics": "statistics",
    "evaluation": "evaluation",
    "losses": "losses",
    "opening": "rounds",
    "product": "rounds",
    "columns": "columns",
    "release": "private",
    "table": "table",
    "classes": "classes",
    "residuals": "residuals",
    "secure-keys": "secure",
    "secure-shares": "secure",
    "secure-masked": "secure",
    "secure-confirm": "secure",
    "secure-unmask": "secure",
    "outcome": "families",
    "working": "families",
    "counts": "evaluation",
}
"""The name of every task; a task that is not among them is never allowed."""

ABOUT_KEYS = ("secure-shares", "secure-confirm", "secure-unmask")
"""Of a secure sum, what says nothing about rows."""
