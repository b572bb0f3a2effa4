"""The keys of a federation: a certificate authority, the server's certificate, and a pair of keys for each client.

FOLDER/ca.crt, ca.key                                         stay where they were made
FOLDER/server/ca.crt, server.crt, server.key, client-*.pub    go to the server
FOLDER/client-0/ca.crt, client.key                            go to client 0, and so on
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import write_bytes, write_secret

Key = ec.EllipticCurvePrivateKey
LOCAL_NAMES = ("127.0.0.1", "localhost")
"""The names by which programs on the server's own machine reach it."""
HANDSHAKE = 5.0
"""Seconds that a server has to show its certificate."""


class ServerKeys(NamedTuple):
    """The files of a server."""

    ca: Path
    certificate: Path
    key: Path
    clients: dict[int, Path]
    """The public key of each client."""


class ClientKeys(NamedTuple):
    """The files of a client."""

    ca: Path
    key: Path


def make_keys(folder: Path, clients: int, hosts: Sequence[str], days: float) -> None:
    """Make the keys of a federation.

    An existing authority and existing keys of clients are kept; the server always gets a new certificate.

    Args:
        folder: Where the keys go.
        clients: The number of clients.
        hosts: The names and addresses by which clients reach the server.
        days: For how many days the server's certificate is valid.
    """
    if clients < 1:
        raise FedQHDError(f"clients={clients} is not possible: there must be at least one")
    if not days > 0:
        raise FedQHDError(f"days={days:g} is not possible: it must be above 0")
    make_authority(folder)
    make_server_certificate(folder, hosts, timedelta(days=days))
    for client in range(clients):
        private = folder / f"client-{client}" / "client.key"
        if not private.exists():
            key = ec.generate_private_key(ec.SECP384R1())
            write_secret(private, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
            public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
            write_bytes(folder / "server" / f"client-{client}.pub", public + b"\n")
        write_bytes(private.with_name("ca.crt"), (folder / "ca.crt").read_bytes())


def write_key(path: Path, key: Key) -> None:
    """Write a private key as PEM."""
    write_secret(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def certificate(
    name: str,
    key: Key,
    issuer: str,
    issuer_key: Key,
    life: timedelta,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
) -> bytes:
    """Return a signed certificate as PEM; `extensions` are pairs of an extension and whether it is critical."""

    def named(common: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])

    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + life) - timedelta(days=1))  # the clocks of machines differ
        .not_valid_after(now + life)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.PEM)


AUTHORITY, LIFE = "FedQHD federation", timedelta(days=3650)


def make_authority(folder: Path) -> None:
    """Make a certificate authority, ca.key and ca.crt, unless the folder has one."""
    if (folder / "ca.key").exists() and (folder / "ca.crt").exists():
        return
    key = ec.generate_private_key(ec.SECP384R1())
    extensions = [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
    ]
    write_key(folder / "ca.key", key)
    write_bytes(folder / "ca.crt", certificate(AUTHORITY, key, AUTHORITY, key, LIFE, extensions))


def make_server_certificate(folder: Path, hosts: Sequence[str], life: timedelta) -> None:
    """Make a key and a certificate for the server, valid for these hosts, LOCAL_NAMES and the time `life`."""
    authority = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(authority, Key)
    key = ec.generate_private_key(ec.SECP384R1())
    names = [name_of(host) for host in dict.fromkeys([*hosts, *LOCAL_NAMES])]
    extensions = [
        (x509.SubjectAlternativeName(names), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), False),
    ]
    write_key(folder / "server" / "server.key", key)
    made = certificate("FedQHD server", key, AUTHORITY, authority, life, extensions)
    write_bytes(folder / "server" / "server.crt", made)
    write_bytes(folder / "server" / "ca.crt", (folder / "ca.crt").read_bytes())


def name_of(host: str) -> x509.GeneralName:
    """Return a host name or IP address in the form that a certificate needs.

    Raises:
        FedQHDError: If it is neither.
    """
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
        raise FedQHDError(
            f"host={host!r} is neither a name nor an address: give the one by which clients reach the server"
        )
    return x509.DNSName(host)


def server_keys(folder: Path, clients: int) -> ServerKeys:
    """Return the files of a server with this number of clients.

    Raises:
        FedQHDError: If a file is missing, if key and certificate do not match, or if the certificate has expired.
    """
    found = ServerKeys(
        folder / "ca.crt", folder / "server.crt", folder / "server.key",
        {i: folder / f"client-{i}.pub" for i in range(clients)},
    )  # fmt: skip
    check_files_exist(folder, [found.ca, found.certificate, found.key, *found.clients.values()])
    try:
        ends = x509.load_pem_x509_certificate(found.certificate.read_bytes()).not_valid_after_utc
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(found.certificate, found.key)
    except (ValueError, ssl.SSLError) as error:
        raise FedQHDError(f"keys={str(folder)!r} cannot be used: {error}") from error
    if ends < datetime.now(UTC):
        raise FedQHDError(f"{found.certificate} expired on {ends:%d %B %Y}: make a new one with fedqhd federate keys")
    return found


def certified_names(certificate: Path) -> tuple[str, ...]:
    """Return the names and addresses for which a certificate is valid."""
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))


def client_keys(folder: Path) -> ClientKeys:
    """Return the files of a client; raise FedQHDError if one is missing."""
    found = ClientKeys(folder / "ca.crt", folder / "client.key")
    check_files_exist(folder, found)
    return found


def check_files_exist(folder: Path, files: Sequence[Path]) -> None:
    """Raise FedQHDError that names the missing files, if any."""
    missing = [path.name for path in files if not path.exists()]
    if missing:
        raise FedQHDError(
            f"keys={str(folder)!r} lacks {', '.join(missing)}: fedqhd federate keys makes them, a folder per machine"
        )


def outdated(error: ssl.SSLCertVerificationError) -> bool:
    """Tell whether a certificate was refused because it is not valid yet (9) or no longer (10)."""
    return error.verify_code in (9, 10)


def check_certificate(host: str, port: int, ca: Path) -> None:
    """Check the certificate that a server shows.

    Raises:
        FedQHDError: If it is not valid for this host, or if the server does not speak TLS.
        OSError: If no server answers.
    """
    try:
        context = ssl.create_default_context(cafile=str(ca))
    except ssl.SSLError as error:
        raise FedQHDError(f"{ca} is not a certificate: {error}") from error
    with socket.create_connection((host, port), HANDSHAKE) as plain:
        try:
            context.wrap_socket(plain, server_hostname=host).close()
        except ssl.SSLCertVerificationError as error:
            # Small computers without a battery start with the date of 1970 or of their last shutdown.
            date = f"; by the clock of this machine it is {datetime.now():%d %B %Y}" if outdated(error) else ""
            raise FedQHDError(
                f"the certificate of {host}:{port} is refused ({error.verify_message}): the server needs one that is "
                f"signed by {ca} and currently valid for this host{date}"
            ) from error
        except ssl.SSLEOFError as error:
            raise ConnectionError("it hung up") from error
        except ssl.SSLError as error:
            raise FedQHDError(
                f"{host}:{port} does not speak TLS ({error.reason}): was it started with --keys?"
            ) from error
