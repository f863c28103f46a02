"""SCRAM (RFC 5802): the stored form of a password, which verifies the password without revealing
it.
"""

import hashlib
import hmac
from enum import Enum

from moldau.core.metadata.image import ScramCredential
from moldau.protocol.enums import ScramMechanism


class Hashing(Enum):
    """The values are hashlib's names."""

    SHA_256 = "sha256"
    SHA_512 = "sha512"


MECHANISMS = {
    "SCRAM-SHA-256": (ScramMechanism.SCRAM_SHA_256, Hashing.SHA_256),
    "SCRAM-SHA-512": (ScramMechanism.SCRAM_SHA_512, Hashing.SHA_512),
}
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384


def salted_password(hashing: Hashing, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(hashing.value, password.encode(), salt, iterations)


def credential(hashing: Hashing, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    client_key = hmac.digest(salted, b"Client Key", hashing.value)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(hashing.value, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", hashing.value),
        iterations=iterations,
    )
