"""Randomness is passed in, so that a node in a simulation gets the same ids and pauses for the same
seed.
"""

import uuid
from random import Random, SystemRandom

from moldau.types import Uuid, uuid_text

SYSTEM_CHANCE: Random = SystemRandom()
"""The machine's own, fit for secrets."""


def random_uuid(chance: Random) -> Uuid:
    """Never an id whose text begins with a dash, which tools would parse as an option."""
    while True:
        found = Uuid(uuid.UUID(bytes=chance.randbytes(16), version=4).bytes)
        if not uuid_text(found).startswith("-"):
            return found
