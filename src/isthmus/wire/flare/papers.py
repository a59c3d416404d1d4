"""What a party shows of itself: a certificate of the run's authority, and signatures by the key that belongs to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.core.errors import IsthmusError, PeerError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.padding import PSS
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.x509 import Certificate

_RENEW = "have it renewed (nvflare cert request, approve, package), or mend the clock"


@dataclass(frozen=True)
class Papers:
    """One party's certificate with its chain, its private key, and the root that it trusts; all in PEM."""

    chain: bytes
    key: bytes
    root: bytes

    @staticmethod
    def of_kit(kit: Path) -> Papers:
        """The papers in a startup kit of FLARE, of a site, a server or an administrator."""
        startup = kit / "startup"
        for whose in ("client", "server"):
            files = [startup / f"{whose}.crt", startup / f"{whose}.key", startup / "rootCA.pem"]
            if all(file.is_file() for file in files):
                return Papers(*(file.read_bytes() for file in files))
        raise IsthmusError(
            f"'{kit}' is no startup kit: it lacks startup/client.crt (or server.crt) with its key, or "
            "startup/rootCA.pem. 'nvflare package' writes a kit."
        )

    @property
    def name(self) -> str:
        """The name that the certificate is made out to."""
        return common_name(_certificates(self.chain, "This party")[0])

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, by which parties can compare it over the telephone."""
        return fingerprint_of(self.chain, "This party")

    def check(self, now: datetime | None = None) -> None:
        """Refuse papers that others would refuse: expired or not yet valid, of another root, or with another key."""
        leaf = checked(self.chain, self.root, self.name, now)
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        if load_pem_private_key(self.key, None).public_key() != leaf:
            raise IsthmusError(f"The private key of {self.name} does not belong to its certificate; package it anew.")

    def sign(self, words: bytes) -> bytes:
        """A signature (RSA-PSS with SHA-256) of some words."""
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = load_pem_private_key(self.key, None)
        if not isinstance(key, RSAPrivateKey):
            raise IsthmusError(f"The key of {self.name} is no RSA key, which the certificates of FLARE have.")
        return key.sign(words, _padding(), SHA256())


def verify(chain: bytes, root: bytes, name: str, words: bytes, signature: bytes) -> None:
    """Refuse words that were not signed by the holder of a certificate of ``root`` made out to ``name``."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.hashes import SHA256

    key = checked(chain, root, name)
    try:
        key.verify(signature, words, _padding(), SHA256())
    except InvalidSignature as error:
        raise PeerError(f"{name} did not sign what came in its name; somebody on the way has changed it.") from error


def checked(chain: bytes, root: bytes, name: str, now: datetime | None = None) -> RSAPublicKey:
    """The public key of a certificate, after its dates, its name and its way up to the root have been checked."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    leaf, *between = _certificates(chain, name)
    [authority] = _certificates(root, "The authority")
    if common_name(leaf) != name:
        raise PeerError(f"The certificate that came in the name of {name} is made out to '{common_name(leaf)}'.")
    for certificate in (leaf, *between, authority):
        _check_dates(certificate, name, now or datetime.now(UTC))
    for certificate, above in zip((leaf, *between), (*between, authority), strict=True):
        _check_issuer(certificate, above, name)
    key = leaf.public_key()
    if not isinstance(key, RSAPublicKey):
        raise PeerError(f"The certificate of {name} has no RSA key, which those of FLARE have.")
    return key


def fingerprint_of(chain: bytes, whose: str) -> str:
    """SHA-256 of the first certificate of a chain in PEM, as FLARE and openssl print it."""
    from cryptography.hazmat.primitives.hashes import SHA256

    digest = _certificates(chain, whose)[0].fingerprint(SHA256())
    return f"SHA256:{digest.hex(':').upper()}"


def common_name(certificate: Certificate) -> str:
    """The name that a certificate is made out to."""
    from cryptography.x509.oid import NameOID

    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _certificates(pem: bytes, whose: str) -> list[Certificate]:
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return load_pem_x509_certificates(pem)
    except ValueError as error:
        raise PeerError(f"{whose} has a certificate that cannot be read; package it anew.") from error


def _check_dates(certificate: Certificate, name: str, now: datetime) -> None:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begins <= now <= ends:
        whose = common_name(certificate)
        of = (
            f"The certificate of {name}"
            if whose == name
            else f"The certificate of '{whose}', which vouches for {name},"
        )
        when = f"has expired on {ends:%Y-%m-%d %H:%M}" if now > ends else f"is valid from {begins:%Y-%m-%d %H:%M} on"
        raise IsthmusError(f"{of} {when} UTC, and it is {now:%Y-%m-%d %H:%M} here: {_RENEW}.")


def _check_issuer(certificate: Certificate, above: Certificate, name: str) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.x509 import BasicConstraints, ExtensionNotFound

    try:
        certificate.verify_directly_issued_by(above)
        issues = above.extensions.get_extension_for_class(BasicConstraints).value.ca
    except (InvalidSignature, ValueError, TypeError, ExtensionNotFound):
        issues = False
    if not issues:
        raise PeerError(f"The certificate of {name} was not issued by the authority that this party trusts.")


def _padding() -> PSS:
    """The padding of every signature."""
    from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
    from cryptography.hazmat.primitives.hashes import SHA256

    return PSS(MGF1(SHA256()), PSS.DIGEST_LENGTH)
