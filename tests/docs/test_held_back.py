"""The page about clients that are held back has what the node counts, and only that."""

import re
from pathlib import Path

from moldau.broker.metrics.counters import HELD_BACK
from moldau.config.broker import BrokerConfig
from moldau.config.client_settings.consumer import ConsumerConfig
from moldau.config.client_settings.producer import ProducerConfig

PAGE = (Path(__file__).parents[2] / "docs" / "operations" / "held-back.md").read_text()
KNOWN = {*BrokerConfig.declared, *ConsumerConfig.declared, *ProducerConfig.declared}


def test_the_page_explains_each_kind() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == ["of", *HELD_BACK]


def test_the_settings_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`([a-z]+(?:\.[a-z]+)+)(?:=\w+)?`", PAGE))
    assert len(named) > 10
    assert named <= KNOWN
