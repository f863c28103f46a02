"""Records which test has seen which setting work. A test that fails if a setting is ignored
declares it:

`@proves("max.connections")`: a node was started with it, or a topic created with it.
`@proves_change("max.connections")`: it was changed while the node ran.

`tests/architecture/test_proofs.py` compares this with the settings that the reference calls
effective.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar

TestT = TypeVar("TestT", bound=Callable[..., object])

Owner = Literal["broker", "topic", "group"]
MARK = "proofs"


class Proof(NamedTuple):
    owner: Owner
    name: str
    is_change: bool


def proves(*names: str, of: Owner = "broker") -> Callable[[TestT], TestT]:
    return _marked([Proof(of, name, is_change=False) for name in names])


def proves_change(*names: str, of: Owner = "broker") -> Callable[[TestT], TestT]:
    return _marked([Proof(of, name, is_change=True) for name in names])


def _marked(proofs: list[Proof]) -> Callable[[TestT], TestT]:
    def mark(test: TestT) -> TestT:
        setattr(test, MARK, [*getattr(test, MARK, []), *proofs])
        return test

    return mark
