"""SCRAM users as arguments of the format command."""

import base64

import pytest

from moldau.core.security.scram_arguments import ScramArgumentError, parse_scram_argument
from moldau.protocol.enums import ScramMechanism

SALT = b"sixteen bytes ok"


def test_the_password_of_rfc_7677_gives_its_keys() -> None:
    """The server signature of the RFC's example is made with this server key."""
    text = "SCRAM-SHA-256=[name=user,password=pencil,iterations=4096,salt=W22ZaJ0SNY7soEsUEjb6gQ==]"
    record = parse_scram_argument(text, SALT)

    assert (record.name, record.mechanism) == ("user", ScramMechanism.SCRAM_SHA_256)
    assert record.iterations == 4096
    assert base64.b64encode(record.salt) == b"W22ZaJ0SNY7soEsUEjb6gQ=="
    assert base64.b64encode(record.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(record.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


def test_a_salted_password_is_used_unchanged() -> None:
    given = parse_scram_argument("SCRAM-SHA-512=[name=alice,password=x,salt=N3E=]", SALT)
    text = 'SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]'
    salted = parse_scram_argument(text, SALT)

    assert salted.mechanism == ScramMechanism.SCRAM_SHA_512
    assert (salted.salt, salted.iterations) == (b"7q", 8192)
    assert len(salted.stored_key) == len(salted.server_key) == 64
    assert salted.stored_key != given.stored_key


def test_a_user_without_a_salt_gets_a_random_one() -> None:
    record = parse_scram_argument(" SCRAM-SHA-256=[name=bob,password=p] ", SALT)
    assert (record.salt, record.iterations) == (SALT, 4096)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("SCRAM-SHA-256", "MECHANISM="),
        ("PLAIN=[name=a,password=b]", "PLAIN is not one of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256=name=a,password=b", "square brackets"),
        ("SCRAM-SHA-256=[name=a,password=b", "square brackets"),
        ("SCRAM-SHA-256=[password=b]", "needs a name"),
        ("SCRAM-SHA-256=[name=,password=b]", "needs a name"),
        ("SCRAM-SHA-256=[name=a]", "needs a password"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YCE=]", "needs its salt"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=?,salt=YCE=]", "saltedpassword is not base64"),
        ("SCRAM-SHA-256=[name=a,password=b,salt=?]", "salt is not base64"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=many]", "not a number"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=4095]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=b,iterations=16385]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=b,colour=red]", "colour is unknown"),
        ("SCRAM-SHA-256=[name=a,password]", "NAME=VALUE"),
        ("SCRAM-SHA-256=[]", "NAME=VALUE"),
    ],
)
def test_an_invalid_user_is_refused_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(ScramArgumentError) as caught:
        parse_scram_argument(text, SALT)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_never_contain_a_password() -> None:
    with pytest.raises(ScramArgumentError) as caught:
        parse_scram_argument("SCRAM-SHA-256=[name=a,password=hunter2,colour=red]", SALT)
    assert "hunter2" not in str(caught.value)
