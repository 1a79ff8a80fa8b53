"""A table that the Iceberg sink made and upserted, adopted by a stream: landed, replayed, maintained and audited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from jobs.proof.audit.audit import audit
from jobs.tables.commit.stamp.errors import GapError
from orchestration.cli.main import main
from tests.helpers.sink_table import sink_table, upsert_by_value
from tests.integration.maintained import maintain
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TOMBSTONE, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
# As the sink makes it of Connect's types: 38 digits, a zone, and what is optional there.
COLUMNS = Schema(
    ice.NestedField(1, "id", ice.StringType(), required=True),
    ice.NestedField(2, "amount", ice.DecimalType(38, 2), required=True),
    ice.NestedField(3, "created_at", ice.TimestamptzType(), required=False),
    ice.NestedField(4, "note", ice.StringType(), required=False),
)


def old(number: int, amount: str) -> dict[str, Any]:
    at = datetime(2026, 2, 1, tzinfo=UTC)
    return {"id": f"old-{number}", "amount": Decimal(amount), "created_at": at, "note": "of the sink"}


def frazil(made: Pipeline, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["--home", str(made.home), *arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.spark
def test_a_sinks_table_is_taken_over(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    made = pipeline()
    table = sink_table(made.catalog(), made.table_name, [old(1, "1.00"), old(2, "2.00"), old(3, "3.00")], COLUMNS)
    # Tabular's sink in its mode for upserts: an equality delete before every row.
    upsert_by_value(table, old(2, "22.00"))
    table_of_file = {"name": made.table_name, "identifier_fields": ["id"], "sort_by": ["created_at"]}
    made.write_spec("table", table=table_of_file)
    made.produce({GOOD: 40, NULL_AMOUNT: 3, TOMBSTONE: 2})
    with pytest.raises(FrazilError, match="was not made by frazil") as refused:
        made.drain(spark)
    assert f"frazil schema apply {made.stream}" in (refused.value.fix or "")
    frazil(made, "schema", "apply", made.stream, "--yes")
    with pytest.raises(GapError, match="the stream has no position") as undecided:
        made.drain(spark)
    assert f"frazil takeover {made.stream}" in (undecided.value.fix or "")
    first = {made.stream: dict.fromkeys(range(made.partitions), 0)}
    made.write_spec("table", table=table_of_file, source={"topics": [made.stream], "start": {"offsets": first}})
    assert made.drain(spark).counts.landed == 40

    assert "only Spark applies" in frazil(made, "audit", made.stream, code=1)
    assert len(maintain(made, spark, "compact").done) == 1
    said = frazil(made, "audit", made.stream)
    assert f"{made.stream}: complete. 45 records were read" in said
    assert f"table {made.table_name} has 3 rows without Kafka offsets" in said

    rows = Counter((each["id"], each["amount"]) for each in made.table().scan().to_arrow().to_pylist())
    mine = Counter({each: count for each, count in rows.items() if each[0].startswith("old-")})
    assert mine == Counter([("old-1", Decimal("1.00")), ("old-2", Decimal("22.00")), ("old-3", Decimal("3.00"))])
    assert sum(rows.values()) == 43
    assert max(rows.values()) == 1
    # The dead letters come back once the column lets null in, and none twice.
    with made.catalog().load_table(made.table_name).update_schema() as change:
        change.make_column_optional("amount")
    replayed = [
        replay(made.spec(), made.settings(), made.catalog(), ReplayRequest(by="tester")).replayed for _ in range(2)
    ]
    assert replayed == [3, 0]
    found = audit(made.spec(), made.settings(), made.catalog(), full=True)
    assert (found.verdict, found.tables[0].earlier) == ("complete", 3), found.problems
    made.assert_contiguous()
