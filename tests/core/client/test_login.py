"""SASL logins follow RFC 5802, and a server that cannot prove its identity is refused."""

import pytest

from moldau.core.client.login import Credentials, LoginError, ScramLogin, new_login

# The example of RFC 7677.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def scram(username: str = "user", password: str = "pencil") -> ScramLogin:
    return ScramLogin(Credentials("SCRAM-SHA-256", username, password), NONCE)


def test_plain_sends_user_and_password_once() -> None:
    login = new_login(Credentials("PLAIN", "alice", "secret"), "")
    assert login.first() == b"\0alice\0secret"
    assert login.answer(b"") is None


def test_scram_follows_its_rfc() -> None:
    login = scram()
    assert login.first() == f"n,,n=user,r={NONCE}".encode()
    final = login.answer(SERVER_FIRST.encode())
    assert final == (
        f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    assert login.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def test_names_are_escaped() -> None:
    assert scram(username="a,b=c").first().startswith(b"n,,n=a=2Cb=3Dc,")


@pytest.mark.parametrize(
    ("challenge", "problem"),
    [
        (f"r={NONCE},s=W22Z,i=4096", "nonce does not extend"),
        ("r=other,s=W22Z,i=4096", "nonce does not extend"),
        (f"r={SERVER_NONCE},s=W22Z,i=4095", "requests 4095 iterations"),
        (f"r={SERVER_NONCE},s=W22Z,i=1000001", "requests 1000001 iterations"),
        (f"r={SERVER_NONCE},s=W22Z,i=-4096", "requests -4096 iterations"),
        (f"r={SERVER_NONCE},s=W22Z", "requests no iterations"),
        (f"r={SERVER_NONCE},s=?,i=4096", "does not speak SCRAM"),
        (f"r={SERVER_NONCE},i=4096", "does not speak SCRAM"),
        ("nonsense", "does not speak SCRAM"),
        ("", "does not speak SCRAM"),
    ],
)
def test_an_invalid_challenge_is_refused(challenge: str, problem: str) -> None:
    with pytest.raises(LoginError, match=problem):
        scram().answer(challenge.encode())


def test_bytes_that_are_not_text_are_refused() -> None:
    with pytest.raises(LoginError, match="does not speak SCRAM"):
        scram().answer(b"\xff\xfe")


@pytest.mark.parametrize(
    ("final", "problem"),
    [
        ("v=AAAA", "does not know the password"),
        ("e=invalid-proof", "reports invalid-proof"),
        ("x=1", "does not speak SCRAM"),
    ],
)
def test_a_server_without_a_valid_proof_is_refused(final: str, problem: str) -> None:
    login = scram()
    login.answer(SERVER_FIRST.encode())
    with pytest.raises(LoginError, match=problem):
        login.answer(final.encode())


def test_a_password_is_never_shown() -> None:
    assert "pencil" not in repr(Credentials("PLAIN", "user", "pencil"))
