# ruff: noqa: E501 (a table reads best with one case a line)
"""The blocks `maintenance` of the settings and of a stream's file, and what they come to for each table."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jobs.base.errors import FrazilError
from jobs.config.documents.units import (
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)
from jobs.config.documents.validation import SpecError
from jobs.config.services.maintenance_policy import Window, is_open, parse_window
from jobs.config.settings.generation import generation
from jobs.config.settings.loading import load_stream
from jobs.config.settings.maintained_tables import (
    MaintainedTable,
    Policy,
    maintained_table,
    maintained_tables,
    namespaces_to_list,
)
from jobs.config.settings.settings import Settings, load_settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.partitioning import parse_sort_expr
from jobs.local.certify.workspace import settings_document
from tests.helpers.problem_places import without_columns

MB = 1024**2
HEAD = """\
stream: payments
source: {topics: [payments]}
decode: {value: json, schema: 'id string not null, at timestamptz, card struct<number string>'}
table: {name: orders.payments}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def stream(maintenance: str = "{}", head: str = HEAD) -> StreamSpec:
    Path("payments.yaml").write_text(f"{head}maintenance: {maintenance}\n", encoding="utf-8")
    return load_stream(Path("payments.yaml"))


def settings(maintenance: str = "{}") -> Settings:
    Path("frazil.yaml").write_text(f"maintenance: {maintenance}\n", encoding="utf-8")
    return load_settings(None, home=Path.cwd())


def tables(of_settings: str = "{}", *of_streams: str, listed: tuple[str, ...] = ()) -> dict[str, MaintainedTable]:
    specs = [stream(each) for each in of_streams]
    return {table.name: table for table in maintained_tables(settings(of_settings), specs, listed)}


def test_defaults() -> None:
    policy = Policy()
    assert (policy.enabled, policy.windows, policy.budget) == (True, (), 50 * 1024 * MB)
    compact = policy.compact
    assert (compact.target, compact.small, compact.min_files) == (128 * MB, 16 * MB, 12)
    assert (compact.delete_ratio, compact.max_delete_files, compact.cold_after) == (0.1, 10, timedelta(hours=1))
    assert (compact.strategy, compact.sort_by) == ("binpack", ())
    assert (policy.manifests.max, policy.manifests.target) == (100, 8 * MB)
    expire = policy.expire
    assert (expire.keep, expire.min_snapshots, expire.max_snapshots) == (timedelta(days=1), 10, 300)
    assert expire.time_travel is None
    orphans = policy.orphans
    assert (orphans.older_than, orphans.every) == (timedelta(days=7), timedelta(days=7))
    assert (orphans.max_share, orphans.max_files, policy.metadata.previous_versions) == (0.2, 100_000, 50)


EVERYTHING = """
  enabled: true
  compact: {enabled: true, target: 256MiB, fragment: 1/4, min_files: 5, delete_ratio: 0.3, max_delete_files: 0, cold_after: 2h, strategy: sort, sort_by: [card.number, at desc nulls last]}
  manifests: {enabled: false, max: 50, target: 4MB}
  expire: {enabled: true, keep: 3d, min_snapshots: 5, max_snapshots: 100, time_travel: 2d}
  orphans: {enabled: false, older_than: 3d, every: 1d, max_share: 0.5, max_files: 1_000}
  metadata: {enabled: false, previous_versions: 20}
  windows: ["22:00-05:00", "12:00 - 24:00"]
  budget: 1TB
"""


def test_everything_given_comes_through_files_and_dumps() -> None:
    spec = stream(f"{EVERYTHING}  dead_letters: {{expire: {{time_travel: none, keep: 1h}}}}")
    policy = spec.maintenance
    assert (policy.compact.target, policy.compact.fragment) == (256 * MB, 0.25)
    assert [str(column) for column in policy.compact.sort_by] == ["card.number", "at desc nulls last"]
    assert [str(window) for window in policy.windows] == ["22:00-05:00", "12:00-24:00"]
    again = StreamSpec.model_validate_json(spec.model_dump_json())
    assert again == spec
    assert again.maintenance.dead_letters.model_dump() == {"expire": {"time_travel": "none", "keep": "1h"}}
    assert pickle.loads(pickle.dumps(spec)) == spec
    held = settings(f"{EVERYTHING}  tables: [{{name: other.*, enabled: false}}]")
    Path("frazil.yaml").write_text(yaml.safe_dump(settings_document(held, Path("/s"), "a.b")), encoding="utf-8")
    assert load_settings(None, home=Path.cwd()).maintenance == held.maintenance


PROBLEMS = [
    ("\n  expire: {keep: 1h, time_travel: 2h}", 6, "expire.keep", "expire.keep (1h) is shorter than the time travel that expire.time_travel promises (2h)"),
    ("\n  expire: {min_snapshots: 5, max_snapshots: 4}", 6, "expire.min_snapshots", "is above expire.max_snapshots (4)"),
    ("\n  compact:\n    fragment: 1", 7, "compact.fragment", "must be above 0 and below 1: files smaller than this share of compact.target"),
    ("{compact: {fragment: 9/8}}", 5, "compact.fragment", "must be above 0 and below 1"),
    ("{compact: {fragment: 0}}", 5, "compact.fragment", "must be above 0 and below 1"),
    ("{compact: {fragment: 16MB}}", 5, "compact.fragment", "must be a share of compact.target, such as 1/8"),
    ("{compact: {min_files: 1}}", 5, "compact.min_files", "must be greater than or equal to 2"),
    ("{compact: {target: 128}}", 5, "compact.target", "needs a unit; write 128B, 128MB or 128GB"),
    ("{compact: {target: 1.5GB}}", 5, "compact.target", "must be a whole number with a unit, such as 128MB"),
    ("{compact: {target: 0MB}}", 5, "compact.target", "must be more than nothing"),
    ("{compact: {tarket: 1MB}}", 5, "compact.tarket", "did you mean 'target'?"),
    ("{target: 1MB}", 5, "target", "unknown key here; it belongs under 'compact'"),
    ("{budget: 1MB, compact: {target: 2MB}}", 5, "budget", "the budget of a run (1MB) is below compact.target (2MB)"),
    ("{orphans: {older_than: 2d}}", 5, "orphans.older_than", "must be at least 3d"),
    ("{compact: {strategy: sort}}", 5, "compact.strategy", "sort needs the columns: sort_by"),
    ("{compact: {strategy: zorder, sort_by: []}}", 5, "compact.strategy", "zorder needs the columns"),
    ("{compact: {sort_by: [id]}}", 5, "compact.sort_by", "is for strategy: sort and strategy: zorder"),
    ("{compact: {strategy: binpack, sort_by: [id]}}", 5, "compact.sort_by", "is for strategy: sort and strategy: zorder"),
    ("{compact: {strategy: zorder, sort_by: [id desc]}}", 5, "compact.sort_by", "z-order has no direction"),
    ("{compact: {strategy: srot, sort_by: [id]}}", 5, "compact.strategy", "did you mean 'sort'?"),
    ("\n  compact:\n    strategy: sort\n    sort_by:\n      - id\n      - nmae", 10, "compact.sort_by[1]", "no column 'nmae' in decode.schema"),
    ("{compact: {strategy: sort, sort_by: [card]}}", 5, "compact.sort_by[0]", "is not a single value"),
    ("{compact: {strategy: sort, sort_by: [id, id desc]}}", 5, "compact.sort_by[1]", "repeats 'id'"),
    ("{compact: {strategy: sort, sort_by: [a b]}}", 5, "compact.sort_by[0]", "is not a column"),
    ("{windows: ['22:00']}", 5, "windows[0]", "must be two times of the day (UTC)"),
    ("{windows: ['22:00-22:00']}", 5, "windows[0]", "contains no time"),
    ("{windows: ['24:00-05:00']}", 5, "windows[0]", "must be times from 00:00 to 24:00"),
    ("{windows: '22:00-05:00'}", 5, "windows", "must be a list"),
    ("{expire: {time_travel: always}}", 5, "expire.time_travel", "or none"),
    ("{orphans: {max_share: 2}}", 5, "orphans.max_share", "less than or equal to 1"),
    ("{tables: []}", 5, "tables", "unknown key"),
    ("{dead_letters: {expire: {keep: 1h, time_travel: 2h}}}", 5, "dead_letters.expire.keep", "is shorter"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "field", "sentence"), PROBLEMS, ids=[text for text, *_ in PROBLEMS])
def test_problems_name_line_and_field(text: str, line: int, field: str, sentence: str) -> None:
    with pytest.raises(SpecError) as error:
        stream(text)
    (problem,) = error.value.problems
    assert without_columns(problem).startswith(f"payments.yaml:{line}: maintenance.{field}: ")
    assert sentence in problem


@pytest.mark.parametrize(
    ("text", "line", "field", "sentence"),
    [
        ("{expire: {time_travel: 2d}}", 1, "expire.time_travel", "expire.keep (1d) is shorter"),
        ("{expire: {max_snapshots: 9}}", 1, "expire.max_snapshots", "expire.min_snapshots (10) is above"),
        ("{budget: 1MB}", 1, "budget", "is below compact.target (128MB)"),
        ("\n  expire: {keep: 2d, time_travel: 2d}\n  tables:\n    - name: a.b\n      expire: {keep: 1d}", 5, "tables[0].expire.keep", "promises (2d)"),
        ("\n  tables:\n    - name: a.b\n    - name: a.b", 4, "tables[1].name", "'a.b' is here twice"),
        ("{tables: [{name: a}]}", 1, "tables[0].name", "or namespace.* for all tables of a namespace"),
        ("{tables: [{name: orders.my table}]}", 1, "tables[0].name", "found a space, character 10 of 'orders.my table'"),
        ("{tables: [{name: 'a.b/c'}]}", 1, "tables[0].name", "found '/', character 4 of 'a.b/c'"),
        ("{tables: [{name: 'a*.b'}]}", 1, "tables[0].name", "must be namespace.table"),
        ("{tables: [{enabled: false}]}", 1, "tables[0].name", "is required and missing"),
        ("{tables: [{name: a.b, compact: {strategy: sort}}]}", 1, "tables[0].compact.strategy", "needs the columns"),
        ("{dead_letters: {enabled: false}}", 1, "dead_letters", "unknown key"),
    ],
)  # fmt: skip
def test_problems_of_the_settings(text: str, line: int, field: str, sentence: str) -> None:
    with pytest.raises(SpecError) as error:
        settings(text)
    (problem,) = error.value.problems
    assert without_columns(problem).startswith(f"frazil.yaml:{line}: maintenance.{field}: ")
    assert sentence in problem


def test_columns_are_checked_beside_other_problems() -> None:
    with pytest.raises(SpecError) as error:
        stream("{compact: {strategy: sort, sort_by: [nix]}}\nfreshness: {warn: 5}")
    assert "maintenance.compact.sort_by[0]" in error.value.problems[0]


def test_the_columns_of_kafka_are_columns_too() -> None:
    assert stream("{compact: {strategy: zorder, sort_by: [_kafka_offset, card.number]}}")


def test_what_is_maintained() -> None:
    found = tables("{tables: [{name: lake.b}, {name: lake.a}, {name: raw.*}]}", "{}", listed=("raw.x", "lake.z"))
    assert [(table.name, table.role, table.stream) for table in found.values()] == [
        ("orders.payments", "sink", "payments"),
        ("orders.payments_dead", "dead_letters", "payments"),
        ("frazil.ledger", "ledger", None),
        ("lake.a", "other", None),
        ("lake.b", "other", None),
        ("raw.x", "other", None),
    ]
    assert namespaces_to_list(settings("{tables: [{name: raw.*}, {name: a.b.*}, {name: c.d}]}")) == ("a.b", "raw")


def test_each_layer_lies_over_those_before_it_key_by_key() -> None:
    found = tables(
        """
  expire: {keep: 2h, max_snapshots: 200}
  tables:
    - {name: orders.*, expire: {keep: 3h, min_snapshots: 3}, manifests: {max: 7}}
    - {name: orders.payments, expire: {keep: 5h}}
    - {name: raw.x, enabled: false}
""",
        "{expire: {keep: 4h, min_snapshots: 4}, dead_letters: {expire: {min_snapshots: 5}}}",
        listed=("orders.other", "orders.payments"),
    )
    shown = {
        name: (t.policy.expire.keep, t.policy.expire.min_snapshots, t.policy.manifests.max) for name, t in found.items()
    }
    hours = timedelta(hours=1)
    assert shown == {
        "orders.payments": (5 * hours, 4, 7),
        "orders.payments_dead": (3 * hours, 5, 7),
        "frazil.ledger": (2 * hours, 10, 100),
        "orders.other": (3 * hours, 3, 7),
        "raw.x": (2 * hours, 10, 100),
    }
    assert {table.policy.expire.max_snapshots for table in found.values()} == {200}
    assert [name for name, table in found.items() if not table.policy.enabled] == ["raw.x"]


def test_a_strategy_without_columns_forgets_those_below_it() -> None:
    found = tables("{compact: {strategy: sort, sort_by: [id]}}", "{compact: {strategy: binpack}}")
    assert found["orders.payments"].policy.compact.sort_by == ()
    assert found["orders.payments_dead"].policy.compact.strategy == "sort"


@pytest.mark.parametrize(("own", "target"), [("{}", 512), ("{compact: {target: 64MB}}", 64)])
def test_the_size_that_writers_aim_at_is_compaction_s_as_well(own: str, target: int) -> None:
    head = HEAD.replace("orders.payments}", "orders.payments, properties: {write.target-file-size-bytes: 536870912}}")
    spec = stream(own, head)
    found = {t.name: t.policy.compact.target for t in maintained_tables(settings("{compact: {target: 1GB}}"), [spec])}
    assert found == {"orders.payments": target * MB, "orders.payments_dead": 1024 * MB, "frazil.ledger": 1024 * MB}


def test_layers_that_contradict_each_other_stop_only_their_table() -> None:
    found = tables("{expire: {time_travel: 12h}}", "{expire: {keep: 6h}}")
    assert found["orders.payments_dead"].require().expire.keep == timedelta(days=1)
    with pytest.raises(FrazilError) as error:
        found["orders.payments"].require()
    assert error.value.message == (
        "The maintenance of orders.payments contradicts itself: expire.keep (6h) is shorter than the time travel that "
        "expire.time_travel promises (12h); keep at least 12h. (expire.keep is from the file of the stream payments, "
        "expire.time_travel is from maintenance in the settings.)"
    )


def test_any_table_may_be_asked_for_by_name() -> None:
    spec, held = stream("{budget: 1GB}"), settings("{budget: 2GB, tables: [{name: raw.*, budget: 3GB}]}")
    budgets = {
        n: maintained_table(held, [spec], n).policy.budget // 1024**3 for n in ("orders.payments", "x.y", "raw.z")
    }
    assert budgets == {"orders.payments": 1, "x.y": 2, "raw.z": 3}


def test_neither_hash_nor_generation_changes() -> None:
    plain, given_all = stream(), stream(EVERYTHING)
    held = settings(EVERYTHING)
    assert plain.config_hash == given_all.config_hash
    assert generation(plain, Settings.embedded(Path.cwd())) == generation(given_all, held)


@hypothesis_settings(deadline=None)
@given(st.integers(1, 2**63 - 1))
def test_sizes_come_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [("128MB", 128 * MB), ("128 mib", 128 * MB), ("1B", 1), ("2KiB", 2048), ("3tb", 3 * 1024**4), ("1GB", 1024**3)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("value", ["", "MB", "128", "1iB", "-1MB", "9999999999TB", None, True, [1]])
def test_what_is_no_size(value: object) -> None:
    with pytest.raises(ValueError, match=r"needs a unit|must be"):
        parse_size(value)


@hypothesis_settings(deadline=None)
@given(st.integers(0, 1439), st.integers(1, 1440), st.integers(0, 1439))
def test_windows_open_and_close(start: int, end: int, minute: int) -> None:
    if start == end:
        return
    window = Window(start, end)
    assert parse_window(str(window)) == window
    minutes = range(start, end) if start < end else [*range(start, 1440), *range(end)]
    now = datetime(2026, 1, 1, minute // 60, minute % 60, 59, tzinfo=UTC)
    assert is_open([window], now) == (minute in minutes)
    assert is_open([], now)


@pytest.mark.parametrize(
    ("text", "shown", "column"),
    [
        ("a", "a", "a"),
        ("a.b DESC", "a.b desc", "a.b"),
        ("`not plain` nulls FIRST", "`not plain` nulls first", "not plain"),
        ("a asc nulls last", "a asc nulls last", "a"),
    ],
)
def test_sort_columns(text: str, shown: str, column: str) -> None:
    parsed = parse_sort_expr(text)
    assert (str(parsed), parsed.column) == (shown, column)
    assert parse_sort_expr(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("5m", 300), ("2h", 7200), ("1d", 86400), ("250ms", 0.25), (" 90 s ", 90)]
)
def test_reads_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (60, "needs a unit; write 60s, 60m, 60h or 60d"),
        ("60", "must be a whole number with a unit"),
        ("1.5h", "must be a whole number with a unit"),
        ("1w", "must be a whole number with a unit"),
        ("-5m", "must be a whole number with a unit"),
        ("0s", "must be longer than zero"),
        ("", "must be a whole number with a unit"),
        (True, "must be a whole number with a unit"),
        (None, "must be a whole number with a unit"),
        (["5m"], "must be a whole number with a unit"),
        ("٥m", "must be a whole number with a unit"),
    ],
)
def test_refuses_everything_else(value: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_duration(value)


@given(st.integers(1, 10**9 - 1), st.sampled_from(["ms", "s", "m", "h"]))
def test_what_is_written_reads_back(number: int, unit: str) -> None:
    duration = parse_duration(f"{number}{unit}")
    assert parse_duration(format_duration(duration)) == duration
