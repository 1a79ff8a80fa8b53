"""Records of a real stream, looked up by `frazil at` as people do, and read back by what it prints."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog

from jobs.clients.spark.catalog_conf import use_catalog
from orchestration.cli.main import main
from tests.helpers.topics import read_topic
from tests.integration.pipeline import Coordinates, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def looked_up(made: Pipeline, *arguments: str) -> Any:
    """The facts of `frazil at`."""
    result = CliRunner().invoke(main, ["--home", str(made.home), "at", made.stream, *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def record(made: Pipeline, at: Coordinates) -> dict[str, Any]:
    """The facts of one record."""
    topic, partition, offset = at
    return looked_up(made, "--topic", topic, "--partition", str(partition), "--offset", str(offset))


def read_back(made: Pipeline, line: str) -> pa.Table:
    """What the printed line of PyIceberg gives."""
    properties = made.settings().catalog.revealed()
    return eval(line, {"load_catalog": lambda name: load_catalog(name, **properties)})


def truth(made: Pipeline, topics: Iterable[str]) -> dict[str, list[Coordinates]]:
    """The offsets that the topics have passed, by what they are, without the ledger."""
    landed, dead = made.landed(), made.dead()
    found: dict[str, list[Coordinates]] = {"row": [], "dead_letter": [], "tombstone": [], "no_record": []}
    for topic in topics:
        values = {(partition, offset): value for partition, offset, value in read_topic(made.address, topic)}
        ends: dict[int, int] = {}
        for partition, offset in values:
            ends[partition] = max(offset, ends.get(partition, 0))
        for partition, last in ends.items():
            for offset in range(last + 1):
                at = (topic, partition, offset)
                if at in landed or at in dead:
                    found["row" if at in landed else "dead_letter"].append(at)
                elif (partition, offset) in values:
                    found["tombstone"].append(at)
                else:
                    found["no_record"].append(at)
    return found


def assert_found_and_read_back(made: Pipeline, spark: SparkSession, topics: Iterable[str]) -> None:
    """A record of each fate is found as what it is, and rows are read back in PyIceberg and Spark."""
    use_catalog(spark, made.settings())
    for fate, places in truth(made, topics).items():
        at = places[len(places) // 2]
        facts = record(made, at)
        told = facts["possible"] if facts["fate"] == "undecided" else [facts["fate"]]
        assert fate in told, (at, facts)
        assert facts["landing"]["start_offset"] <= at[2] < facts["landing"]["end_offset"]
        assert facts["landing"]["file_kept"] == "exact" and facts["landing"]["opened_by"]["what"] == "frazil run"
        if fate in ("row", "dead_letter"):
            assert facts["fate"] == fate
            _assert_read_back(made, spark, at, facts)


def _assert_read_back(made: Pipeline, spark: SparkSession, at: Coordinates, facts: dict[str, Any]) -> None:
    read = facts["read"]
    names = ("topic", "partition", "offset")
    names = names if facts["fate"] == "dead_letter" else tuple(f"_kafka_{name}" for name in names)
    by_pyiceberg = read_back(made, read["pyiceberg"]).select(names).to_pylist()
    assert [tuple(each.values()) for each in by_pyiceberg] == [at]
    for sql in (read["spark"], read["spark_by_time"]):
        (row,) = spark.sql(sql).select(*(f"`{name}`" for name in names)).collect()
        assert tuple(row) == at
    # It came with this snapshot: the one before does not have it.
    parent = next(s.parent_snapshot_id for s in _snapshots(made, facts) if s.snapshot_id == read["snapshot_id"])
    before = read["pyiceberg"].replace(str(read["snapshot_id"]), str(parent))
    assert parent is None or read_back(made, before).num_rows == 0


def _snapshots(made: Pipeline, facts: dict[str, Any]) -> Any:
    return made.catalog().load_table(facts["table"]).snapshots()


def assert_from_row_to_record(made: Pipeline) -> None:
    """A row is found by its value, its record by the row, and the row by its record; with the file as it was."""
    row = made.table().scan(limit=1).to_arrow().to_pylist()[0]
    (facts,) = looked_up(made, "--row", f"id = '{row['id']}'")
    at = (facts["topic"], facts["partition"], facts["offset"])
    assert at == tuple(row[name] for name in ("_kafka_topic", "_kafka_partition", "_kafka_offset"))
    values = {(partition, offset): value for partition, offset, value in read_topic(made.address, at[0])}
    assert json.loads(values[at[1:]] or b"")["id"] == row["id"]
    assert read_back(made, facts["read"]["pyiceberg"]).column("id").to_pylist() == [row["id"]]
    arguments = ["--home", str(made.home), "at", made.stream, "--row", f"id = '{row['id']}'", "--config"]
    before = made.spec_file.read_text()
    made.spec_file.write_text(before + "# changed since\n")
    assert CliRunner().invoke(main, arguments).stdout == before
    made.spec_file.write_text(before)
