"""Converters of S3 and HDFS sinks: files and folders become one table for each topic."""

from __future__ import annotations

from datetime import timedelta

from jobs.config.documents.units import format_duration
from jobs.migration.connectors.model import Connector
from jobs.migration.conversion.change_form import decode_rows
from jobs.migration.conversion.decoding import leave_keys, value_format
from jobs.migration.conversion.draft import Draft, Takeover, Yaml, without_empty
from jobs.migration.conversion.error_handling import errors_block, restart_block, say_state
from jobs.migration.conversion.file_layout import (
    KAFKA_TIME,
    Layout,
    layout_of,
    rotation_ms,
    template_grain,
)
from jobs.migration.conversion.references import has_template
from jobs.migration.conversion.source import source_block, stream_name
from jobs.migration.conversion.topic_tables import table_of_topic, table_part, tables_of_topics
from jobs.migration.conversion.transforms import transform_blocks

_CODECS = {"snappy": "snappy", "gzip": "gzip", "zstd": "zstd", "lz4": "lz4", "none": "uncompressed"}
_TIME_KEYS = ("path.format", "partition.duration.ms", "timestamp.extractor", "timestamp.field", "timezone")
_BATCHES = "files close with their batch, and maintenance brings small ones together"


def convert_storage_sink(draft: Draft) -> None:
    """Convert an S3 or HDFS sink of Confluent's."""
    values = _values(draft.connector)
    layout = layout_of(values.get("partitioner.class", ""), values)
    _answer_layout(draft, values, layout)
    keys = draft.keys
    keys.approximated("flush.size", _BATCHES)
    keys.not_needed("format.class", "files are Parquet; readers ask the table")
    rotation = rotation_ms(values)
    for key in ("rotate.interval.ms", "rotate.schedule.interval.ms"):
        says = (
            "a batch each time, of what came" if rotation and rotation[0] == key else "the trigger is the shorter one"
        )
        keys.approximated(key, says if values.get(key, "").isdigit() else "off", "trigger.every")
    _ask_hive(draft, values)
    kafka_columns = _kept_parts(draft)
    properties: Yaml = {}
    if (codec := values.get("parquet.codec", "").casefold()) in _CODECS:
        properties["write.parquet.compression-codec"] = _CODECS[codec]
        keys.same("parquet.codec", "table.properties.write.parquet.compression-codec")
    if values.get("behavior.on.null.values", "").casefold() == "write":
        keys.impossible("behavior.on.null.values", "records without a value are counted, and land in no table")
    trigger = None if rotation is None else format_duration(timedelta(milliseconds=rotation[1]))
    _finish(draft, layout, trigger, kafka_columns, properties, namespace=_hive_namespace(values))


def convert_aiven_s3_sink(draft: Draft) -> None:
    """Convert Aiven's S3 sink."""
    keys, values = draft.keys, _values(draft.connector)
    template = values.get("file.name.template", "")
    grain = template_grain(template)
    layout = Layout((f"{grain}({KAFKA_TIME})",) if grain else (), "", KAFKA_TIME if grain else None)
    by = f"{layout.partition_by[0]} in place of the path" if grain else "no time of a record in it, so no partition"
    keys.approximated("file.name.template", by, "table.partition_by" if grain else None)
    keys.approximated("file.max.records", _BATCHES)
    for key in ("file.compression.type", "format.output.type", "format.output.envelope"):
        keys.not_needed(key, "files are Parquet; readers ask the table")
    columns: Yaml = {}
    for key in ("format.output.fields", "output_fields"):
        parts = [part.strip() for part in values.get(key, "").split(",")]
        columns |= {part: True for part in ("key", "headers") if part in parts}
        keys.approximated(
            key, "the value's fields are columns; Kafka's parts are _kafka_… columns", "table.kafka_columns"
        )
    for above in ("", "file.name."):
        if values.get(f"{above}timestamp.source", "event").lower() == "wallclock":
            keys.approximated(f"{above}timestamp.source", "the record's own timestamp, not the time of writing")
        _answer_zone(draft, f"{above}timestamp.timezone", values)
    _finish(draft, layout, None, columns, {}, namespace=None)


def _values(connector: Connector) -> dict[str, str]:
    return {key: setting.value.strip() for key, setting in connector.settings.items()}


def _answer_layout(draft: Draft, values: dict[str, str], layout: Layout) -> None:
    keys = draft.keys
    if layout.known:
        keys.approximated("partitioner.class", layout.difference, "table.partition_by" if layout.partition_by else None)
    else:
        keys.decide("partitioner.class", layout.difference)
        draft.ask(
            "partitioner.class is a class of your own: write table.partition_by as it chose folders.", blocks=True
        )
    if layout.partition_by and layout.time is None:
        keys.approximated("partition.field.name", "partitions by value", "table.partition_by")
    else:
        keys.not_needed("partition.field.name", "this partitioner does not read it")
    if layout.time is None:
        for key in _TIME_KEYS:
            keys.not_needed(key, "this partitioner does not read it, or the table keeps nothing of it")
        return
    if "wallclock" in values.get("timestamp.extractor", "").casefold():
        says = "the record's timestamp, not the time of writing"
        keys.approximated("timestamp.extractor", says, "table.partition_by")
    if "timestamp.extractor" not in values:
        draft.default("timestamp.extractor", "Wallclock", "table.partition_by", layout.partition_by[0])
    _answer_zone(draft, "timezone", values)
    for key in _TIME_KEYS:
        if not keys.is_answered(key):
            keys.same(key, "table.partition_by")
    if layout.time != KAFKA_TIME:
        draft.ask(
            f"Is {layout.time} a timestamp in the records? If it is a number or a text, a step makes one of it: "
            f"transform: [{{parse_timestamp: {{column: {layout.time}, unit: ms}}}}]."
        )


def _answer_zone(draft: Draft, key: str, values: dict[str, str]) -> None:
    if values.get(key, "UTC").upper() in ("UTC", "GMT", "Z", "ETC/UTC"):
        draft.keys.same(key, "table.partition_by", "partitions are in UTC")
    else:
        draft.keys.approximated(key, "partitions are in UTC, so days begin at another hour; queries are not affected")


def _kept_parts(draft: Draft) -> Yaml:
    """Kafka columns that take the place of files with keys and headers."""
    columns: Yaml = {}
    for key, part in (("store.kafka.keys", "key"), ("store.kafka.headers", "headers")):
        wanted = (draft.keys.get(key) or "").casefold() == "true"
        if wanted:
            columns[part] = True
        draft.keys.approximated(
            key, "a column of each row" if wanted else "off", "table.kafka_columns" if wanted else None
        )
    return columns


def _ask_hive(draft: Draft, values: dict[str, str]) -> None:
    keys = draft.keys
    if values.get("hive.integration", "").casefold() != "true":
        return
    keys.approximated("hive.integration", "the Iceberg table is in the catalog; no partitions are added to Hive")
    keys.decide("hive.metastore.uris", "this metastore can be the catalog: catalog.properties of type hive")
    keys.decide("hive.database", "proposed as the namespace of the tables")
    draft.ask(
        "The Hive metastore of this sink can be the catalog: catalog: {properties: {type: hive, uri: …}} in "
        f"frazil.yaml. Its tables in the database {values.get('hive.database') or 'default'} are no Iceberg tables: "
        "give the new ones other names, or drop the old ones first."
    )


def _hive_namespace(values: dict[str, str]) -> str | None:
    if values.get("hive.integration", "").casefold() != "true":
        return None
    database = values.get("hive.database") or "default"
    return None if has_template("", database) else table_part(database)


def _finish(
    draft: Draft, layout: Layout, trigger: str | None, kafka_columns: Yaml, properties: Yaml, *, namespace: str | None
) -> None:
    """Put the stream together, and ask for what such a sink does not have."""
    name = stream_name(draft)
    source = source_block(draft)
    decode = decode_rows(value_format(draft))
    leave_keys(draft)
    steps, predicates = transform_blocks(draft)
    own, route = tables_of_topics(source, name, lambda topic: table_of_topic(topic, namespace))
    table = {
        "name": own,
        "partition_by": list(layout.partition_by),
        "kafka_columns": kafka_columns,
        "properties": properties,
    }
    draft.streams.append(
        without_empty(
            {
                "stream": name,
                "source": source,
                "decode": decode,
                "transform": steps,
                "predicates": predicates,
                "table": without_empty(table),
                "route": route,
                "errors": errors_block(draft),
                "trigger": {"every": trigger} if trigger else None,
                "restart": restart_block(draft),
            }
        )
    )
    draft.ask(
        "The table's name and the catalog: this sink has neither. Names are proposed from those of the topics; write "
        "your own, and catalog in frazil.yaml.",
        blocks=True,
    )
    say_state(draft)
    group = f"connect-{draft.connector.name}"
    draft.ask(
        f"The position: group {group}. Such sinks also go by the names of their files, and then the group lags: "
        "compare it with the last offset in the newest file names before source.start is set to it."
    )
    draft.ask(
        "History: files that the sink has written are not imported. Read them with Spark into the table, if wanted."
    )
    draft.takeover = Takeover(group=group)
