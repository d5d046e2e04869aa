"""How much of the data is in a model: clients, rows, and why not all of them."""

from collections.abc import Mapping

_SHOWN_REASONS = 3


def scope_text(
    n_inside: int,
    left_out: Mapping[str, str],
    n_rows: int | None,
    rows_left_out: Mapping[str, int],
) -> str:
    """Return how much of the data is in a model, or nothing if that is all.

    Examples
    --------
    >>> scope_text(2, {"a": "late", "b": "other columns"}, 440, {"b": 385})
    'MODEL OF 2 OF 4 CLIENTS, 440 OF AT LEAST 825 ROWS'
    """
    if not left_out:
        return ""
    text = f"MODEL OF {n_inside} OF {n_inside + len(left_out)} CLIENTS"
    if n_rows is None:
        return text
    known = [rows_left_out[client] for client in left_out if client in rows_left_out]
    if not known:
        return f"{text}, {n_rows} ROWS"
    of = "OF" if len(known) == len(left_out) else "OF AT LEAST"
    return f"{text}, {n_rows} {of} {n_rows + sum(known)} ROWS"


def with_reasons(scope: str, left_out: Mapping[str, str]) -> str:
    """Return the scope followed by the reasons, in one line."""
    if not scope:
        return ""
    told = [f"client {c}: {why}" for c, why in list(left_out.items())[:_SHOWN_REASONS]]
    if len(left_out) > _SHOWN_REASONS:
        told.append(f"and {len(left_out) - _SHOWN_REASONS} more")
    return f"{scope}: {'; '.join(told)}"
