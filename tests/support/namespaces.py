"""A network for nodes of a test: each has a network namespace of its own, and the packets between
any two of them can be dropped, in each direction alone. Linux only, and only as root.

Nodes are connected to a hub, a namespace that routes. A direction is cut by a routing rule there,
which drops packets silently; connections that exist do not notice until a time-out.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

_SECOND_BYTES = range(16, 250)
_OUTSIDE = 254
"""The address of the test itself in the network: 10.x.254.1."""


def skip_without_namespaces() -> None:
    """Skips the test where it cannot make namespaces."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip (iproute2)")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    name = f"moldau-try-{os.getpid()}"
    made = _run("netns", "add", name)
    if made.returncode:
        pytest.skip(f"network namespaces cannot be made here: {made.stderr.strip()}")
    _run("netns", "delete", name)


@dataclass
class Network:
    """10.`second_byte`.0.0/16. The third byte of an address is the node's id, from 1 to 200."""

    second_byte: int
    cuts: set[tuple[int, int]] = field(default_factory=set)

    @property
    def hub(self) -> str:
        return f"moldau-{self.second_byte}-hub"

    def namespace(self, node_id: int) -> str:
        return f"moldau-{self.second_byte}-{node_id}"

    def host(self, node_id: int) -> str:
        return f"10.{self.second_byte}.{node_id}.2"

    def prefix(self, node_id: int) -> tuple[str, ...]:
        """Of a command that runs in the node's namespace."""
        return ("ip", "netns", "exec", self.namespace(node_id))

    def drop(self, senders: Iterable[int], receivers: Iterable[int]) -> None:
        """Packets from the senders no longer arrive at the receivers; those of the other direction
        do.
        """
        targets = list(receivers)
        for sender in senders:
            for receiver in targets:
                if sender != receiver and (sender, receiver) not in self.cuts:
                    self.cuts.add((sender, receiver))
                    self._rule("add", sender, receiver)

    def isolate(self, nodes: Iterable[int], others: Iterable[int]) -> None:
        """No packets in either direction."""
        here, there = list(nodes), list(others)
        self.drop(here, there)
        self.drop(there, here)

    def heal(self) -> None:
        for cut in sorted(self.cuts):
            self._rule("delete", *cut)
        self.cuts.clear()

    def _rule(self, change: str, sender: int, receiver: int) -> None:
        between = ("from", self.host(sender), "to", self.host(receiver))
        _must("-netns", self.hub, "rule", change, *between, "blackhole")


@contextmanager
def network(node_ids: Iterable[int]) -> Iterator[Network]:
    made = _claimed()
    numbers = list(node_ids)
    try:
        _add_hub(made)
        for node_id in numbers:
            _add_node(made, node_id)
        yield made
    finally:
        for node_id in numbers:
            _run("netns", "delete", made.namespace(node_id))
        # Its interfaces vanish with it, also the end that is outside.
        _run("netns", "delete", made.hub)


def _claimed() -> Network:
    """A network that neither the machine nor another test uses: only one can add the namespace of
    its hub.
    """
    for number in random.sample(_SECOND_BYTES, len(_SECOND_BYTES)):
        made = Network(number)
        is_used = bool(_must("route", "show", "root", f"10.{number}.0.0/16").strip())
        if not is_used and _run("netns", "add", made.hub).returncode == 0:
            return made
    raise AssertionError("no free network found")


def _add_hub(made: Network) -> None:
    outside, inside = f"moldau-{made.second_byte}", "outside"
    subnet = f"10.{made.second_byte}.{_OUTSIDE}"
    _must("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", made.hub)
    _must("address", "add", f"{subnet}.1/24", "dev", outside)
    _must("link", "set", outside, "up")
    _must("-netns", made.hub, "address", "add", f"{subnet}.2/24", "dev", inside)
    _must("-netns", made.hub, "link", "set", inside, "up")
    _must("route", "add", f"10.{made.second_byte}.0.0/16", "via", f"{subnet}.2", "dev", outside)
    _must("netns", "exec", made.hub, "sysctl", "-qw", "net.ipv4.ip_forward=1")


def _add_node(made: Network, node_id: int) -> None:
    name, port, subnet = made.namespace(node_id), f"n{node_id}", f"10.{made.second_byte}.{node_id}"
    _must("netns", "add", name)
    _must("-netns", made.hub, "link", "add", port, "type", "veth", "peer", "eth0", "netns", name)
    _must("-netns", made.hub, "address", "add", f"{subnet}.1/24", "dev", port)
    _must("-netns", made.hub, "link", "set", port, "up")
    _must("-netns", name, "address", "add", f"{subnet}.2/24", "dev", "eth0")
    _must("-netns", name, "link", "set", "lo", "up")
    _must("-netns", name, "link", "set", "eth0", "up")
    _must("-netns", name, "route", "add", "default", "via", f"{subnet}.1")


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


def _must(*words: str) -> str:
    done = _run(*words)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout
