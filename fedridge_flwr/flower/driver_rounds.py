"""`DriverRounds`: what to tell of rounds that the older driver may not have."""

import logging
import weakref

from ..federation.settings import FitSettings

log = logging.getLogger("flwr")
_UNFINISHED = (
    "NO MODEL: the fit was to go on after round %d, and there was no other round. "
    "Nothing was given to on_model or save_model. Use ServerConfig(num_rounds=%d)."
)


class DriverRounds:
    """Whether a fit got the rounds that it needs.

    The driver calls nothing when its last round has ended. That a fit has not ended is
    told when its strategy goes away, with the app at the latest.

    Parameters
    ----------
    owner : object
        The strategy.
    settings : FitSettings
        What it fits.

    Examples
    --------
    >>> class Strategy: ...
    >>> strategy = Strategy()
    >>> rounds = DriverRounds(strategy, FitSettings(mode="refine", max_rounds=9))
    >>> rounds.ended(1, is_over=False)
    >>> del strategy  # logs that there is no model after round 1
    """

    def __init__(self, owner: object, settings: FitSettings) -> None:
        self._settings = settings
        self._waiting: list[int] = []
        # The strategy itself must not be kept alive by this, nor its rows.
        weakref.finalize(owner, _tell, self._waiting, settings.rounds)

    def begin(self) -> None:
        """Say how many rounds the driver needs, if it is more than one."""
        settings = self._settings
        self._waiting.clear()
        if settings.rounds == 1:
            return
        if settings.privacy is not None:
            told = f"if ServerConfig has fewer than {settings.rounds} rounds"
        else:
            told = f"up to {settings.rounds} rounds are needed: if ServerConfig has "
            told += "fewer than the fit takes"
        remedy = (
            ""
            if settings.one_shot
            else ", or lower max_rounds to those that it has: the best model so far is "
            "then kept, with a warning"
        )
        log.warning(
            "configure_fit: %s, there is no model. Use ServerConfig(num_rounds=%d)%s.",
            told,
            settings.rounds,
            remedy,
        )

    def ended(self, server_round: int, *, is_over: bool) -> None:
        """Note that a round has ended, and whether it was the last one of the fit."""
        self._waiting[:] = [] if is_over else [server_round]


def _tell(waiting: list[int], rounds: int) -> None:
    # At the end of a process the stream of the log may be closed already.
    streams = (getattr(handler, "stream", None) for handler in log.handlers)
    if waiting and not any(getattr(stream, "closed", False) for stream in streams):
        log.warning(_UNFINISHED, waiting[0], rounds)
