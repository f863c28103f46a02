"""The examples on the pages run as they are printed, against a broker and a schema registry."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client.registry_server import RegistryServer

from moldau.testing import broker

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [
    "README.md",
    "docs/tutorial/quickstart.md",
    "docs/how-to/clients.md",
    "docs/how-to/moving/from-aiokafka.md",
    "docs/how-to/moving/from-confluent-kafka.md",
    "docs/how-to/moving/from-kafka-python.md",
]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def addresses() -> Iterator[dict[str, str]]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with broker(settings) as node, RegistryServer() as registry:
        yield {"localhost:9092": node.bootstrap, "http://localhost:8081": registry.url}


@pytest.mark.filterwarnings("ignore:.*does not implement kafka.serializer:DeprecationWarning")
@pytest.mark.parametrize("page", PAGES)
def test_a_pages_examples_run_in_their_order(page: str, addresses: dict[str, str]) -> None:
    content = (ROOT / page).read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(content))
    assert blocks, f"{page} has no examples"
    for block in blocks:
        code = block[1]
        for printed, real in addresses.items():
            code = code.replace(printed, real)
        line = content.count("\n", 0, block.start(1))
        names: dict[str, Any] = {"__name__": "example"}
        # Errors are shown where they are on the page.
        exec(compile("\n" * line + code, str(ROOT / page), "exec"), names)


def test_pages_name_each_other_rightly() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} names {target}"
