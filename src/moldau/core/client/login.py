"""The client's side of SASL PLAIN and SCRAM (RFC 5802): proves the client's identity and, with
SCRAM, verifies the server's. Randomness comes in as a nonce.
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
# Each iteration costs two hashes: a fake broker must not be able to keep the client busy.
ACCEPTED_ITERATIONS_MAX = 1_000_000
_NO_CHANNEL_BINDING = "n,,"


class LoginError(Exception):
    """The server's message is invalid or does not prove its identity."""


@frozen
class Credentials:
    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.username})"


class Login(Protocol):
    """A conversation: send `first`, then the `answer` to each challenge until it is None."""

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
        fields = _attributes(challenge)
        if "e" in fields:
            raise LoginError(f"the server reports {fields['e']}")
        if not hmac.compare_digest(_binary(fields, "v"), self._proof_of_server):
            raise LoginError("the server does not know the password")
        return None

    def _prove(self, challenge: bytes) -> bytes:
        fields = _attributes(challenge)
        nonce = fields.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise LoginError("the server's nonce does not extend the client's")
        digits = fields.get("i", "")
        iterations = int(digits) if digits.isascii() and digits.isdigit() else 0
        if not ACCEPTED_ITERATIONS_MIN <= iterations <= ACCEPTED_ITERATIONS_MAX:
            raise LoginError(f"the server requests {digits or 'no'} iterations")
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._credentials.password.encode(), _binary(fields, "s"), iterations
        )
        binding = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        auth_message = f"{self._first_bare},{challenge.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, auth_message, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._proof_of_server = hmac.digest(server_key, auth_message, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def _attributes(message: bytes) -> dict[str, str]:
    """The fields of `r=…,s=…,i=…` by name."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise LoginError("the server does not speak SCRAM") from None
    fields = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if not separator:
            raise LoginError("the server does not speak SCRAM")
        fields[name] = value
    return fields


def _binary(fields: dict[str, str], name: str) -> bytes:
    try:
        return base64.b64decode(fields[name], validate=True)
    except (KeyError, binascii.Error):
        raise LoginError("the server does not speak SCRAM") from None
