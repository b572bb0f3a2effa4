"""Who is who on a network: a certificate authority, the server's certificate, and a pair of keys a client.

FOLDER/ca.crt, ca.key                                   stay where they were made
FOLDER/server/ca.crt, server.crt, server.key, client-*.pub    go to the server
FOLDER/client-0/ca.crt, client.key                      go to client 0, and so on
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
from fedqhd.core.files import write_bytes

Key = ec.EllipticCurvePrivateKey
ALWAYS = ("127.0.0.1", "localhost")
"""Names of the server that its own programs know it by."""
HANDSHAKE = 5.0
"""Seconds that a server has to show its certificate."""


class ServerKeys(NamedTuple):
    ca: Path
    certificate: Path
    key: Path
    clients: dict[int, Path]
    """The public keys of the clients."""


class ClientKeys(NamedTuple):
    ca: Path
    key: Path


def make_keys(folder: Path, clients: int, hosts: Sequence[str], days: float) -> None:
    """What is there of the authority and of clients is kept; the server's certificate is made anew."""
    if clients < 1:
        raise FedQHDError(f"clients={clients} is not possible: there must be at least one")
    if not days > 0:
        raise FedQHDError(f"days={days:g} is not possible: certificates must be valid for a while")
    make_authority(folder)
    certify(folder, hosts, timedelta(days=days))
    for client in range(clients):
        private = folder / f"client-{client}" / "client.key"
        if not private.exists():
            key = ec.generate_private_key(ec.SECP384R1())
            write_secret(private, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
            public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
            write_bytes(folder / "server" / f"client-{client}.pub", public + b"\n")
        write_bytes(private.with_name("ca.crt"), (folder / "ca.crt").read_bytes())


def write_secret(path: Path, data: bytes) -> None:
    """For its owner's eyes alone, from the first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    part.touch(0o600)
    part.write_bytes(data)
    part.rename(path)


def write_key(path: Path, key: Key) -> None:
    write_secret(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def certificate(
    name: str,
    key: Key,
    issuer: str,
    issuer_key: Key,
    life: timedelta,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
) -> bytes:
    def named(common: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])

    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + life) - timedelta(days=1))  # clocks differ
        .not_valid_after(now + life)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.PEM)


AUTHORITY, LIFE = "FedQHD federation", timedelta(days=3650)


def make_authority(folder: Path) -> None:
    if (folder / "ca.key").exists() and (folder / "ca.crt").exists():
        return
    key = ec.generate_private_key(ec.SECP384R1())
    extensions = [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
    ]
    write_key(folder / "ca.key", key)
    write_bytes(folder / "ca.crt", certificate(AUTHORITY, key, AUTHORITY, key, LIFE, extensions))


def certify(folder: Path, hosts: Sequence[str], life: timedelta) -> None:
    """A certificate for the server under these names."""
    authority = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(authority, Key)
    key = ec.generate_private_key(ec.SECP384R1())
    names = [name_of(host) for host in dict.fromkeys([*hosts, *ALWAYS])]
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
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
        raise FedQHDError(f"host={host!r} is neither a name nor an address: give what clients know the server by")
    return x509.DNSName(host)


def server_keys(folder: Path, clients: int) -> ServerKeys:
    """The keys of a server, found fit for use."""
    found = ServerKeys(
        folder / "ca.crt", folder / "server.crt", folder / "server.key",
        {i: folder / f"client-{i}.pub" for i in range(clients)},
    )  # fmt: skip
    there(folder, [found.ca, found.certificate, found.key, *found.clients.values()])
    try:
        ends = x509.load_pem_x509_certificate(found.certificate.read_bytes()).not_valid_after_utc
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(found.certificate, found.key)
    except (ValueError, ssl.SSLError) as error:
        raise FedQHDError(f"keys={str(folder)!r} cannot be used: {error}") from error
    if ends < datetime.now(UTC):
        raise FedQHDError(f"{found.certificate} has expired on {ends:%d %B %Y}: make it anew with fedqhd federate keys")
    return found


def client_keys(folder: Path) -> ClientKeys:
    found = ClientKeys(folder / "ca.crt", folder / "client.key")
    there(folder, found)
    return found


def there(folder: Path, files: Sequence[Path]) -> None:
    missing = [path.name for path in files if not path.exists()]
    if missing:
        raise FedQHDError(
            f"keys={str(folder)!r} lacks {', '.join(missing)}: fedqhd federate keys makes them, in a folder a machine"
        )


def check_certificate(host: str, port: int, ca: Path) -> None:
    """One sentence on what is wrong with the certificate that a server shows; OSError where none answers."""
    try:
        context = ssl.create_default_context(cafile=str(ca))
    except ssl.SSLError as error:
        raise FedQHDError(f"{ca} is no certificate: {error}") from error
    with socket.create_connection((host, port), HANDSHAKE) as plain:
        try:
            context.wrap_socket(plain, server_hostname=host).close()
        except ssl.SSLCertVerificationError as error:
            raise FedQHDError(
                f"the certificate of {host}:{port} is refused ({error.verify_message}): its server needs one that "
                f"{ca} has signed, for that name and for today"
            ) from error
        except ssl.SSLEOFError as error:
            raise ConnectionError("it hung up") from error
        except ssl.SSLError as error:
            raise FedQHDError(
                f"{host}:{port} does not speak TLS ({error.reason}): was it started with --keys?"
            ) from error
