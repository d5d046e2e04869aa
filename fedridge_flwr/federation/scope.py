"""How much of the data is in a model: clients, rows, and why not all of them."""

from collections.abc import Mapping

NOT_ASKED = "not asked"
"""Why a client is left out that was connected, and not among those chosen."""
STRICT = "NO MODEL (strict)"
_SHOWN_REASONS = 3
_SHOWN_CLIENTS = 5
_TOGETHER = 3


def scope_text(
    n_inside: int,
    left_out: Mapping[str, str],
    n_rows: int | None,
    rows_left_out: Mapping[str, int],
    *,
    no_model: str = "",
) -> str:
    """Return how much of the data is in a model, or nothing if that is all.

    `no_model` says instead that there is none, though it would have been of so much.

    Examples
    --------
    >>> scope_text(2, {"a": "late", "b": "other columns"}, 440, {"b": 385})
    'MODEL OF 2 OF 4 CLIENTS, 440 OF AT LEAST 825 ROWS'
    >>> scope_text(2, {"a": "late"}, None, {}, no_model="NO MODEL (strict)")
    'NO MODEL (strict): 2 OF 3 CLIENTS'
    """
    if not left_out:
        return ""
    head = f"{no_model}:" if no_model else "MODEL OF"
    text = f"{head} {n_inside} OF {n_inside + len(left_out)} CLIENTS"
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
    grouped = by_reason(left_out, _SHOWN_CLIENTS)
    told = [f"{clients}: {why}" for clients, why in grouped[:_SHOWN_REASONS]]
    if len(grouped) > _SHOWN_REASONS:
        told.append(f"and {len(grouped) - _SHOWN_REASONS} more")
    return f"{scope}: {'; '.join(told)}"


def by_reason(
    failures: Mapping[str, str], most: int | None = None
) -> list[tuple[str, str]]:
    """Return clients and reasons, three or more with equal reasons together.

    Examples
    --------
    >>> failures = {"a": "late", "b": "no rows", "c": "late", "d": "late"}
    >>> by_reason(failures, most=2)
    [('clients a, c and 1 more', 'late'), ('client b', 'no rows')]
    """
    groups: dict[str, list[str]] = {}
    for client, why in failures.items():
        groups.setdefault(why, []).append(client)
    found: list[tuple[str, str]] = []
    for why, clients in groups.items():
        if len(clients) < _TOGETHER:
            found += [(f"client {client}", why) for client in clients]
            continue
        shown = sorted(clients, key=lambda each: (len(each), each))[:most]
        more = f" and {len(clients) - len(shown)} more" if clients[len(shown) :] else ""
        found.append((f"clients {', '.join(shown)}{more}", why))
    return found
