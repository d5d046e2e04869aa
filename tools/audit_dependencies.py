"""Ask for known advisories of every installed package: ``make security``.

Exit status 0: asked about every package, none has an advisory. 1: some have. 2: could
not ask, about all of them or some, which is not the same as finding nothing: pip-audit
itself calls a package that its service does not know "skipped", and ends with "no known
vulnerabilities found" where nobody answered.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

OWN = {"fedridge-flwr"}
SERVICES = ("pypi", "osv")
FOUND_NONE, FOUND_SOME, COULD_NOT_ASK = 0, 1, 2


@dataclass
class Audit:
    """What the advisory services say: who was asked about, and what is known."""

    clean: set[str] = field(default_factory=set)
    advisories: dict[str, list[str]] = field(default_factory=dict)
    not_asked: set[str] = field(default_factory=set)

    def take(self, answer: dict[str, Any]) -> None:
        """Take in what pip-audit writes with ``--format json``."""
        for package in answer["dependencies"]:
            name = package["name"]
            if name in OWN:
                continue
            if "vulns" not in package:
                if name not in self.clean | set(self.advisories):
                    self.not_asked.add(name)
                continue
            self.not_asked.discard(name)
            if package["vulns"]:
                self.clean.discard(name)
                self.advisories[name] = [
                    f"{name} {package['version']}: {advisory['id']}"
                    f" (fixed in {', '.join(advisory['fix_versions']) or 'none yet'})"
                    for advisory in package["vulns"]
                ]
            elif name not in self.advisories:
                self.clean.add(name)

    @property
    def status(self) -> int:
        if self.advisories:
            return FOUND_SOME
        asked = bool(self.clean) and not self.not_asked
        return FOUND_NONE if asked else COULD_NOT_ASK

    def __str__(self) -> str:
        asked = len(self.clean) + len(self.advisories)
        lines = [line for found in self.advisories.values() for line in found]
        if not asked:
            return (
                f"COULD NOT ASK about any of {len(self.not_asked)} packages: no "
                "service of advisories answered, so nothing is known of them."
            )
        if self.not_asked:
            lines.append(f"COULD NOT ASK about {', '.join(sorted(self.not_asked))}.")
        lines.append(
            f"Asked about {asked} packages: "
            + (f"{len(self.advisories)} with" if self.advisories else "no")
            + " advisories."
        )
        return "\n".join(lines)


def ask(service: str) -> dict[str, Any] | None:
    """Return what one service says of the installed packages, None without answer."""
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service]
    command += ["--format", "json", "--progress-spinner", "off", "--skip-editable"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        answer = json.loads(ended.stdout)
    except ValueError:
        why = ended.stderr.strip().splitlines()[-1:] or ["no output"]
        print(f"{service}: no answer ({why[0][:200]})")
        return None
    return dict(answer)


def main() -> int:
    audit = Audit()
    for service in SERVICES:
        answer = ask(service)
        if answer is not None:
            audit.take(answer)
        if answer is not None and not audit.not_asked:
            break
    print(audit)
    return audit.status


if __name__ == "__main__":
    sys.exit(main())
