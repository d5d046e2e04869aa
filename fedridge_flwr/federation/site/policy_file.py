"""Where a site's own policy is: named by its node-config or its environment."""

import os
from collections.abc import Mapping
from pathlib import Path

from ..._checks import must_be
from ...errors import PolicyError
from .disclosure import SitePolicy

CONFIG_KEY = "policy"
VARIABLE = "FEDRIDGE_SITE_POLICY"


def policies_in_force(
    node_config: Mapping[str, object], own: SitePolicy | None = None
) -> tuple[SitePolicy, ...]:
    """Return the policies of a site: of its code, and of its file if it names one.

    The file is read again for every request. Neither run-config nor the request has a
    say: both come from the server.

    Parameters
    ----------
    node_config : mapping
        What the site's SuperNode was started with.
    own : SitePolicy, optional
        The policy that the app itself has.

    Raises
    ------
    PolicyError
        If two different files are named, or the one that is cannot be used.

    Examples
    --------
    >>> policies_in_force({}, SitePolicy(min_rows=5))[0].min_rows
    5
    >>> policies_in_force({"policy": "policy.toml"})
    Traceback (most recent call last):
    fedridge_flwr.errors.PolicyError: policy in the node-config must be an absolute \
path, got 'policy.toml'.
    """
    if own is not None and not isinstance(own, SitePolicy):
        raise must_be("site_policy", "a SitePolicy", own, PolicyError)
    named = {}
    if CONFIG_KEY in node_config:
        named["policy in the node-config"] = node_config[CONFIG_KEY]
    if VARIABLE in os.environ:
        named[VARIABLE] = os.environ[VARIABLE]
    files = {_file(name, value) for name, value in named.items()}
    if len(files) > 1:
        raise PolicyError(
            f"the node-config and {VARIABLE} name different site policies: name only "
            "one."
        )
    found = [SitePolicy.load(file) for file in files]
    return tuple(found if own is None else [own, *found])


def _file(name: str, value: object) -> Path:
    # Relative to what? Flower starts apps in a folder of its own choice.
    if not isinstance(value, str) or not Path(value).is_absolute():
        raise must_be(name, "an absolute path", value, PolicyError)
    return Path(os.path.realpath(value))
