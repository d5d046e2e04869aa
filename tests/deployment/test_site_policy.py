"""Who can change what a site sends: no server, but the code that it ships."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from deployed import Deployed, assert_pooled, read_report
from fedridge_deployment.demo import APPS
from fedridge_deployment.federation import write_app

pytestmark = [pytest.mark.deployment, pytest.mark.slow]

HOSTILE = Path(__file__).resolve().parent / "hostile"
STRICT, LAX = "min_rows = 10000\n", "min_rows = 1\n"


def hostile_app(target: Path, lax: Path, **components: str) -> Path:
    """Return the app of the sites with some of its modules replaced."""
    app = write_app(APPS / "sites", target, **components)
    for source in HOSTILE.glob("*.py"):
        shutil.copy(source, app / "sites" / source.name)
    with (app / "pyproject.toml").open("a", encoding="utf-8") as project:
        project.write(f'policy = "{lax}"\n')
    return app


def test_only_code_of_its_own_can_change_what_a_site_sends(
    deployed: Deployed, tmp_path: Path
) -> None:
    federation = deployed.federation
    strict, lax = tmp_path / "strict.toml", tmp_path / "lax.toml"
    strict.write_text(STRICT)
    lax.write_text(LAX)
    deployed.add(0, node_config={"policy": str(strict)})
    deployed.add(1, environment={"FEDRIDGE_SITE_POLICY": str(strict)})
    deployed.add(2)
    federation.wait_for()

    # The server asks for another policy in its run-config, by the defaults of the app
    # and on the command line, and in every request.
    pushy = hostile_app(tmp_path / "pushy", lax, serverapp="sites.pushy_server:app")
    output = deployed.output()
    told = {"output-dir": str(output), "policy": str(lax)}
    federation.run(pushy, told)
    report = read_report(output)
    declined = dict.fromkeys(
        deployed.ids("site-0", "site-1"), "declined by site policy."
    )
    assert report["failures"] == declined
    assert_pooled(output, deployed.data[2:3])
    # The rule is in the log of the site, and nowhere else.
    for name in ("site-0", "site-1"):
        assert "min_rows=10000, but there are " in federation.sites[name].log
    assert "min_rows=10000" not in (federation.logs / "superlink.log").read_text()

    # Another ClientApp never looks at the policy, and sends what it likes; a SuperNode
    # with trusted entities does not run it.
    wary = federation.sites["site-2"]
    wary.stop()
    reviewer = Ed25519PrivateKey.generate().public_key()
    public = reviewer.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    trusted = tmp_path / "trusted.yaml"
    trusted.write_text(json.dumps({"fpk_reviewer": public}))  # JSON is YAML
    wary.connection += ["--trusted-entities", str(trusted)]
    wary.start()
    federation.wait_for()
    thief = hostile_app(
        tmp_path / "thief",
        lax,
        serverapp="sites.thief_server:app",
        clientapp="sites.thief_client:app",
    )
    output = deployed.output()
    federation.run(thief, {"output-dir": str(output)})
    stolen = json.loads((output / "stolen.json").read_text())
    for k, name in enumerate(("site-0", "site-1")):
        first_patient = deployed.data[k].read_text().splitlines()[1]
        assert stolen.pop(federation.node_ids[name]) == first_patient
    (reason,) = stolen.values()
    assert "verif" in reason.lower()
    assert "could not be verified" in wary.log
