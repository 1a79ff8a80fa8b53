import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.path import (
    field_at,
    parse_path,
    selected,
    single,
    stands,
)
from tests.unit.records.transforms.rows import columns_of

COLUMNS = columns_of(
    "id string, payload struct<card string, at struct<secret string>, `a.b` int>, items list<struct<secret string>>"
)


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["id"], ["id"]),
        (["payload.*"], ["payload.card", "payload.at", "payload.a.b"]),
        (["*"], ["id", "payload", "items"]),
        (["**.secret"], ["payload.at.secret", "items.secret"]),
        (["items.secret", "id", "id"], ["id", "items.secret"]),
        (["payload.`a.b`"], ["payload.a.b"]),
        (["payload.**.secret"], ["payload.at.secret"]),
        (["**.*"], ["id", "payload", "payload.card", "payload.at", "payload.at.secret", "payload.a.b", "items",
                    "items.secret"]),
    ],
)  # fmt: skip
def test_paths_name_columns_in_their_order(paths: list[str], found: list[str]) -> None:
    assert [".".join(path) for path in selected(COLUMNS, paths)] == found


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("ID", "did you mean 'id'?"),
        ("payload.crad", "no column 'crad' in payload at this step; did you mean 'card'?"),
        ("**.nothing", "no column at this step is named by '**.nothing'"),
        ("a b", "is no path of columns"),
        ("payload.**", "ends in **"),
        ("", "is no path"),
    ],
)
def test_a_path_that_names_nothing_is_refused_at_its_place(path: str, says: str) -> None:
    with pytest.raises(TransformProblem) as problem:
        selected(COLUMNS, ["id", path])
    assert says in problem.value.message
    assert problem.value.place == ("columns", 1)


def test_one_column_is_named_without_wildcards() -> None:
    assert single("payload.`a.b`") == ("payload", "a.b")
    assert str(field_at(COLUMNS, ("items", "secret")).field_type) == "string"
    with pytest.raises(TransformProblem, match="wildcard"):
        single("payload.*")
    assert parse_path("`a``b`") == ("`a``b`",)


@pytest.mark.parametrize(
    ("text", "path", "where"),
    [
        ("pay.card", "pay.card", "within"),
        ("pay.card", "pay.card.number", "within"),
        ("pay.card", "pay", "above"),
        ("pay.card", "pay.sum", "apart"),
        ("pay.*", "pay.sum.x", "within"),
        ("pay.*", "pay", "above"),
        ("*", "x", "within"),
        ("**.secret", "secret", "within"),
        ("**.secret", "a.b.secret.c", "within"),
        ("**.secret", "a.b", "above"),
        ("a.**.c", "a.c", "within"),
        ("a.**.c", "a.x.y.c", "within"),
        ("a.**.c", "b.c", "apart"),
        ("`pay.card`", "pay.card", "apart"),
    ],
)
def test_where_a_column_stands_of_what_a_path_names(text: str, path: str, where: str) -> None:
    assert stands(text, tuple(path.split("."))) == where


@given(st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=4).filter(lambda parts: parts[-1] != "**"))
def test_what_stands_within_is_what_is_selected(parts: list[str]) -> None:
    every = columns_of("a struct<a struct<a int, b int>, b int>, b struct<b int>")
    text = ".".join(parts)
    paths = [("a",), ("a", "a"), ("a", "a", "a"), ("a", "a", "b"), ("a", "b"), ("b",), ("b", "b")]
    try:
        named = set(selected(every, [text]))
    except TransformProblem:
        named = set()
    within = {path for path in paths if any(path[: n + 1] in named for n in range(len(path)))}
    assert {path for path in paths if stands(text, path) == "within"} == within
