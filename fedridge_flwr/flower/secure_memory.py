"""A client's memory of the secure sum of a run, in Flower's state of the node."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context

from ..federation.answering.secure_respond import SecureGuard
from ..federation.secure_sum.client_steps import ClientState
from ..federation.secure_sum.terms import STATE, SecurePolicy
from ..federation.site.disclosure import SitePolicy
from ..federation.site.step_markers import mark_step


class SecureMemory:
    """The state of a secure sum between messages; it outlives processes.

    Parameters
    ----------
    context : Context
        Of this node and run; Flower keeps its state when an answer has left.
    folders : sequence of Path
        Where the site marks its steps before they are answered.
    """

    def __init__(self, context: Context, folders: Sequence[Path] = ()) -> None:
        self._state, self._run, self._folders = context.state, context.run_id, folders

    def read(self) -> ClientState | None:
        """Return what is remembered, if a secure sum has begun in this run."""
        record = self._state.get(STATE)
        if not isinstance(record, ConfigRecord):
            return None
        fields: dict[str, Any] = dict(record)
        return ClientState(**fields)

    def write(self, state: ClientState) -> None:
        """Remember the state in place of the one before."""
        self._state[STATE] = ConfigRecord(asdict(state))

    def mark(self, step: str, state: ClientState, most: int) -> None:
        """Mark a step in all folders of the site: for the sum, the run and the fit.

        Flower may give the memory of one run to another run of the same series. In a
        private fit each round is marked, in the run and, whatever the run, in the fit.
        """
        number = "" if state.number == 1 else f"-round-{state.number}"
        places = [f"{self._run}{number}"]
        if state.fit:
            places.append(f"fit-{state.fit.replace('/', '-')}{number}")
        for folder in self._folders:
            mark_step(folder, state.session.hex(), step, most=1)
            for place in places:
                mark_step(folder, place, step, most)


def secure_guard(
    context: Context, own: SecurePolicy | None, site: Sequence[SitePolicy]
) -> SecureGuard:
    """Return a client in a secure sum, with the rules of its code and of its site."""
    policies = [own or SecurePolicy()]
    policies += [
        SecurePolicy(max(each.min_sites, 2), each.identity, each.roster)
        for each in site
    ]
    folders = {Path(each.state).resolve() for each in site if each.state is not None}
    return SecureGuard(SecureMemory(context, sorted(folders)), tuple(policies))


def forget_secure_sums(context: Context) -> None:
    """Forget the secure sum of this run, because the client's rows are others now.

    For simulations that give their clients new rows within one run. With the same rows
    the difference of two sums could tell a single client.
    """
    context.state.pop(STATE, None)
