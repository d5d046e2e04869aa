"""Which settings of a fit do not go together, with the reason, before any round."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .._checks import check_alpha, must_be
from ..data.coding import Coding
from ..data.formula import TableFormula
from ..errors import FedRidgeError, PrivacyError
from ..privacy.mechanism import DifferentialPrivacy
from .secure_sum.terms import SecureSum

if TYPE_CHECKING:
    from .settings import FitSettings


def check_one_alpha(alpha: object) -> None:
    """Refuse what is no penalty, and candidates for one, which have another name."""
    if isinstance(alpha, str | Sequence | np.ndarray):
        raise FedRidgeError(
            f"{must_be('alpha', 'one number, zero or more', alpha)} To choose it, use "
            'alphas=, as in alphas="auto" or alphas=[0.1, 1.0, 10.0].'
        )
    check_alpha(alpha)


def check_feature_names(names: object) -> tuple[str, ...]:
    """Return names of columns; each of them is text, and no two are equal."""
    known = tuple(names) if isinstance(names, Iterable) else ()
    text = not isinstance(names, str) and all(isinstance(name, str) for name in known)
    if not known or not text:
        raise must_be("feature_names", "a sequence of names", names)
    twice = [name for name in dict.fromkeys(known) if known.count(name) > 1]
    if twice:
        raise FedRidgeError(
            f"feature_names has {twice[0]!r} more than once: give every column a name "
            "of its own."
        )
    return known


def check_class_settings(settings: FitSettings) -> None:
    """Keep classes and their weights by label, or say what is wrong with them."""
    from ..data.labels import check_class_weight, check_classes

    classes, weight = settings.classes, settings.class_weight
    if classes is None:
        raise FedRidgeError('class_weight needs classes: use classes="auto".')
    if not (isinstance(classes, str) and classes == "auto"):
        object.__setattr__(settings, "classes", check_classes(classes))
    if weight is not None and not (isinstance(weight, str) and weight == "balanced"):
        object.__setattr__(settings, "class_weight", check_class_weight(weight))


def check_formula_settings(settings: FitSettings, formula: TableFormula) -> None:
    """Refuse what a formula says already; it may leave the intercept out."""
    if settings.feature_names is not None:
        raise FedRidgeError("the columns are those of the formula: no feature_names.")
    if settings.classes is not None:
        raise FedRidgeError(
            "classes is for clients that have X and y: the target of a formula is a "
            "number. Code two classes as 0 and 1, or let load_data return (X, labels)."
        )
    if not formula.intercept:
        object.__setattr__(settings, "fit_intercept", False)
    if settings.privacy is not None:
        Coding.public(formula)


def check_rounds_settings(settings: FitSettings) -> None:
    """Refuse what needs all statistics, which are not sent in several rounds."""
    mode = settings.mode
    if settings.max_rounds < 2:
        raise FedRidgeError(
            f'mode="{mode}" needs max_rounds of 2 or more, got {settings.max_rounds}.'
        )
    if mode == "auto":
        return
    if settings.selection is not None:
        raise FedRidgeError(
            f'alpha cannot be chosen with mode="{mode}", which never has the '
            'statistics: use mode="oneshot", or one run for each alpha.'
        )
    if settings.standard_errors != "classical":
        raise FedRidgeError(
            f'standard_errors="{settings.standard_errors}" needs the statistics, which '
            f'mode="{mode}" never has: use mode="oneshot".'
        )
    if settings.wire_dtype != "float64":
        raise FedRidgeError(
            f'wire_dtype="{settings.wire_dtype}" is for mode="oneshot"; mode="{mode}" '
            "sends vectors of float64, and all else as small as it may be."
        )


def check_secure_settings(settings: FitSettings) -> None:
    """Refuse what needs the numbers of single clients, which nobody sees."""
    if not isinstance(settings.secure, SecureSum):
        raise FedRidgeError(f"secure must be SecureSum(...), got {settings.secure!r}.")
    cv, screen, privacy = settings.cv, settings.screen, settings.privacy
    private = privacy is not None
    reasons = {
        'privacy with another trust than "secagg", by which every client adds its part '
        "of the noise": privacy is not None and privacy.trust != "secagg",
        "neighbours of a client that are not all others, since each must count who "
        "adds noise": private and settings.secure.neighbours is not None,
        f'cv="{cv}" compares single clients: use cv="gcv", which needs the total '
        'only, or cv="groups"': not private and cv not in (None, "gcv", "groups"),
        f'screen="{screen}" compares single clients: leave it out': screen == "exclude",
        f'mode="{settings.mode}" sends products of single clients: use '
        'mode="oneshot"': settings.mode in ("refine", "cg"),
        f'standard_errors="{settings.standard_errors}" needs sums of single clients: '
        "leave it out": settings.standard_errors != "classical",
        "labels of classes are told by single clients": settings.classes is not None,
        f'statistics="{settings.statistics}" cannot be added up under masks: leave it '
        "out": settings.statistics == "triangular",
        f'wire_dtype="{settings.wire_dtype}" is not exact, and masks need whole '
        "numbers: leave it out": settings.wire_dtype != "float64",
        "the feature map takes means and variances from single clients: give them "
        "from public knowledge, as Standardize(means=[...], scales=[...])": (
            settings.map_needs_data
        ),
    }
    wrong = [reason for reason, applies in reasons.items() if applies]
    if wrong:
        raise FedRidgeError(f"not available with secure sums: {'; '.join(wrong)}.")
    if privacy is not None and privacy.min_clients - privacy.max_colluding < 2:
        raise FedRidgeError(
            "DifferentialPrivacy(min_clients=...) must be above max_colluding by 2 at "
            "least: so many clients share the noise of a secure sum. With its default "
            'of 1 every client would add the whole noise, as with trust="local".'
        )
    if settings.formula is not None:
        Coding.public(settings.formula)
    if not private:
        object.__setattr__(settings, "statistics", "fixed")


def fewest_connected(settings: FitSettings) -> int:
    """Return how many clients must be there before a fit is begun."""
    if settings.ledger is not None:
        return 1  # those whose answers are in it need not be there
    return max(settings.min_clients, _fewest_in_sums(settings))


def check_waiting(settings: FitSettings, waiting: int | None) -> None:
    """Refuse to begin a secure sum with fewer clients than it needs."""
    needed = _fewest_in_sums(settings)
    if waiting is not None and waiting < needed:
        raise FedRidgeError(
            f"min_available_nodes={waiting} is too few: the secure sum needs {needed} "
            "clients (min_clients of SecureSum and DifferentialPrivacy; twice as many "
            'with cv="groups"), or nothing is released.'
        )


def _fewest_in_sums(settings: FitSettings) -> int:
    if settings.secure is None:
        return 0
    promised = 0 if settings.privacy is None else settings.privacy.min_clients
    groups = 2 if settings.selection == "groups" else 1
    return groups * max(settings.secure.min_clients, promised)


def check_form_settings(settings: FitSettings) -> None:
    """Refuse what has no sums of all rows, or would spoil what their form keeps."""
    form, mode = settings.statistics, settings.mode
    reasons = {
        "privacy adds its noise to other sums": settings.privacy is not None,
        f'mode="{mode}" sends no sums of all rows': mode != "oneshot",
        "float32 has fewer digits than it keeps": settings.wire_dtype != "float64",
        "labels of classes are sent as moments": settings.classes is not None,
        "the feature map takes numbers from the data, whose rounding depends on the "
        "order of clients (give them, as in Standardize(means=[...], scales=[...]))": (
            form == "fixed" and settings.map_needs_data
        ),
    }
    wrong = [reason for reason, applies in reasons.items() if applies]
    if wrong:
        raise FedRidgeError(
            f'statistics="{form}" is not available here: {"; ".join(wrong)}. Use '
            'statistics="moments", or leave that out.'
        )


def check_ledger_settings(settings: FitSettings) -> None:
    """Refuse what needs all clients at once: a ledger has some of them from before."""
    if not isinstance(settings.ledger, str | os.PathLike):
        raise FedRidgeError(f"ledger must be a path, got {settings.ledger!r}.")
    if not Path(settings.ledger).is_absolute():
        raise FedRidgeError(
            f"ledger must be an absolute path, got {str(settings.ledger)!r}: a "
            "ServerApp runs in the folder where its SuperLink was started."
        )
    errors, cv = settings.standard_errors, settings.cv
    reasons = {
        "in a secure sum nobody has the part of a single client, so none can be "
        "replaced or removed: run a new sum without it": settings.secure is not None,
        "with privacy every upload is a release of its own, and the noise stays in the "
        "total: run again without the ledger": settings.privacy is not None,
        f'mode="{settings.mode}" keeps no statistics: use mode="oneshot"': (
            settings.mode != "oneshot"
        ),
        f'family="{settings.family}" asks everybody in every round': (
            settings.family != "gaussian"
        ),
        'statistics="triangular" cannot be taken away from a total again: use '
        '"moments", or "fixed", which is exact': settings.statistics == "triangular",
        f'standard_errors="{errors}" asks all clients for their residuals: use '
        '"classical" or "CR1"': settings.asks_residuals,
        'cv="clients" asks all clients for their losses: use cv="server", which '
        "chooses by the same losses": cv == "clients",
        "a formula agrees on levels with all tables at once: let load_data return (X, "
        "y)": settings.formula is not None,
        "classes are agreed on with all clients at once: code them as numbers in "
        "load_data": settings.classes is not None,
        "the feature map takes numbers from the data of all clients: give them, as "
        "Standardize(means=[...], scales=[...])": settings.map_needs_data,
        'screen="exclude" would leave out what is in the ledger: remove a client by '
        "name": settings.screen == "exclude",
    }
    wrong = [reason for reason, applies in reasons.items() if applies]
    if wrong:
        raise FedRidgeError(f"not available with a ledger: {'; '.join(wrong)}.")


def check_family_settings(settings: FitSettings) -> None:
    """Refuse what a likelihood that is maximised in rounds does not go with."""
    what = f'family="{settings.family}"'
    if settings.privacy is not None:
        raise PrivacyError(
            f"{what} is not available with privacy: every round would be a release of "
            'its own about the same rows. Use family="gaussian" on 0 and 1.'
        )
    others = {
        "secure": "two sums over other clients would tell single ones",
        "statistics": "it sends moments",
        "standard_errors": "they follow from the last round, as in a GLM",
        "classes": "its labels are those of y",
    }
    for name, why in others.items():
        if getattr(settings, name) != getattr(type(settings), name):
            raise FedRidgeError(f"{name} is not available with {what}: {why}.")
    if settings.mode not in ("oneshot", "auto"):
        raise FedRidgeError(
            f'{what} has rounds of its own, each with all statistics: mode="'
            f'{settings.mode}" is for family="gaussian".'
        )
    if settings.wire_dtype != "float64":
        raise FedRidgeError(
            f"{what} sends float64: rounding to {settings.wire_dtype} would move where "
            "the rounds end."
        )
    if settings.selection == "gcv":
        raise FedRidgeError(
            f'cv="gcv" is for family="gaussian": with {what} alpha is chosen by the '
            'deviance of clients that are left out, cv="server" or cv="clients".'
        )


def check_private_settings(settings: FitSettings) -> None:
    """Refuse what would tell more than a private release does, with the reason."""
    privacy = settings.privacy
    if not isinstance(privacy, DifferentialPrivacy):
        raise PrivacyError(
            f"privacy must be DifferentialPrivacy(...), got {privacy!r}."
        )
    if settings.cv == "gcv":
        raise PrivacyError(
            'cv="gcv" needs the exact sum of squared residuals, which is not sent with '
            "privacy. Give alphas without cv: alpha is then chosen from the noisy "
            "statistics, at no cost in privacy."
        )
    if settings.cv not in (None, "noise"):
        raise PrivacyError(
            f'cv="{settings.cv}" is not available with privacy: losses of clients are '
            "a further release about the same rows, and exact statistics of single "
            "clients are not sent. Give alphas without cv: alpha is then chosen "
            "from the noisy statistics, at no cost in privacy."
        )
    if settings.standard_errors != "classical":
        raise PrivacyError(
            f'standard_errors="{settings.standard_errors}" is not available with '
            "privacy: there are no standard errors of noisy statistics."
        )
    if settings.classes is not None:
        raise PrivacyError(
            "classes is not available with privacy: labels and their counts are sent "
            "as they are. Code two public classes as -1 and 1 in load_data."
        )
    if settings.mode in ("refine", "cg"):
        raise PrivacyError(
            f'mode="{settings.mode}" asks for exact products, which are not private. '
            "Private rounds are DifferentialPrivacy(..., rounds=R)."
        )
    if settings.feature_map is not None and settings.feature_map.needs_data:
        raise PrivacyError(
            "the feature map would take numbers from the data, which are private: give "
            "them from public knowledge, as Standardize(means=[...], scales=[...]) and "
            "RandomFourierFeatures(200, gamma=0.1)."
        )
    if settings.screen == "exclude":
        raise PrivacyError(
            'screen="exclude" compares the statistics of single clients, which noise '
            "hides: a private fit cannot tell who is unlike the others. Leave "
            "screen alone; nothing is then compared."
        )
    if settings.standardize:
        raise PrivacyError(
            "standardize=True would scale by variances of the data, which are private: "
            "scale features by public constants in load_data."
        )
    if settings.wire_dtype != "float64":
        raise PrivacyError('a private release is sent as wire_dtype="float64".')
    if privacy.trust == "secagg" and settings.secure is None:
        raise PrivacyError(
            'trust="secagg" is for secure sums, FedRidge(secure=SecureSum(), ...). '
            'Without them use "local", or "server" if the server may see sums of '
            "single clients."
        )
    if privacy.uses_residuals and settings.alphas is not None:
        raise PrivacyError(
            'alpha cannot be chosen with more than one private round, or "moments": '
            "the questions to the clients depend on it. Give one alpha; beyond it, "
            "coefficients are shrunk as far as the noise demands."
        )
