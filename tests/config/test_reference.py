"""The pages of docs/reference match the declarations."""

from moldau.config.broker import BrokerConfig
from moldau.config.group import GroupConfig
from moldau.config.log import LogConfig
from tools.generate_configuration import CLIENT_PAGE, PAGE, render, render_clients


def test_the_pages_are_up_to_date() -> None:
    """If this fails: `make protocol`."""
    assert PAGE.read_text(encoding="utf-8") == render()
    assert CLIENT_PAGE.read_text(encoding="utf-8") == render_clients()


def test_every_setting_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for group in (BrokerConfig, LogConfig, GroupConfig):
        for name, setting in group.declared.items():
            assert f"| `{name}`" in page
            assert setting.doc in page
