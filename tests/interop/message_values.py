"""Values for our message classes, built from the facts: generated ones and the extremes of each
type.
"""

import sys
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from interop.facts import INTEGER_RANGES, Field, Struct, attribute_of

from moldau.protocol.wire.schema import Struct as OurStruct

# Java's strings cannot hold a lone surrogate and UTF-8 has none.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    # NaN and the infinities have no JSON form; the codec's own tests cover them.
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": TEXT,
    "uuid": st.binary(min_size=16, max_size=16),
    "bytes": st.binary(max_size=6),
    "records": st.binary(max_size=12),
} | {name: st.integers(low, high) for name, (low, high) in INTEGER_RANGES.items()}
ARRAY_MAX = 2
LONG_ARRAY = 130


def element_class(owner: type[OurStruct], each: Field) -> type[OurStruct]:
    """Our class for a nested structure, which is in the module of its message."""
    attribute = attribute_of(owner, each.name)
    (wire_type,) = (row[1] for row in owner.FIELDS if row[0] == attribute)
    found: type[OurStruct] = getattr(sys.modules[owner.__module__], wire_type.removeprefix("[]"))
    return found


def generated(struct: Struct, owner: type[OurStruct], version: int) -> st.SearchStrategy[Any]:
    """Objects of one of our classes with arbitrary values that the version can carry."""
    attributes = {
        attribute_of(owner, each.name): _generated_field(each, owner, version)
        for each in struct.fields
        if version in each.versions
    }
    return st.builds(owner, **attributes)


def _generated_field(each: Field, owner: type[OurStruct], version: int) -> st.SearchStrategy[Any]:
    if each.struct is None:
        values = SCALARS[each.element]
    else:
        values = generated(each.struct, element_class(owner, each), version)
    if each.is_array:
        values = st.lists(values, max_size=ARRAY_MAX)
    if version in each.nullable:
        values = st.none() | values
    return values


def least(each: Field) -> Any:
    low, _ = INTEGER_RANGES.get(each.element, (0, 0))
    return {
        "bool": False,
        "float64": -sys.float_info.max,
        "string": "",
        "uuid": bytes(16),
        "bytes": b"",
        "records": b"",
    }.get(each.element, low)


def greatest(each: Field) -> Any:
    _, high = INTEGER_RANGES.get(each.element, (0, 0))
    return {
        "bool": True,
        "float64": sys.float_info.min,
        "string": "Vltava ř \x00 € 🌊 \U0010ffff",
        "uuid": b"\xff" * 16,
        "bytes": bytes(range(256)),
        "records": bytes(range(256)),
    }.get(each.element, high)


def _long(each: Field) -> Any:
    """Lengths that need a second byte as a varint, and numbers with all bytes different."""
    return {
        "bool": True,
        "float64": 0.1,
        "string": "ř" * 70,
        "uuid": bytes(range(16)),
        "bytes": b"\x80" * 128,
        "records": b"\x7f" * 20000,
        "int8": 0x12,
        "int16": 0x1234,
        "uint16": 0xFEDC,
        "int32": 0x12345678,
        "uint32": 0xFEDCBA98,
        "int64": 0x123456789ABCDEF0,
    }[each.element]


def corners(struct: Struct, owner: type[OurStruct], version: int) -> dict[str, Any]:
    """The named extreme objects of one version."""
    return {
        "defaults": owner(),
        "least": _corner(struct, owner, version, least, nulls=False, length=1),
        "nulls": _corner(struct, owner, version, least, nulls=True, length=1),
        "empty": _corner(struct, owner, version, greatest, nulls=False, length=0),
        "greatest": _corner(struct, owner, version, greatest, nulls=False, length=3),
        "long": _corner(struct, owner, version, _long, nulls=False, length=LONG_ARRAY),
    }


def _corner(
    struct: Struct,
    owner: type[OurStruct],
    version: int,
    scalar: Callable[[Field], Any],
    *,
    nulls: bool,
    length: int,
) -> Any:
    attributes: dict[str, Any] = {}
    for each in struct.fields:
        if version not in each.versions:
            continue
        if nulls and version in each.nullable:
            value = None
        elif each.is_array and length == 0:
            value = []
        else:
            value = _corner_element(each, owner, version, scalar, nulls=nulls, length=length)
            if each.is_array:
                # Structures nest, and the product of long arrays would be huge.
                nests = each.struct is not None or each.element == "string"
                value = [value] * (min(length, ARRAY_MAX) if nests else length)
        attributes[attribute_of(owner, each.name)] = value
    return owner(**attributes)


def _corner_element(
    each: Field,
    owner: type[OurStruct],
    version: int,
    scalar: Callable[[Field], Any],
    *,
    nulls: bool,
    length: int,
) -> Any:
    if each.struct is None:
        return scalar(each)
    nested = element_class(owner, each)
    return _corner(each.struct, nested, version, scalar, nulls=nulls, length=length)
