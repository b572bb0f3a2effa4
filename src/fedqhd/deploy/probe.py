"""What a client learns about its server before it connects: whether it is there, speaks TLS, and what time it has."""

from __future__ import annotations

import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from fedqhd.core.errors import FedQHDError
from fedqhd.deploy.guard import TIME_HEADER
from fedqhd.deploy.keys import HANDSHAKE, check_certificate


def server_time(host: str, port: int, ca: Path | None) -> float:
    """Return the time that a server has now, in seconds since 1970.

    Args:
        host: The name or address of the server.
        port: Its port.
        ca: The certificate of the authority that signed the server's; None if connections are not encrypted.

    Raises:
        FedQHDError: If its certificate is not valid, or if only one side encrypts.
        OSError: If no server answers.
    """
    if ca is not None:
        check_certificate(host, port, ca)
    asked = time.monotonic()
    connection = (
        HTTPConnection(host, port, timeout=HANDSHAKE)
        if ca is None
        else HTTPSConnection(host, port, timeout=HANDSHAKE, context=ssl.create_default_context(cafile=str(ca)))
    )
    try:
        connection.request("GET", "/")
        headers = connection.getresponse().headers
    except (HTTPException, ConnectionResetError) as error:
        if ca is None and speaks_tls(host, port):
            raise FedQHDError(
                f"server='{host}:{port}' encrypts its connections: give --keys with the folder of this client's keys"
            ) from error
        raise ConnectionError(f"{host}:{port} does not answer as a server") from error
    finally:
        connection.close()
    half_way = (time.monotonic() - asked) / 2
    if TIME_HEADER in headers:
        return float(headers[TIME_HEADER]) + half_way
    if "Date" in headers:  # a SuperLink that somebody else has started; its answers have whole seconds
        return parsedate_to_datetime(headers["Date"]).timestamp() + 0.5
    return time.time()


def speaks_tls(host: str, port: int) -> bool:
    """Tell whether a server encrypts its connections, with whatever certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), HANDSHAKE) as plain, context.wrap_socket(plain):
            return True
    except OSError:
        return False
