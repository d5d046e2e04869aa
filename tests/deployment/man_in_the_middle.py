"""A proxy that ends TLS with a certificate of its own and passes everything on."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path

from fedridge_flwr.app.credentials import Credentials

_CHUNK = 1 << 16


class ManInTheMiddle:
    """Listens on a free port; counts who trusted it and what it could read.

    Parameters
    ----------
    shows : Credentials
        The certificate that it shows to whoever connects.
    port : int
        Where the SuperLink really is.
    authority : Path
        Whom the proxy trusts, on its way to the SuperLink.
    """

    def __init__(self, shows: Credentials, port: int, authority: Path) -> None:
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server.load_cert_chain(shows.certificate, shows.key)
        self._client = ssl.create_default_context(cafile=str(authority))
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.refused: list[str] = []
        self.bytes_read = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                threading.Thread(
                    target=self._serve, args=(caller,), daemon=True
                ).start()

    def _serve(self, caller: socket.socket) -> None:
        try:
            # The handshake ends on the caller's side last: one read shows its verdict.
            victim = self._server.wrap_socket(caller, server_side=True)
            first = victim.recv(_CHUNK)
        except (ssl.SSLError, OSError) as error:
            self.refused.append(str(error))
            return
        if not first:
            return
        with contextlib.suppress(OSError):
            address = ("127.0.0.1", self._target)
            superlink = self._client.wrap_socket(
                socket.create_connection(address), server_hostname="127.0.0.1"
            )
            self._pass_on(first)
            superlink.sendall(first)
            back = threading.Thread(target=self._pump, args=(superlink, victim))
            back.start()
            self._pump(victim, superlink)
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK):
                self._pass_on(chunk)
                target.sendall(chunk)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _pass_on(self, chunk: bytes) -> None:
        self.bytes_read += len(chunk)
