"""Our assignors distribute partitions as Kafka's do: over rebalances in which members join and
leave, with racks and without, and with members that claim more than they own.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

import pytest
from interop.apache import ApacheOracle

from moldau.core.consumer.assignors import ASSIGNORS, MemberView, Shares, Subscription

if TYPE_CHECKING:
    from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

GROUPS = 150
REBALANCES = 4
Topics = dict[str, list[frozenset[str]]]


def question(name: str, topics: Topics, members: Mapping[str, Subscription]) -> str:
    cluster = "/".join(
        f"{topic}:" + ";".join(",".join(sorted(racks)) for racks in partitions)
        for topic, partitions in topics.items()
    )
    rows = "/".join(
        ",".join(
            [
                member,
                one.instance_id or "",
                one.rack or "",
                str(one.generation),
                "+".join(one.topics),
                "+".join(map(str, one.owned)),
                (one.user_data or b"").hex(),
            ]
        )
        for member, one in members.items()
    )
    return f"{name}|{cluster}|{rows}"


def shown(shares: Shares) -> str:
    return "shares " + " ".join(
        f"{member}=" + ",".join(sorted(map(str, shares[member]))) for member in sorted(shares)
    )


class Group:
    """Members with assignments in memory, some of them outdated."""

    def __init__(self, name: str, chance: Random) -> None:
        self.assignor = ASSIGNORS[name]()
        self.chance = chance
        racks = chance.choice([(), (), ("a", "b"), ("a", "b", "c")])
        self.topics = {f"t{n}": self._partitions(racks) for n in range(chance.randint(1, 5))}
        self.members = [
            f"c{chance.randint(0, 3)}-{chance.getrandbits(64):x}"
            for _ in range(chance.randint(1, 9))
        ]
        is_same = chance.random() < 0.5
        self.wanted = {one: self._wanted(is_same=is_same) for one in self.members}
        self.rack_of = {one: chance.choice(racks) if racks else None for one in self.members}
        self.instance_of = {
            one: f"i{n}" if chance.random() < 0.2 else None for n, one in enumerate(self.members)
        }
        self.had: dict[str, tuple[tuple[TopicPartition, ...] | None, int]] = {}

    def _partitions(self, racks: Sequence[str]) -> list[frozenset[str]]:
        count = self.chance.randint(1, 9)
        if not racks:
            return [frozenset()] * count
        return [
            frozenset(self.chance.sample(racks, self.chance.randint(1, 2))) for _ in range(count)
        ]

    def _wanted(self, *, is_same: bool) -> tuple[str, ...]:
        if is_same:
            return tuple(sorted(self.topics))
        names = [*self.topics, "gone"]
        return tuple(sorted(self.chance.sample(names, self.chance.randint(1, len(self.topics)))))

    def rebalance(self, generation: int) -> tuple[str, str]:
        present = [one for one in self.members if self.chance.random() < 0.7] or self.members
        members = {}
        for one in present:
            last, known = self.had.get(one, (None, -1))
            if last is not None and self.chance.random() < 0.1:
                known -= 1
            view = MemberView(topics=self.wanted[one], last_assigned=last, generation=known)
            keeps = self.assignor.name == "cooperative-sticky"
            members[one] = Subscription(
                topics=self.wanted[one],
                user_data=self.assignor.user_data(view),
                owned=tuple(sorted(last or ())) if keeps else (),
                generation=known,
                rack=self.rack_of[one],
                instance_id=self.instance_of[one],
            )
        shares = self.assignor.assign(self.topics, members)
        self.had |= {one: (tuple(share), generation) for one, share in shares.items()}
        return question(self.assignor.name, self.topics, members), shown(shares)


def cases(name: str) -> Iterator[tuple[str, str]]:
    chance = Random(name)
    for _ in range(GROUPS):
        group = Group(name, chance)
        for generation in range(1, REBALANCES + 1):
            yield group.rebalance(generation)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_shares_are_the_same(apache: ApacheOracle, name: str) -> None:
    queries, ours = zip(*cases(name), strict=True)
    run = apache.run_tool("AssignorOracle", stdin="\n".join(queries).encode())
    # If members claim the same partitions, Java's assignors log complaints in between.
    lines = [line[line.find("shares ") :] for line in run.output.splitlines()]
    theirs = [line.strip() for line in lines if line.startswith("shares ")]
    differing = [
        (queries[place], ours[place], theirs[place])
        for place in range(len(queries))
        if ours[place].strip() != theirs[place]
    ]
    assert (len(theirs), differing) == (len(queries), [])
