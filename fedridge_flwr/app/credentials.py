"""Certificates and keys of a deployment: ``python -m fedridge_flwr.app.credentials``.

A certificate authority, one certificate for the SuperLink, and one key pair for every
SuperNode. Where there is an authority already, use its certificates instead; Flower
does not care who made them.
"""

import argparse
import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..errors import FedRidgeError

_HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_PEM = serialization.Encoding.PEM
_Key = ec.EllipticCurvePrivateKey


class Credentials:
    """Where everything is: what the SuperLink shows, and what everybody trusts.

    Attributes
    ----------
    authority : Path
        The certificate that everybody gets; not a secret.
    certificate, key : Path
        The SuperLink's certificate and private key.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = folder / "ca.crt"
        self.certificate = folder / "superlink.crt"
        self.key = folder / "superlink.key"

    def node_key(self, name: str) -> Path:
        """Return the private key of a SuperNode; the public one ends with .pub."""
        return self.folder / f"{name}.key"

    def node_public_key(self, name: str) -> Path:
        """Return the public key of a SuperNode, to be registered."""
        return self.folder / f"{name}.key.pub"


def write_credentials(
    folder: Path, hosts: Sequence[str], nodes: Sequence[str]
) -> Credentials:
    """Write a new authority, a certificate for these hosts, and keys for these nodes.

    Without hosts there are keys only. The authority's own key is not written at all:
    nobody can make another certificate with it, and for other hosts everything is made
    anew.

    Raises
    ------
    FedRidgeError
        If some of it is there already: a deployment that runs would lose its keys.
    """
    _check_names(nodes)
    names = [_host(host) for host in hosts]
    found = Credentials(folder)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [found.node_key(name) for name in nodes]
    if hosts:
        wanted += [found.authority, found.certificate, found.key]
    there = [path.name for path in wanted if path.exists()]
    if there:
        raise FedRidgeError(
            f"{folder} already contains {', '.join(there)}: choose an empty folder, "
            "or remove these files if no deployment uses them."
        )
    if not wanted:
        raise FedRidgeError(
            "there is nothing to write: name at least one host or node."
        )
    if hosts:
        _write_certificates(found, hosts[0], names)
    for name in nodes:
        write_node_key(found, name)
    return found


def _check_names(nodes: Sequence[str]) -> None:
    for name in nodes:
        if name in ("", ".", "..", "ca", "superlink") or Path(name).name != name:
            raise FedRidgeError(
                f"{name!r} is not the name of a node: no folders, and neither 'ca' nor "
                "'superlink', which have files of their own."
            )
    twice = {name for name in nodes if nodes.count(name) > 1}
    if twice:
        raise FedRidgeError(f"the node {', '.join(sorted(twice))} is named twice.")


def _write_certificates(
    found: Credentials, first: str, names: list[x509.GeneralName]
) -> None:
    authority_key, key = _new_key(), _new_key()
    public, issuer = authority_key.public_key(), _name("fedridge deployment authority")
    authority = (
        _certificate(issuer, authority_key, issuer)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        .sign(authority_key, hashes.SHA256())
    )
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
    server = (
        _certificate(_name(first), key, issuer)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    found.authority.write_bytes(authority.public_bytes(_PEM))
    found.certificate.write_bytes(server.public_bytes(_PEM))
    _write_secret(found.key, _private(key, serialization.PrivateFormat.PKCS8))


def write_node_key(credentials: Credentials, name: str) -> None:
    """Write the key pair of one SuperNode, in the form of ``ssh-keygen``."""
    key = _new_key()
    private = _private(key, serialization.PrivateFormat.OpenSSH)
    _write_secret(credentials.node_key(name), private)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    credentials.node_public_key(name).write_bytes(public + b"\n")


def _new_key() -> _Key:
    return ec.generate_private_key(ec.SECP384R1())


def _private(key: _Key, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(_PEM, form, serialization.NoEncryption())


def _write_secret(path: Path, content: bytes) -> None:
    """Write for the owner's eyes only, from the first byte on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def _certificate(
    subject: x509.Name, key: _Key, issuer: x509.Name
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=365))
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if _HOST.fullmatch(host):
            return x509.DNSName(host)
    raise FedRidgeError(
        f"{host!r} is not a host: a name as in 'superlink.example.org' or an "
        "address as in '10.0.0.1', without port or 'https' before it."
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def main(arguments: list[str] | None = None) -> int:
    """Write credentials and say where each file belongs."""
    parser = argparse.ArgumentParser(
        prog="python -m fedridge_flwr.app.credentials",
        description="Certificates for a SuperLink and a key pair for every SuperNode.",
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--host",
        action="append",
        help="name or address that SuperNodes connect to; repeat it for several "
        "(default: localhost and 127.0.0.1)",
    )
    parser.add_argument("--node", action="append", default=[], help="name of a site")
    parser.add_argument(
        "--keys-only",
        action="store_true",
        help=(
            "no certificates, for a site that creates its own key and shares only "
            "the .pub file"
        ),
    )
    given = parser.parse_args(arguments)
    hosts = [] if given.keys_only else given.host or ["localhost", "127.0.0.1"]
    try:
        found = write_credentials(given.folder, hosts, given.node)
    except FedRidgeError as error:
        parser.exit(1, f"{error}\n")
    if hosts:
        print(f"For everybody:     {found.authority}")
        print(f"SuperLink only:    {found.certificate}, {found.key}")
    for name in given.node:
        print(f"{name} only:{' ' * max(1, 13 - len(name))}{found.node_key(name)}")
        print(f"to be registered:  {found.node_public_key(name)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
