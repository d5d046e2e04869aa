"""A SuperLink with TLS, authenticated SuperNodes, and what happens to some of them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from deployed import Deployed, assert_pooled, read_report
from fedridge_deployment.demo import APPS
from fedridge_deployment.federation import write_app

pytestmark = pytest.mark.deployment


def test_one_site_killed_mid_run_and_the_model_is_that_of_the_others(
    deployed: Deployed,
) -> None:
    """The short version, in ``make test``."""
    names = [deployed.add(k) for k in range(3)]
    deployed.federation.wait_for()
    deployed.hold("site-2")
    output = deployed.output()
    config = deployed.config(output, wait_for=3, min_sites=2, strict=False)
    run = deployed.federation.submit(deployed.app, config)
    deployed.wait_until_asked("site-2")
    deployed.federation.sites["site-2"].kill()
    report = deployed.end(run, output)
    assert_pooled(output, deployed.data[:2])
    assert set(report["failures"]) == deployed.ids(names[2])
    # The name of registration, which even a site that never answers has.
    ids = deployed.federation.node_ids
    assert report["names"] == {ids[name]: name for name in names}
    assert set(report["participants"]) == deployed.ids(*names[:2])


@pytest.mark.slow
def test_five_sites_one_killed_and_one_stopped(deployed: Deployed) -> None:
    names = [deployed.add(k) for k in range(5)]
    deployed.federation.wait_for()
    deployed.hold("site-3", "site-4")
    output, timeout = deployed.output(), 180.0
    config = deployed.config(
        output, wait_for=5, min_sites=3, strict=False, timeout=timeout
    )
    run = deployed.federation.submit(deployed.app, config)
    deployed.wait_until_asked("site-3", "site-4")
    deployed.federation.sites["site-3"].kill()
    deployed.federation.sites["site-4"].pause()
    report = deployed.end(run, output)
    assert report["seconds"]["train"] < timeout + 120.0
    assert set(report["failures"]) == deployed.ids("site-3", "site-4")
    assert set(report["participants"]) == deployed.ids(*names[:3])
    assert_pooled(output, deployed.data[:3])


@pytest.mark.slow
def test_all_four_combinations_of_apis(deployed: Deployed, tmp_path: Path) -> None:
    for k in range(3):
        deployed.add(k)
    deployed.federation.wait_for()
    for server, client in product(("", "_legacy"), repeat=2):
        app = write_app(
            APPS / "sites",
            tmp_path / f"server{server}-client{client}",
            serverapp=f"sites.server_app{server}:app",
            clientapp=f"sites.client_app{client}:app",
        )
        output = deployed.output()
        config = {"min-sites": 3, "timeout": 180.0, "output-dir": str(output)}
        deployed.federation.run(app, config)
        assert_pooled(output, deployed.data[:3])
        assert len(read_report(output)["participants"]) == 3
