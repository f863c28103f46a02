"""How settings are declared, and what follows from a declaration: parsing, text, error messages.

A group of settings is a class derived from `SettingGroup`; its attributes come from `setting(...)`.
It is not a dataclass: hundreds of generated methods would cost a tenth of a broker's start.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, ClassVar, Self, TypedDict, TypeVar, Unpack, dataclass_transform

from moldau.config.values import PARSE_COMPLAINTS, PARSERS, Kind, java_text, text_of
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

SUGGESTION_CLOSENESS = 0.75


class Importance(IntEnum):
    HIGH = 1
    MEDIUM = 2
    LOW = 3


class UpdateMode(StrEnum):
    """Whether a setting can change at run time, and for which brokers."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


HIGH, LOW = Importance.HIGH, Importance.LOW
PER_BROKER, CLUSTER_WIDE = UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE


class Check:
    """A rule for values, which completes the sentence "must be …". Its complaints have Kafka's
    words, because Kafka's tools show them.
    """

    __slots__ = ("choices", "complaint", "rule")

    def __init__(
        self,
        rule: str,
        complaint: Callable[[str, Any], str | None],
        choices: tuple[str, ...] = (),
    ) -> None:
        self.rule = rule
        self.complaint = complaint
        """Takes a setting's name and a value; returns None if the value is valid."""
        self.choices = choices
        """All valid values, if they can be listed."""


class Traits(TypedDict, total=False):
    check: Check
    importance: Importance
    mode: UpdateMode
    synonyms: tuple[str, ...]
    """For a topic or group: the broker's settings that apply without its own; the first one set
    wins.
    """
    is_internal: bool
    """Only for Kafka's tests: neither described nor documented."""
    is_required: bool
    has_effect: bool
    """Whether the setting has an effect in Moldau."""


class Setting:
    """One declared setting. Instances of the group have its value as `attribute`."""

    __slots__ = (
        "attribute",
        "check",
        "default",
        "doc",
        "has_effect",
        "importance",
        "is_internal",
        "is_required",
        "kind",
        "mode",
        "name",
        "synonyms",
    )

    def __init__(
        self, name: str, kind: Kind, default: Any, doc: str, **traits: Unpack[Traits]
    ) -> None:
        self.name = name
        self.attribute = name
        self.kind = kind
        self.default = default
        self.doc = doc
        self.check = traits.get("check")
        self.importance = traits.get("importance", Importance.MEDIUM)
        self.mode = traits.get("mode", UpdateMode.READ_ONLY)
        self.synonyms = traits.get("synonyms", ())
        self.is_internal = traits.get("is_internal", False)
        self.is_required = traits.get("is_required", False)
        self.has_effect = traits.get("has_effect", False)

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute

    @property
    def is_sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    def parse(self, text: str) -> Any:
        """The value of a text. Raises INVALID_CONFIG."""
        try:
            value = PARSERS[self.kind](text)
        except ValueError:
            shown = "[hidden]" if self.is_sensitive else text
            raise refused(invalid_value(self.name, shown, PARSE_COMPLAINTS[self.kind])) from None
        self.verify(value)
        return value

    def verify(self, value: Any) -> None:
        """Raises INVALID_CONFIG if the value violates the rule. None stands for no value."""
        if value is None:
            return
        if self.kind is Kind.LIST and "" in value:
            raise refused(f"Configuration '{self.name}' values must not be empty.")
        complaint = None if self.check is None else self.check.complaint(self.name, value)
        if complaint is not None:
            raise refused(complaint)

    def text(self, value: Any) -> str | None:
        return text_of(value, self.kind)


def invalid_value(name: str, value: Any, reason: str) -> str:
    return f"Invalid value {java_text(value)} for configuration {name}: {reason}"


def refused(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, detail)


def setting(name: str, kind: Kind, default: Any, doc: str, **traits: Unpack[Traits]) -> Any:
    """Declares a setting: Kafka's name, type, default, doc and traits. Returns Any, because
    the attribute of an instance is the value.
    """
    return Setting(name, kind, default, doc, **traits)


def overriding(broker: Setting, name: str, doc: str, *, check: Check | None = None) -> Any:
    """Declares the setting of a topic or group that overrides the broker's setting."""
    own = Setting(name, broker.kind, broker.default, doc, synonyms=(broker.name,))
    own.check = check or broker.check
    own.has_effect = broker.has_effect
    return own


@dataclass_transform(kw_only_default=True, frozen_default=True)
class SettingGroup:
    """A group of settings with their values, which is immutable."""

    declared: ClassVar[dict[str, Setting]] = {}
    """The declarations by Kafka's names."""
    _by_attribute: ClassVar[dict[str, Setting]] = {}
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        found = [
            value
            for base in reversed(cls.__mro__)
            for value in vars(base).values()
            if isinstance(value, Setting)
        ]
        cls.declared = {declared.name: declared for declared in found}
        cls._by_attribute = {declared.attribute: declared for declared in found}
        cls._defaults = {declared.attribute: declared.default for declared in found}

    def __init__(self, **values: Any) -> None:
        for attribute, value in values.items():
            if attribute not in self._by_attribute:
                raise TypeError(f"{type(self).__name__} has no setting {attribute!r}")
            self._by_attribute[attribute].verify(value)
        # Directly into the instance, where these names have priority over the class's.
        self.__dict__.update(self._defaults)
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"settings do not change: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"settings do not change: {name}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SettingGroup) or type(self) is not type(other):
            return False
        return self._changed() == other._changed()

    def __hash__(self) -> int:
        return hash((type(self), tuple(self._changed().items())))

    def __repr__(self) -> str:
        changed = ", ".join(
            f"{attribute}={'hidden' if self._by_attribute[attribute].is_sensitive else value!r}"
            for attribute, value in self._changed().items()
        )
        return f"{type(self).__name__}({changed})"

    def _changed(self) -> dict[str, Any]:
        """The values that differ from the defaults, by attribute."""
        return {
            attribute: self.__dict__[attribute]
            for attribute, default in self._defaults.items()
            if self.__dict__[attribute] != default
        }

    def with_changes(self, **changes: Any) -> Self:
        values = {attribute: self.__dict__[attribute] for attribute in self._defaults}
        return type(self)(**(values | changes))


ConfigT = TypeVar("ConfigT", bound=SettingGroup)


def from_properties(
    config_class: type[ConfigT], properties: Mapping[str, str], noun: str
) -> ConfigT:
    """Parses text values. Raises INVALID_CONFIG for an unknown name or a bad value. `noun` is
    Kafka's word for the resource: "topic", "group".
    """
    return config_class(**parsed_values(config_class, properties, noun))


def parsed_values(
    config_class: type[SettingGroup], properties: Mapping[str, str], noun: str
) -> dict[str, Any]:
    """As `from_properties`, by attribute: only those that are given."""
    for name in properties:
        if name not in config_class.declared:
            raise refused(f"Unknown {noun} config name: {name}")
    declared = config_class.declared
    return {
        declared[name].attribute: declared[name].parse(text) for name, text in properties.items()
    }


def unknown_setting(name: str, known: Iterable[str]) -> KafkaError:
    """The error for an unknown name from a user, with a suggestion."""
    return refused(f"{name}: unknown setting{hint_for(name, known)}")


def hint_for(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1, cutoff=SUGGESTION_CLOSENESS)
    return f"; did you mean {close[0]}?" if close else ""
