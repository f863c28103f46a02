"""YAML values that know their location in the file. Needs pyyaml, which moldau[spark] installs."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from moldau.core.pipelines.graph import PipelineError, Spot, Sql
from moldau.core.spark.errors import suggestion
from moldau.pipelines.declare.arguments import pipeline_error, whole_of
from moldau.protocol.errors import MoldauError

_SIZE_MAX = 4 * 1024 * 1024


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise MoldauError("pipelines in YAML need pyyaml: pip install 'moldau[spark]'") from None
    return yaml


class Node:
    """A value of the file, with its location."""

    def __init__(self, node: Any, loader: Any, file: str, lines: list[str]) -> None:
        self._node = node
        self._loader = loader
        self._file = file
        self._file_lines = lines

    def _child(self, node: Any) -> "Node":
        return Node(node, self._loader, self._file, self._file_lines)

    @property
    def spot(self) -> Spot:
        mark = self._node.start_mark
        return Spot(self._file, mark.line + 1, mark.column + 1)

    def error(self, text: str) -> PipelineError:
        return pipeline_error(self.spot, text)

    def plain(self) -> Any:
        """The node as Python values."""
        yaml = _yaml()
        try:
            return self._loader.construct_object(self._node, deep=True)
        except yaml.MarkedYAMLError as error:
            raise self.error(str(error.problem)) from None
        except ValueError as error:
            raise self.error(str(error)) from None

    def items(
        self,
        what: str,
        known: Iterable[str] | None = None,
        elsewhere: Mapping[str, str] | None = None,
    ) -> dict[str, "Node"]:
        """The items of a mapping. With `known`, other keys are refused; `elsewhere` says where some
        of the refused keys belong.
        """
        yaml = _yaml()
        if not isinstance(self._node, yaml.MappingNode):
            raise self.error(f"{what} must be a mapping of names to values")
        allowed = None if known is None else tuple(dict.fromkeys(known))
        found: dict[str, Node] = {}
        for key, value in self._node.value:
            name = self._child(key)
            word = name.plain()
            if not isinstance(word, str):
                raise name.error(f"{what}: '{word}' is not a name; put it in quotes")
            if word in found:
                raise name.error(f"{what}: '{word}' appears twice")
            if allowed is not None and word not in allowed:
                others = elsewhere or {}
                hint = suggestion(word, (*allowed, *others))
                hint = hint or f"; choose from {', '.join(allowed)}"
                if word in others:
                    hint = f"; {others[word]}"
                elif " " in word:
                    hint = "; inside { } a text with a comma needs quotes"
                raise name.error(f"{what} has no '{word}'{hint}")
            found[word] = self._child(value)
        return found

    def entries(self, what: str) -> Iterator["Node"]:
        yaml = _yaml()
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.error(f"{what} must be a list")
        for child in self._node.value:
            yield self._child(child)

    def text(self, what: str) -> str:
        value = self.plain()
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"{what} must be a text, not {value!r}")
        return value

    def words(self, what: str) -> tuple[str, ...]:
        """One text, or a list of them."""
        if isinstance(self.plain(), list):
            return tuple(child.text(what) for child in self.entries(what))
        return (self.text(what),)

    def flag(self, what: str) -> bool:
        value = self.plain()
        if not isinstance(value, bool):
            raise self.error(f"{what} must be true or false, not {value!r}")
        return value

    def whole(self, what: str) -> int:
        return whole_of(self.plain(), what, self.spot)

    def sql(self) -> Sql:
        style = getattr(self._node, "style", None)
        spot = self.spot
        if style in {'"', "'"}:
            spot = Spot(spot.file, spot.line, spot.column + 1)
        return Sql(self.text("sql"), spot, self._block_indent() if style in {"|", ">"} else None)

    def _block_indent(self) -> int:
        lines = self._file_lines[self._node.start_mark.line + 1 : self._node.end_mark.line + 1]
        first = next((line for line in lines if line.strip()), "")
        return len(first) - len(first.lstrip())

    def rows(self, what: str) -> list[dict[str, Any]]:
        return [dict(child.items(what) and child.plain()) for child in self.entries(what)]


def read_document(path: Path) -> Node:
    """Raises PipelineError."""
    yaml = _yaml()
    content = path.read_bytes()
    if len(content) > _SIZE_MAX:
        raise pipeline_error(
            Spot(str(path), 1), "the file is larger than 4 MiB, which is too large for a pipeline"
        )
    try:
        loader = yaml.SafeLoader(content)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        spot = Spot(str(path), mark.line + 1, mark.column + 1) if mark else Spot(str(path), 1)
        raise pipeline_error(spot, f"not YAML: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise pipeline_error(
            Spot(str(path), 1), f"not YAML: {str(error).splitlines()[0]}"
        ) from None
    if node is None:
        raise pipeline_error(Spot(str(path), 1), "the file is empty")
    return Node(node, loader, str(path), content.decode(errors="replace").splitlines())
