"""SASL from the side that logs in: what is sent to prove who we are, and whether the answer proves
that the other side knows us (RFC 5802 for SCRAM). Randomness comes in as a nonce.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Protocol

from moldau.frozen import frozen

PLAIN = "PLAIN"
SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = (PLAIN, *SCRAM_HASHES)
ACCEPTED_ITERATIONS_MIN = 4096
# Each is two hashes of ours: whoever pretends to be a broker must not keep us busy.
ACCEPTED_ITERATIONS_MAX = 1_000_000
_NO_CHANNEL_BINDING = "n,,"


class LoginError(Exception):
    """The other side is not to be believed. The text completes "… because"."""


@frozen
class Credentials:
    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.username})"


class Login(Protocol):
    """A conversation: `first` is sent, then `answer` to what comes back, until that is None."""

    def first(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None: ...


def new_login(credentials: Credentials, nonce: str) -> Login:
    if credentials.mechanism == PLAIN:
        return PlainLogin(credentials)
    return ScramLogin(credentials, nonce)


class PlainLogin:
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def first(self) -> bytes:
        return f"\0{self._credentials.username}\0{self._credentials.password}".encode()

    def answer(self, challenge: bytes) -> bytes | None:  # noqa: ARG002 - there is nothing to prove
        return None


class ScramLogin:
    def __init__(self, credentials: Credentials, nonce: str) -> None:
        self._credentials = credentials
        self._hash = SCRAM_HASHES[credentials.mechanism]
        self._nonce = nonce
        name = credentials.username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._proof_of_server: bytes | None = None

    def first(self) -> bytes:
        return (_NO_CHANNEL_BINDING + self._first_bare).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._proof_of_server is None:
            return self._prove(challenge)
        said = _attributes(challenge)
        if "e" in said:
            raise LoginError(f"it says {said['e']}")
        if not hmac.compare_digest(_binary(said, "v"), self._proof_of_server):
            raise LoginError("it does not know the password either")
        return None

    def _prove(self, challenge: bytes) -> bytes:
        said = _attributes(challenge)
        nonce = said.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise LoginError("it answers somebody else's nonce")
        digits = said.get("i", "")
        iterations = int(digits) if digits.isascii() and digits.isdigit() else 0
        if not ACCEPTED_ITERATIONS_MIN <= iterations <= ACCEPTED_ITERATIONS_MAX:
            raise LoginError(f"it wants {digits or 'no'} iterations")
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._credentials.password.encode(), _binary(said, "s"), iterations
        )
        binding = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        all_said = f"{self._first_bare},{challenge.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, all_said, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._proof_of_server = hmac.digest(server_key, all_said, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def _attributes(message: bytes) -> dict[str, str]:
    """Of `r=…,s=…,i=…`."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise LoginError("it does not speak SCRAM") from None
    found = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if not separator:
            raise LoginError("it does not speak SCRAM")
        found[name] = value
    return found


def _binary(said: dict[str, str], name: str) -> bytes:
    try:
        return base64.b64decode(said[name], validate=True)
    except (KeyError, binascii.Error):
        raise LoginError("it does not speak SCRAM") from None
