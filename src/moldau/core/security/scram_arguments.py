"""SCRAM users as arguments of the format command: `SCRAM-SHA-256=[name=alice,password=…]`, or
with `salt`, `iterations` and `saltedpassword`, both in base64.
"""

import base64
import binascii

from moldau.core.metadata.image import ScramCredential
from moldau.core.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    credential,
    salted_password,
)
from moldau.protocol.errors import MoldauError
from moldau.protocol.log_records import UserScramCredentialRecord

DEFAULT_ITERATIONS = 4096


class ScramArgumentError(MoldauError):
    """The argument is not valid. The message never repeats a password."""


def parse_scram_argument(text: str, random_salt: bytes) -> UserScramCredentialRecord:
    """`random_salt` is used if the argument has no salt."""
    name, equals, config = text.strip().partition("=")
    if not equals:
        raise ScramArgumentError("a SCRAM user is written as MECHANISM=[name=…,password=…]")
    if name not in MECHANISMS:
        raise ScramArgumentError(
            f"the SCRAM mechanism {name} is not one of {', '.join(MECHANISMS)}"
        )
    if not (config.startswith("[") and config.endswith("]")):
        raise ScramArgumentError(f"the value of {name} must be in square brackets")
    fields = _fields(config[1:-1])
    user = fields.pop("name", None)
    if not user:
        raise ScramArgumentError(f"{name}: a user needs a name")
    credentials = _credential(name, fields, random_salt)
    if fields:
        raise ScramArgumentError(f"{name} of {user}: {', '.join(sorted(fields))} is unknown")
    return UserScramCredentialRecord(
        name=user,
        mechanism=MECHANISMS[name][0],
        salt=credentials.salt,
        stored_key=credentials.stored_key,
        server_key=credentials.server_key,
        iterations=credentials.iterations,
    )


def _credential(mechanism: str, fields: dict[str, str], random_salt: bytes) -> ScramCredential:
    """Removes the fields that it reads from `fields`."""
    hashing = MECHANISMS[mechanism][1]
    iterations = _iterations(mechanism, fields.pop("iterations", None))
    given_salt = fields.pop("salt", None)
    salt = random_salt if given_salt is None else _decode("salt", given_salt)
    password, salted = fields.pop("password", None), fields.pop("saltedpassword", None)
    if password is not None:
        return credential(
            hashing, salted_password(hashing, password, salt, iterations), salt, iterations
        )
    if salted is None:
        raise ScramArgumentError(f"{mechanism}: a user needs a password or a saltedpassword")
    if given_salt is None:
        raise ScramArgumentError(f"{mechanism}: a saltedpassword needs its salt")
    return credential(hashing, _decode("saltedpassword", salted), salt, iterations)


def _iterations(mechanism: str, text: str | None) -> int:
    if text is None:
        return DEFAULT_ITERATIONS
    if not (text.isascii() and text.isdecimal()):
        raise ScramArgumentError(f"{mechanism}: iterations={text} is not a number")
    if not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise ScramArgumentError(
            f"{mechanism}: iterations={text} is not from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    return int(text)


def _fields(text: str) -> dict[str, str]:
    fields = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ScramArgumentError("every part of a SCRAM user is NAME=VALUE")
        if len(value) >= 2 and value.startswith('"') and value.endswith('"'):
            value = value[1:-1]
        fields[name] = value
    return fields


def _decode(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramArgumentError(f"{name} is not base64") from None
