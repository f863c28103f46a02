"""The generated code matches the generator, is complete, and is loaded only when it is used."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moldau.protocol import enums, log_records, messages
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import REFRESH_METADATA, RETRIABLE, ErrorCode
from moldau.protocol.wire.schema import Message
from tools.generate_protocol import differences, generate

ROOT = Path(__file__).parents[2]
FACTS: list[dict[str, Any]] = json.loads((ROOT / "protocol/messages.json").read_text())


def rows(name: str) -> Any:
    return json.loads((ROOT / "protocol" / name).read_text())


def class_of(fact: dict[str, Any]) -> type[Message]:
    if fact["name"] in messages.message_names():
        return messages.message_class(fact["name"])
    return log_records.message_class(fact["name"])


def test_the_checked_in_code_matches_the_generator() -> None:
    files = generate(ROOT / "protocol")
    assert files == generate(ROOT / "protocol")
    assert differences(files, ROOT / "src/moldau/protocol") == []


def test_a_stale_or_left_over_file_is_detected(tmp_path: Path) -> None:
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages/gone.py").write_text("")
    (tmp_path / "enums.py").write_text("old")
    assert differences({"enums.py": "new", "api_keys.py": ""}, tmp_path) == [
        "enums.py",
        "api_keys.py",
        "messages/gone.py",
    ]


def test_every_message_of_the_facts_has_a_class_with_its_versions() -> None:
    assert len(FACTS) == len(messages.message_names()) + len(log_records.message_names()) == 280
    for fact in FACTS:
        found = class_of(fact)
        valid = fact["validVersions"]
        first, _, last = valid.partition("-")
        expected = (0, -1) if valid == "none" else (int(first), int(last or first))
        assert expected == found.VERSIONS
        assert fact.get("apiKey", -1) == found.API_KEY
        assert [row[0].replace("_", "") for row in found.FIELDS] == [
            field["name"].lower() for field in fact.get("fields", [])
        ]


def test_requests_and_responses_are_found_by_their_key() -> None:
    for key in ApiKey:
        assert key == messages.request_class(key).API_KEY
        assert messages.request_class(key).__name__.endswith("Request")
        assert key == messages.response_class(key).API_KEY
        assert messages.response_class(key).__name__.endswith("Response")
    with pytest.raises(KeyError):
        messages.request_class(93)


def test_stored_records_are_found_by_topic_and_type() -> None:
    assert log_records.metadata_record_class(2).__name__ == "TopicRecord"
    assert log_records.remote_log_record_class(2).__name__ == "RemotePartitionDeleteMetadataRecord"
    assert log_records.group_key_class(1).__name__ == "OffsetCommitKey"
    assert log_records.group_value_class(11).__name__ == "ShareGroupMetadataValue"
    assert log_records.transaction_key_class(0).__name__ == "TransactionLogKey"
    assert log_records.share_value_class(1).__name__ == "ShareUpdateValue"
    with pytest.raises(KeyError):
        log_records.share_key_class(2)


def test_a_class_is_an_attribute_of_its_package() -> None:
    assert messages.ProduceRequest is messages.message_class("ProduceRequest")
    missing: Any = messages
    with pytest.raises(AttributeError, match="no attribute 'NoSuchRequest'"):
        missing.NoSuchRequest  # noqa: B018


def test_error_codes_are_those_of_the_facts() -> None:
    for row in rows("errors.json"):
        code = ErrorCode(row["code"])
        assert code.name == row["name"]
        assert (code in RETRIABLE) == row["retriable"]
        assert (code in REFRESH_METADATA) == row["refresh_metadata"]
    assert len(ErrorCode) == len(rows("errors.json"))


def test_api_keys_record_the_advertised_versions() -> None:
    assert len(API_VERSIONS) == len(ApiKey) == 93
    assert API_VERSIONS[ApiKey.PRODUCE].broker == (0, 13)
    assert API_VERSIONS[ApiKey.PRODUCE].known == (3, 13)
    assert API_VERSIONS[ApiKey.PRODUCE].flexible_from == 9
    unstable = API_VERSIONS[ApiKey.INIT_PRODUCER_ID]
    assert unstable.known == (0, 6)
    assert unstable.latest_stable == 5
    assert API_VERSIONS[ApiKey.VOTE].broker is None
    assert API_VERSIONS[ApiKey.LEADER_AND_ISR].known is None
    assert API_VERSIONS[ApiKey.CREATE_TOPICS].forwardable
    assert sum(row.broker is not None for row in API_VERSIONS.values()) == 75
    assert sum(row.controller is not None for row in API_VERSIONS.values()) == 41


def test_the_versions_of_keys_and_messages_agree() -> None:
    for key, row in API_VERSIONS.items():
        for found in (messages.request_class(key), messages.response_class(key)):
            assert (row.known or (0, -1)) == found.VERSIONS
            if row.flexible_from is not None:
                assert row.flexible_from == found.FLEXIBLE_FROM


def test_enums_carry_the_numbers_of_the_wire() -> None:
    assert enums.AclOperation(15).name == "TWO_PHASE_COMMIT"
    assert enums.CompressionType(4).name == "ZSTD"
    assert enums.ListOffsetsTimestamp(-1).name == "LATEST"
    assert enums.METADATA_VERSIONS[0] == (7, "3.3-IV3", True)
    elr = enums.FEATURES["eligible.leader.replicas.version"][1]
    assert elr.needs == (("metadata.version", 23),)
    for name, members in rows("enums.json")["enums"].items():
        assert {each.value for each in getattr(enums, name)} == set(members.values())


def test_importing_the_codec_loads_no_message_modules() -> None:
    script = (
        "import sys, moldau.protocol.wire.codec\n"
        "from moldau.protocol import log_records, messages\n"
        "generated = (messages.__name__ + '.', log_records.__name__ + '.')\n"
        "print([name for name in sys.modules if name.startswith(generated)])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_secret_fields_exist() -> None:
    """A secret that is not a field of any message would be a spelling mistake in our own table."""
    from tools.protocol_generator.secrets import SECRET_FIELDS

    def names(fields: list[dict[str, Any]]) -> set[str]:
        return {field["name"] for field in fields} | {
            name for field in fields for name in names(field.get("fields", []))
        }

    by_name = {fact["name"]: fact for fact in FACTS}
    missing = [
        (message, field)
        for message, field in SECRET_FIELDS
        if field not in names(by_name[message]["fields"])
    ]
    assert missing == []
