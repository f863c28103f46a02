"""The declarations of files, collected before they become a pipeline: YAML may include Python."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from moldau.core.pipelines.graph import (
    Example,
    Files,
    Flow,
    Lookup,
    Pipeline,
    Source,
    Spot,
    Sql,
    Table,
)
from moldau.pipelines.declare.arguments import pipeline_error
from moldau.pipelines.declare.flows import Settings


@dataclass
class Declarations:
    settings: Settings | None = None
    sources: dict[str, Source] = field(default_factory=dict)
    lookups: dict[str, Lookup] = field(default_factory=dict)
    flows: dict[str, Flow] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)

    def add(self, other: "Declarations") -> None:
        """Raises PipelineError if both have something of the same name."""
        for name, flow in other.flows.items():
            if name in self.flows:
                raise pipeline_error(
                    flow.spot, f"'{name}' is already declared in {self.flows[name].spot}"
                )
        for name, source in other.sources.items():
            if self.sources.get(name, source) != source:
                raise pipeline_error(
                    source.spot, f"'{name}' is already declared in {self.sources[name].spot}"
                )
        for name, lookup in other.lookups.items():
            if self.lookups.get(name, lookup) != lookup:
                raise pipeline_error(
                    lookup.spot, f"'{name}' is already declared in {self.lookups[name].spot}"
                )
        self.lookups |= other.lookups
        self.flows |= other.flows
        self.sources |= other.sources
        self.examples += other.examples
        self.settings = self.settings or other.settings

    def pipeline(self, path: Path) -> Pipeline:
        settings = self.settings or Settings(spot=Spot(str(path), 1))
        known = {*self.sources, *self.lookups, *self.flows}
        folder = path.parent.resolve()
        flows = {
            name: _with_table_below(_with_known_inputs(flow, known), folder)
            for name, flow in self.flows.items()
        }
        used = {name for flow in flows.values() for name in flow.inputs}
        given = {name for example in self.examples for name in example.given}
        return Pipeline(
            name=settings.name or path.stem,
            spot=settings.spot,
            # A topic that no flow reads may be a target.
            sources={
                name: _below(source, folder)
                for name, source in self.sources.items()
                if name in used | given
            },
            # So may a table.
            lookups={
                name: _table_below(lookup, folder)
                for name, lookup in self.lookups.items()
                if name in used | given
            },
            flows=flows,
            delivery=settings.delivery,
            trigger=settings.trigger,
            examples=tuple(self.examples),
            settings=settings.settings,
            brokers_from=str(settings.brokers_spot or "the default"),
            checkpoint=settings.checkpoint,
            unread=tuple(sorted({*self.sources, *self.lookups} - used - given)),
        )


def _with_known_inputs(flow: Flow, known: set[str]) -> Flow:
    """SQL may also read tables of the session and its own names, which are not inputs."""
    if not isinstance(flow.body, Sql):
        return flow
    inputs = tuple(name for name in flow.inputs if name in known and name != flow.name)
    return replace(flow, inputs=inputs or flow.inputs)


def is_folder(table: Table) -> bool:
    """Whether the table is a folder, and not a URL or a name in a catalog."""
    return "://" not in table.path and table.catalog is None


def _with_table_below(flow: Flow, folder: Path) -> Flow:
    if isinstance(flow.into, Table):
        return replace(flow, into=_table_below(flow.into, folder))
    return flow


def _table_below(table: Lookup, folder: Path) -> Lookup:
    if isinstance(table, Table) and is_folder(table):
        return replace(table, path=str(folder / table.path))
    return table


def _below(source: Source, folder: Path) -> Source:
    """Paths are relative to the pipeline's file."""
    if isinstance(source, Files) and "://" not in source.path:
        return replace(source, path=str(folder / source.path))
    return source
