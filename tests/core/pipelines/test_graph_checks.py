"""Problems of pipelines that need no Spark to be seen."""

from dataclasses import replace
from typing import Any

from moldau.core.pipelines.graph import (
    Catalog,
    Delivery,
    Expectation,
    Flow,
    Format,
    FormatKind,
    Mode,
    OnError,
    Pipeline,
    Spot,
    Sql,
    Table,
    TableKind,
    Topic,
)
from moldau.core.pipelines.graph_checks import dead_letter_of, lookups_of, problems_of
from moldau.core.pipelines.query_progress import lag_of

SPOT = Spot("pipeline.yaml", 1)
JSON = Format(FormatKind.JSON, "id BIGINT")


def topic(name: str, **changes: Any) -> Topic:
    given: dict[str, Any] = {"name": name, "format": JSON, "spot": SPOT}
    return Topic(**(given | changes))


def table(path: str, **changes: Any) -> Table:
    given: dict[str, Any] = {"path": path, "kind": TableKind.DELTA, "spot": SPOT}
    return Table(**(given | changes))


def flow(name: str = "f", inputs: tuple[str, ...] = ("orders",), **changes: Any) -> Flow:
    body = Sql(f"SELECT * FROM {inputs[0]}", SPOT)
    given: dict[str, Any] = {
        "name": name,
        "inputs": inputs,
        "body": body,
        "spot": SPOT,
        "into": topic("out"),
    }
    return Flow(**(given | changes))


def pipeline(*flows: Flow, **changes: Any) -> Pipeline:
    given: dict[str, Any] = {
        "name": "p",
        "spot": SPOT,
        "sources": {"orders": topic("orders")},
        "flows": {each.name: each for each in flows},
    }
    return Pipeline(**(given | changes))


def texts(checked: Pipeline) -> list[str]:
    return [problem.text for problem in problems_of(checked)]


def test_a_sound_pipeline_has_no_problem() -> None:
    assert texts(pipeline(flow())) == []


def test_names_are_those_that_sql_and_files_can_have() -> None:
    assert "'a b' is not a valid name" in texts(pipeline(flow(), name="a b"))[0]
    sources = {"orders": topic("orders"), "1st": topic("first")}
    assert "'1st' is not a valid name" in texts(pipeline(flow(), sources=sources))[0]
    assert "'1st' is not a valid name" in texts(pipeline(flow("1st")))[0]
    lookups = {"1st": table("users", schema="id INT")}
    assert any("'1st' is not" in text for text in texts(pipeline(flow(), lookups=lookups)))
    expected = Expectation("has id", "id IS NOT NULL", SPOT)
    assert "'has id' is not a valid name" in texts(pipeline(flow(expect=(expected,))))[0]


def test_a_name_means_one_thing() -> None:
    found = texts(pipeline(flow("orders")))
    assert "'orders' is already the name of a source" in found


def test_a_flow_without_a_target_has_no_mode() -> None:
    checked = pipeline(flow("f", into=None, mode=Mode.UPSERT), flow("g", ("f",)))
    assert "'f' has a mode, but no 'into'" in texts(checked)


def test_tables_are_appended_to() -> None:
    assert "'f': delta can only be appended to, not upsert" in texts(
        pipeline(flow(into=table("/t"), mode=Mode.UPSERT))
    )


def test_only_iceberg_has_catalogs_and_they_have_namespaces() -> None:
    catalog = Catalog("c")
    found = texts(pipeline(flow(into=table("t", catalog=catalog))))
    assert "'f': only iceberg tables have a catalog" in found
    assert "'f': a table in a catalog needs a namespace: shop.t" in found
    iceberg = table("shop.t", kind=TableKind.ICEBERG, catalog=catalog)
    assert texts(pipeline(flow(into=iceberg))) == []


def test_two_flows_do_not_write_the_same_table() -> None:
    found = texts(pipeline(flow("f", into=table("/t")), flow("g", into=table("/t"))))
    assert found == ["'g' and 'f' write the same table /t"]


def test_flows_that_share_a_topic_agree_about_it() -> None:
    both = "'g' and 'f' both write out"

    def sharing(**changes: Any) -> list[str]:
        mode = changes.pop("mode", Mode.APPEND)
        return texts(pipeline(flow("f"), flow("g", into=topic("out", **changes), mode=mode)))

    assert sharing() == []
    assert f"{both}; only flows in mode append can share a topic" in sharing(
        mode=Mode.UPSERT, key=("id",)
    )
    assert sharing(format=Format(FormatKind.CSV)) == [f"{both} with different keys or formats"]
    assert sharing(partitions=7) == [f"{both} with different partitions, replication or config"]


def test_exactly_once_needs_a_source() -> None:
    checked = pipeline(flow(), sources={}, delivery=Delivery.EXACTLY_ONCE)
    assert "there are no sources" in texts(checked)


def test_bad_rows_go_to_the_first_dead_letter_topic_upstream() -> None:
    sources = {"orders": topic("orders"), "users": topic("users", dead_letter="bad")}
    joined = flow(inputs=("orders", "users"), on_error=OnError.DEAD_LETTER)
    checked = pipeline(joined, sources=sources)
    assert dead_letter_of(checked, joined) == "bad"
    assert dead_letter_of(pipeline(flow()), flow()) is None
    assert texts(checked) == []


def test_lookups_are_found_through_other_flows() -> None:
    lookups = {"users": table("users", schema="id INT")}
    first, second = flow("f", ("orders", "users"), into=None), flow("g", ("f",))
    checked = pipeline(first, second, lookups=lookups)
    assert lookups_of(checked, second) == ("users",)
    assert lookups_of(pipeline(flow()), flow()) == ()


def test_places_in_sql_are_places_in_the_file() -> None:
    inline = Sql("SELECT 1\nFROM x", Spot("p.py", 10, 5))
    assert inline.spot_of(1, 3) == Spot("p.py", 10, 7)
    assert inline.spot_of(2, 3) == Spot("p.py", 11, 3)
    assert replace(inline, indent=4).spot_of(2, 3) == Spot("p.py", 12, 7)


def test_a_source_without_offsets_does_not_count_as_lag() -> None:
    known = {"endOffset": {"t": {"0": 5}}, "latestOffset": '{"t": {"0": 9, "1": 2}}'}
    unknown = {"endOffset": None, "latestOffset": None}
    other = {"endOffset": 7, "latestOffset": "a file"}
    assert lag_of([unknown, other]) is None
    assert lag_of([unknown, known, other]) == 6
