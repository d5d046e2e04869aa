"""Certificates and keys of a deployment, and the processes that use them."""

from __future__ import annotations

import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    load_ssh_private_key,
    load_ssh_public_key,
)

from fedridge_flwr import FedRidgeError
from fedridge_flwr.app.credentials import Credentials, main, write_credentials
from fedridge_flwr.app.processes import free_ports, stop_processes, stream


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    folder = tmp_path_factory.mktemp("made") / "credentials"
    return write_credentials(folder, ["localhost", "127.0.0.1"], ["clinic", "lab"])


def _handshake(shows: Credentials, trusts: Path, host: str) -> str:
    """Return the protocol a client ends up with, or raise what it does not like."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(shows.certificate, shows.key)
    client = ssl.create_default_context(cafile=str(trusts))
    left, right = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(left, server_side=True).close()
        except (ssl.SSLError, OSError):
            left.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(right, server_hostname=host) as connection:
            return str(connection.version())
    finally:
        right.close()
        thread.join()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_client_that_trusts_the_authority_connects(
    made: Credentials, host: str
) -> None:
    assert _handshake(made, made.authority, host) == "TLSv1.3"


def test_another_host_is_refused(made: Credentials) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(made, made.authority, "elsewhere.example")


def test_another_authority_is_refused(made: Credentials, tmp_path: Path) -> None:
    other = write_credentials(tmp_path / "other", ["localhost"], [])
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        _handshake(other, made.authority, "localhost")


def test_secrets_are_for_their_owner_only(made: Credentials) -> None:
    secrets = [made.key, made.node_key("clinic"), made.node_key("lab")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert not list(made.folder.glob("ca*.key")), "the authority's key is not kept"


def test_every_node_has_a_key_of_its_own_that_flower_takes(made: Credentials) -> None:
    numbers = set()
    for name in ("clinic", "lab"):
        private = load_ssh_private_key(made.node_key(name).read_bytes(), None)
        public = load_ssh_public_key(made.node_public_key(name).read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.public_key() == public
        numbers.add(private.private_numbers().private_value)
    assert len(numbers) == 2


def test_nothing_is_overwritten(made: Credentials) -> None:
    before = made.key.read_bytes()
    with pytest.raises(FedRidgeError, match=r"already contains .*superlink\.key"):
        write_credentials(made.folder, ["localhost"], [])
    with pytest.raises(FedRidgeError, match=r"already contains clinic\.key"):
        write_credentials(made.folder, [], ["clinic"])
    assert made.key.read_bytes() == before


def test_a_site_makes_its_own_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "--keys-only", "--node", "clinic"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "clinic.key",
        "clinic.key.pub",
    ]
    said = capsys.readouterr().out
    assert "to be registered" in said
    assert "SuperLink" not in said
    assert (tmp_path / "clinic.key").read_text() not in said


def test_the_command_says_what_is_wrong(
    made: Credentials, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([str(made.folder)])
    assert left.value.code == 1
    assert "choose an empty folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none"), "--keys-only"])
    assert "nothing to write" in capsys.readouterr().err


def test_names_do_not_leave_the_folder(tmp_path: Path) -> None:
    for name in ("../clinic", "a/b", "", ".", "superlink", "ca"):
        with pytest.raises(FedRidgeError, match="name of a node"):
            write_credentials(tmp_path / "in", [], [name])
    assert not list(tmp_path.rglob("*.key"))


def test_what_is_no_host_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for host in ("", "10.0.0.1:8443", "https://x.y", "bücher.de", "a b", "x."):
        with pytest.raises(FedRidgeError, match="is not a host"):
            write_credentials(tmp_path / "in", [host], [])
    with pytest.raises(FedRidgeError, match="clinic is named twice"):
        write_credentials(tmp_path / "in", ["::1"], ["clinic", "clinic"])
    assert not (tmp_path / "in").exists()
    assert write_credentials(
        tmp_path / "in", ["::1", "my-host.example"], []
    ).key.exists()


# ---- processes -----------------------------------------------------------------------


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_a_process_ends_with_its_children_even_when_stopped(tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = (
        "import subprocess, sys, time;"
        "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(999)']);"
        f"open({str(child)!r}, 'w').write(str(c.pid));"
        "time.sleep(999)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    while not child.exists() or not child.read_text():
        time.sleep(0.01)
    process.send_signal(19)  # stopped: it cannot even see that it is to end
    stop_processes([process])
    assert process.poll() is not None
    deadline = time.monotonic() + 120
    while _alive(int(child.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(FedRidgeError, match=r"longer than 0\.5 s"):
        stream([sys.executable, "-c", "import time; time.sleep(999)"], {}, 0.5, False)
    assert stream([sys.executable, "-c", "print(3)"], {}, 600.0, False) == "3\n"
