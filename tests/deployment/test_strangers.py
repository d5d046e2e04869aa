"""Who is not let in: strangers, and whoever pretends to be the SuperLink."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployed import Deployed, assert_pooled, read_report, wait_until
from fedridge_deployment.site import Site
from man_in_the_middle import ManInTheMiddle

from fedridge_flwr.app.credentials import Credentials, write_credentials

pytestmark = [pytest.mark.deployment, pytest.mark.slow]

LET_IN = "SuperNode ID: "


def _site(deployed: Deployed, name: str, port: int, *options: str) -> Site:
    """Start a SuperNode with these options, outside of what the federation knows."""
    site = Site(
        name=name,
        data=deployed.data[3],
        connection=["--superlink", f"127.0.0.1:{port}", *options],
        environment={
            **deployed.federation.environment,
            "FLWR_HOME": str(deployed.folder / f"home-{name}"),
        },
        log_file=deployed.folder / f"{name}.log",
        node_config={"site": name, "gate": str(deployed.gate)},
    )
    site.start()
    deployed.federation.sites[name] = site  # so that it is stopped at the end
    return site


def test_strangers_are_not_let_in(deployed: Deployed, tmp_path: Path) -> None:
    federation = deployed.federation
    for k in range(3):
        deployed.add(k)
    federation.wait_for()
    trust = ("--root-certificates", str(federation.credentials.authority))
    own = write_credentials(tmp_path / "own", [], ["stranger"]).node_key("stranger")
    strangers = [
        _site(deployed, "no-key", federation.port, *trust),
        _site(
            deployed,
            "unknown-key",
            federation.port,
            *(*trust, "--auth-supernode-private-key", str(own)),
        ),
        _site(deployed, "no-tls", federation.port, "--insecure"),
    ]
    # One that belongs here, and starts after them, connects.
    deployed.add(3)
    federation.wait_for("site-3")
    assert federation.online() == set(federation.node_ids.values())
    for stranger in strangers:
        assert LET_IN not in stranger.log, stranger.log
    assert LET_IN in federation.sites["site-0"].log
    output = deployed.output()
    config = {"min-sites": 4, "timeout": 180.0, "output-dir": str(output)}
    federation.run(deployed.app, config)
    assert_pooled(output, deployed.data[:4])
    assert read_report(output)["failures"] == {}
    assert not any((deployed.gate / f"{s.name}.asked").exists() for s in strangers)


@pytest.fixture
def rogue(deployed: Deployed, tmp_path: Path) -> Iterator[ManInTheMiddle]:
    """A proxy with a certificate for the right host, by another authority."""
    yield from _proxy(
        deployed, write_credentials(tmp_path / "rogue", ["127.0.0.1"], [])
    )


@pytest.fixture
def trusted(deployed: Deployed) -> Iterator[ManInTheMiddle]:
    """The same proxy with the SuperLink's own key, as if that had been stolen."""
    yield from _proxy(deployed, deployed.federation.credentials)


def _proxy(deployed: Deployed, shows: Credentials) -> Iterator[ManInTheMiddle]:
    federation = deployed.federation
    proxy = ManInTheMiddle(shows, federation.port, federation.credentials.authority)
    yield proxy
    proxy.close()


def test_another_certificate_is_refused(
    deployed: Deployed, rogue: ManInTheMiddle, trusted: ManInTheMiddle
) -> None:
    """The second proxy shows that the first would have been found if it had worked."""
    federation = deployed.federation
    credentials = federation.credentials
    sites = {}
    for name, proxy in {"site-a": rogue, "site-b": trusted}.items():
        federation.add_site(name, deployed.data[0], start=False)
        sites[name] = _site(
            deployed,
            name,
            proxy.port,
            *("--root-certificates", str(credentials.authority)),
            *("--auth-supernode-private-key", str(credentials.node_key(name))),
        )
    federation.wait_for("site-b")
    wait_until(lambda: bool(rogue.refused), 60.0, "the rogue proxy to be refused")
    assert trusted.bytes_read > 0
    assert trusted.refused == []
    assert rogue.bytes_read == 0
    assert all("ALERT" in reason.upper() for reason in rogue.refused), rogue.refused
    assert federation.online() == deployed.ids("site-b")
    assert LET_IN not in sites["site-a"].log


def test_flwr_run_refuses_another_certificate(
    deployed: Deployed, rogue: ManInTheMiddle
) -> None:
    federation = deployed.federation
    settings = federation.home / "config.toml"
    told = settings.read_text().replace(str(federation.port), str(rogue.port))
    settings.write_text(told)
    done = subprocess.run(
        ["flwr", "run", str(deployed.app), "loopback"],
        env=federation.environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "Successfully started run" not in done.stdout
    assert done.returncode != 0
    assert rogue.refused
    assert rogue.bytes_read == 0
