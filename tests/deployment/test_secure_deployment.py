"""A secure sum over TLS: four sites with a roster, one killed between two exchanges."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from deployed import Deployed, assert_pooled, wait_until

from fedridge_flwr.federation.requests import SECURE_TASKS

pytestmark = [pytest.mark.deployment, pytest.mark.slow]

SITES = 4
POLICY = """\
require_secure_sums = true
min_sites = 3
identity = "key.pem"
roster = "roster.pem"
state = "state"
"""


def write_policies(folder: Path) -> list[Path]:
    """Return the policies of sites, each with its key and the roster of all."""
    keys = [Ed25519PrivateKey.generate() for _ in range(SITES)]
    roster = b"".join(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        for key in keys
    )
    policies = []
    for k, key in enumerate(keys):
        own = folder / f"keys-{k}"
        (own / "state").mkdir(parents=True)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (own / "key.pem").write_bytes(private)
        (own / "roster.pem").write_bytes(roster)
        (own / "policy.toml").write_text(POLICY)
        policies.append(own / "policy.toml")
    return policies


def test_one_site_is_killed_between_two_exchanges(
    deployed: Deployed, tmp_path: Path
) -> None:
    policies = write_policies(tmp_path)
    names = [
        deployed.add(k, node_config={"policy": str(policies[k])}) for k in range(SITES)
    ]
    deployed.federation.wait_for()

    # A plain request gets nothing.
    output = deployed.output()
    config = deployed.config(output, wait_for=SITES, min_sites=3, strict=False)
    plain = deployed.federation.submit(deployed.app, config)
    assert deployed.federation.finish(plain) == "finished:failed"
    assert not (output / "model.json").exists()
    assert "require_secure_sums is set" in deployed.federation.sites["site-0"].log

    # A secure sum, in which one site has sent shares and never delivers.
    (deployed.gate / "site-3.hold-secure-masked").touch()
    output = deployed.output()
    told = deployed.config(
        output, wait_for=SITES, min_sites=3, strict=False, secure=True
    )
    run = deployed.federation.submit(deployed.app, told)
    reached = deployed.gate / "site-3.secure-masked"
    wait_until(reached.exists, 180.0, "site-3 in the third exchange")
    deployed.federation.sites["site-3"].kill()
    report = deployed.end(run, output, seconds=480.0)
    assert_pooled(output, deployed.data[:3])
    assert set(report["failures"]) == deployed.ids("site-3")
    assert set(report["participants"]) == deployed.ids(*names[:3])
    assert "secure sum" in report["mode"]
    for k, policy in enumerate(policies):
        marked = {file.name.rsplit("-", 2)[0] for file in policy.parent.glob("state/*")}
        assert marked == set(SECURE_TASKS[: 2 if k == 3 else 5])
