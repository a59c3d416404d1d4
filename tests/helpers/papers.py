"""Certificates as FLARE's provisioning makes them, and couriers that meet on a network which a test can meddle with."""

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from isthmus.protect.key_agreement import KeyPair
from isthmus.wire.flare.courier import Post, SealedCourier
from isthmus.wire.flare.papers import Papers
from isthmus.wire.flare.seals import Hello, Seals

BANKS = ("server", "bank-a", "bank-b")
JOB = "job-1"
Meddler = Callable[
    [str, str, bytes], Sequence[tuple[str, bytes]]
]  # sender, receiver, packet -> (claimed sender, packet)


@cache
def key_of(name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate(name: str, issuer: str, days: tuple[float, float] = (-1, 30), authority: bool = False) -> bytes:
    """A certificate that is valid from ``days[0]`` to ``days[1]`` days from now."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key_of(name).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .sign(key_of(issuer), hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


@cache
def root(name: str = "authority", issuer: str = "") -> bytes:
    return certificate(name, issuer or name, authority=True)


def papers(name: str, issuer: str = "authority", days: tuple[float, float] = (-1, 30), between: bytes = b"") -> Papers:
    key = key_of(name).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    return Papers(certificate(name, issuer, days) + between, key, root())


@cache
def hellos(job: str = JOB) -> dict[str, tuple[KeyPair, Hello]]:
    """A key pair and a signed hello of each party."""
    pairs = {name: KeyPair() for name in BANKS}
    return {name: (pair, Hello.signed(papers(name), job, pair, {"version": "1"})) for name, pair in pairs.items()}


def seals_of(name: str, job: str = JOB) -> Seals:
    said = hellos(job)
    others = {other: hello for other, (_, hello) in said.items() if other != name}
    return Seals(*said[name], others, root(), job, name)


class Network:
    """Carries packets between parties of this process, each by a thread of its own; ``meddler`` sees every packet."""

    def __init__(self) -> None:
        self.listeners: dict[str, Callable[[str, bytes], None]] = {}
        self.meddler: Meddler = lambda sender, receiver, packet: [(sender, packet)]
        self.carried: list[tuple[str, str, bytes]] = []
        self.early: list[tuple[str, str, bytes]] = []  # for parties that do not listen yet
        self.lock = threading.Lock()

    def post(self, name: str) -> Post:
        """The post of a party."""
        return _Door(self, name)

    def hand_over(self, claimed: str, receiver: str, packet: bytes) -> None:
        """Let a packet arrive, or keep it for a party that does not listen yet."""
        with self.lock:
            listener = self.listeners.get(receiver)
            if listener is None:
                self.early.append((claimed, receiver, packet))
        if listener is not None:
            threading.Thread(target=listener, args=(claimed, packet)).start()

    def courier(self, name: str, timeout: float = 10, aborted: Callable[[], bool] = lambda: False) -> SealedCourier:
        return SealedCourier(self.post(name), BANKS, BANKS.index(name), seals_of(name), timeout, aborted)


class _Door:
    """The post of one party."""

    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name = network, name

    def put(self, receiver: str, packet: bytes) -> None:
        network = self.network
        network.carried.append((self.name, receiver, packet))
        for claimed, arriving in network.meddler(self.name, receiver, packet):
            network.hand_over(claimed, receiver, arriving)

    def listen(self, arrived: Callable[[str, bytes], None]) -> None:
        with self.network.lock:
            early, self.network.early = self.network.early, []
            self.network.listeners[self.name] = arrived
        for each in early:
            self.network.hand_over(*each)
