"""Classes of keys: what a change of each key of a stream's file, and of the settings, touches.

A key without an entry has the entry of its block. Every key on the first two levels has an entry of its own, which a
test checks. The generation alone decides whether a driver restarts. `restarts` predicts that for a file that is
compared with another file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestration.deployment_plan.change import ChangeClass

_NOTHING, _METADATA, _RESTART = ChangeClass.NOTHING, ChangeClass.METADATA, ChangeClass.RESTART
_REWRITE, _RESET, _BREAKING = ChangeClass.REWRITE, ChangeClass.RESET, ChangeClass.BREAKING


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Rule about changes of a key.

    Attributes:
        kind: Class of the change.
        sentence: Effect of the change on a stream that has a position and a table.
        restarts: Whether a running driver restarts for the change.
        fix: Command for work that frazil does not do by itself, with `{stream}` as the stream's id.
    """

    kind: ChangeClass
    sentence: str
    restarts: bool = True
    fix: str | None = None


def _block(rule: KeyRule, name: str, keys: str) -> dict[str, KeyRule]:
    """A block and some of its keys, which have one rule.

    Args:
        rule: The rule.
        name: Key of the block.
        keys: Keys within it, with blanks between them.
    """
    return {name: rule, **{f"{name}.{key}": rule for key in keys.split()}}


ROWS = "rows differ from here on; earlier rows stay as they are"
_SHOWN = KeyRule(_METADATA, "Dagster shows it once it has loaded the file", restarts=False)
_JUDGED = KeyRule(_METADATA, "Dagster's checks go by it once they have loaded the file", restarts=False)
_KEPT = KeyRule(_METADATA, "the next maintenance goes by it", restarts=False)
_ROWS = KeyRule(_RESTART, ROWS)
_PACED = KeyRule(_RESTART, "batches are cut and paced otherwise; rows stay as they are")
_RESTARTED = KeyRule(_RESTART, "a driver that fails is started again by it")
_REPLAYED = KeyRule(_METADATA, "replays go by it", restarts=False)
_PUBLISHED = KeyRule(_METADATA, "publications go by it", restarts=False)
_CHECKED = KeyRule(_METADATA, "the next check goes by it; rows stay as they are", restarts=False)
_REBUILT = KeyRule(
    _REWRITE,
    "its next merge stops until the mirror is rebuilt",
    fix="frazil mirror rebuild {stream} --table {table}",
)
_NEW_TABLE = "counts for a new table"

STREAM_KEYS: Mapping[str, KeyRule] = {
    "stream": KeyRule(_BREAKING, "another name is another stream, without a position"),
    "description": _SHOWN,
    "owner": _SHOWN,
    "source": KeyRule(_RESTART, "the stream reads otherwise from its position on"),
    "source.topics": KeyRule(
        _RESTART, "a new topic is read from source.start on; a topic that is left out is no longer read"
    ),
    "source.topics_pattern": KeyRule(
        _RESTART, "a topic that matches now is read from source.start on; one that no longer matches is no longer read"
    ),
    "source.start": KeyRule(
        _RESTART, "no effect on the position: the stream goes on from there. It counts for new topics",
    ),
    "source.max_records_per_batch": _PACED,
    "source.max_bytes_per_batch": _PACED,
    "source.min_records_per_batch": _PACED,
    "source.max_delay": _PACED,
    "source.group": KeyRule(_RESTART, "positions are committed to that consumer group, for dashboards alone"),
    "source.options": KeyRule(_RESTART, "Kafka's clients connect otherwise; rows stay as they are"),
    "decode": _ROWS,
    "decode.value": _ROWS,
    "decode.schema": _ROWS,
    "decode.unknown_fields": _ROWS,
    "decode.case_insensitive": _ROWS,
    "decode.subject": KeyRule(_METADATA, "frazil schema asks the registry for that subject", restarts=False),
    "decode.key": _ROWS,
    "decode.schema_id": _ROWS,
    "decode.headers": _ROWS,
    "changes": _ROWS,
    "changes.envelope": _ROWS,
    "changes.before": _ROWS,
    "changes.unavailable": _ROWS,
    "changes.key": _ROWS,
    "changes.op": _ROWS,
    "changes.order_by": _ROWS,
    "changes.at": _ROWS,
    "changes.keep": KeyRule(_RESTART, "changes that every mirror has expire by it"),
    "changes.schema": _ROWS,
    "transform": _ROWS,
    "predicates": _ROWS,
    "rules": KeyRule(_RESTART, "other records become dead letters from here on; earlier rows stay as they are"),
    "table": _ROWS,
    "table.name": KeyRule(
        _RESET,
        "rows go to another table, in which the stream has no position: it begins there at source.start",
        fix="name the former table again; or begin with source.start: {{offsets: …}} where the stream stands "
        "(frazil status {stream} --json)",
    ),
    "table.partition_by": KeyRule(
        _RESTART, "an existing table keeps its partitions until it is altered; earlier files keep theirs"
    ),
    "table.kafka_columns": _ROWS,
    "table.branch": KeyRule(_RESTART, "rows land on that branch from here on; other branches do not get them"),
    "table.properties": KeyRule(_METADATA, f"{_NEW_TABLE}; frazil apply sets them on an existing one"),
    "table.location": KeyRule(_NOTHING, f"{_NEW_TABLE}; an existing one keeps its location"),
    "table.sort_by": KeyRule(_METADATA, f"{_NEW_TABLE}; an existing one is altered in Spark"),
    "table.identifier_fields": KeyRule(_METADATA, f"{_NEW_TABLE}; frazil apply sets them on an existing one"),
    "table.force_optional": KeyRule(_NOTHING, f"{_NEW_TABLE}; an existing one keeps its required columns"),
    "errors": KeyRule(_RESTART, "failed records are handled otherwise from here on"),
    "errors.tolerance": KeyRule(_RESTART, "failed records stop the stream, or become dead letters, from here on"),
    "errors.retry": KeyRule(_RESTART, "the driver waits otherwise for a service that is unavailable"),
    "errors.stop_above": KeyRule(_RESTART, "another share of failed records stops the stream"),
    "errors.dead_letters": KeyRule(_RESTART, "dead letters are stored differently from here on"),
    "errors.dead_letters.table": KeyRule(
        _RESTART,
        "dead letters go to another table; those in the former one stay there, and no replay finds them",
        fix="frazil replay {stream}, before the file is changed",
    ),
    "errors.dead_letters.topic": KeyRule(_RESTART, "dead letters are published differently from here on"),
    "errors.dead_letters.keep": KeyRule(_METADATA, "dead letters expire by it", restarts=False),
    "errors.dead_letters.mask": KeyRule(_RESTART, "dead letters are masked differently from now on; earlier ones stay"),
    "errors.replay": _REPLAYED,
    "errors.replay.automatic": _REPLAYED,
    "errors.replay.park_after": _REPLAYED,
    "errors.replay.rate": _REPLAYED,
    **_block(_PACED, "trigger", "every"),
    "trigger.while_red": KeyRule(_RESTART, "the stream is paced otherwise while a check fails"),
    "group": KeyRule(_RESTART, "another driver carries the stream"),
    **_block(_JUDGED, "freshness", "warn fail by"),
    **_block(_JUDGED, "slo", "lag_records lag_time dead_letter_ratio unknown_fields"),
    "restart": _RESTARTED,
    "restart.max_restarts": _RESTARTED,
    "restart.first_delay": _RESTARTED,
    "restart.longest_delay": _RESTARTED,
    "restart.stable_after": _RESTARTED,
    "restart.stalled_after": KeyRule(_RESTART, "a driver that stalls is replaced by it"),
    **_block(_KEPT, "maintenance", "enabled compact manifests remake expire orphans metadata windows budget"),
    "maintenance.dead_letters": _KEPT,
    "evolve": KeyRule(_RESTART, "what records need of the table is done, proposed or refused by it from here on"),
    "evolve.add": KeyRule(_RESTART, "new columns of records are added, proposed or refused by it"),
    "evolve.widen": KeyRule(_RESTART, "wider types of records are taken, proposed or refused by it"),
    "evolve.relax": KeyRule(_RESTART, "missing values of required columns are taken, proposed or refused by it"),
    "evolve.clash": KeyRule(_RESTART, "values of another type than their column's are treated by it"),
    "evolve.limits": KeyRule(_RESTART, "so many columns may be added by themselves"),
    "event_time": _ROWS,
    "event_time.column": KeyRule(_RESTART, "the watermark follows another column from here on"),
    "event_time.grace": KeyRule(_RESTART, "rows count as late by it from here on"),
    "event_time.late": KeyRule(_RESTART, "late rows go elsewhere from here on; earlier ones stay where they are"),
    "event_time.idle_after": KeyRule(_RESTART, "the watermark of an idle partition goes on by it"),
    "event_time.closes": KeyRule(_RESTART, "Dagster gets another asset of closed hours or days"),
    "event_time.zone": KeyRule(_RESTART, "hours or days are closed by that zone"),
    "event_time.since": KeyRule(_RESTART, "hours or days are closed from there on"),
    **_block(_CHECKED, "contract", "expectations"),
    "contract.check": KeyRule(_METADATA, "checks are due by it", restarts=False),
    "contract.dead_letters": _CHECKED,
    "contract.tables": _CHECKED,
    "publish": _PUBLISHED,
    "publish.gate": _PUBLISHED,
    "publish.every": _PUBLISHED,
    "publish.branch": KeyRule(_RESTART, "rows land on that branch from here on, and are published from there"),
    "route": KeyRule(_RESTART, "rows go to other tables from here on; earlier rows stay where they are"),
    "route.by": KeyRule(_RESTART, "rows go to tables by another value from here on; earlier rows stay where they are"),
    "route.tables": KeyRule(
        _RESTART, "rows go to these tables from here on; a table that is left out stays as it is, and gets no more rows"
    ),
    "route.to": KeyRule(_RESTART, "values name other tables from here on; earlier rows stay where they are"),
    "route.unmatched": KeyRule(_RESTART, "rows without a table of theirs go elsewhere from here on"),
    "route.limit": KeyRule(_RESTART, "so many tables may be named by values"),
    "route.columns": KeyRule(_RESTART, ROWS),
    "route.on_table_error": KeyRule(_RESTART, "a table that refuses its commit is treated by it"),
    "route.recreate": KeyRule(_RESTART, "a table that was dropped is treated by it"),
    "mirrors": KeyRule(_RESTART, "the driver merges into these mirrors"),
    "mirrors.table": KeyRule(_METADATA, "another mirror; the former table stays, and is merged into no more"),
    "mirrors.key": KeyRule(
        _BREAKING,
        "a mirror keeps its key: its next merge would stop",
        fix="name another table for it in mirrors, or put the key back",
    ),
    "mirrors.every": KeyRule(_RESTART, "the mirror is merged into by it"),
    "mirrors.deletes": _REBUILT,
    "mirrors.where": _REBUILT,
    "mirrors.buckets": KeyRule(_NOTHING, "counts for a new mirror; an existing one keeps its buckets"),
    "mirrors.source": KeyRule(_METADATA, "the mirror is compared with that", restarts=False),
}  # fmt: skip

_CONNECTS = KeyRule(_RESTART, "every driver reconnects")
_OTHER_CATALOG = KeyRule(
    _BREAKING,
    "positions are in the tables: in another catalog every stream would start over",
    fix="register the tables in the new catalog first, then frazil validate",
)
_OTHER_STATE = KeyRule(
    _BREAKING,
    "leases and running drivers are kept in the former store: two drivers could not see each other",
    fix="frazil stop --all; then frazil state copy, see docs/how-to/several-machines.md",
)
_WATCHES = KeyRule(_METADATA, "effective at once; no driver restarts", restarts=False)
_LAUNCHES = KeyRule(_RESTART, "the next driver is launched so; a driver on a cluster restarts", restarts=False)

_OTHER_SESSION = KeyRule(_RESTART, "every driver restarts its Spark session")
_OTHER_REGISTRY = KeyRule(_RESTART, "drivers whose format needs a registry ask this one; its ids must be the same")
_OTHER_GROUP = KeyRule(_RESTART, "streams that name no group are carried by another driver")
_OTHER_METRICS = KeyRule(_RESTART, "every driver notes its metrics' address there")
_OTHER_LEDGER = KeyRule(_METADATA, "the ledger goes on in another table, from the stamps that are kept", restarts=False)

SETTINGS_KEYS: Mapping[str, KeyRule] = {
    "kafka": _CONNECTS,
    "kafka.bootstrap_servers": KeyRule(
        _RESTART, "every driver reconnects; if the topics there are others, with other ids, every stream stops"
    ),
    "kafka.security": _CONNECTS,
    "kafka.isolation": KeyRule(_RESTART, "records of open and aborted transactions are read, or are not, from here on"),
    "kafka.request_timeout": _CONNECTS,
    "kafka.address_file": _CONNECTS,
    "kafka.options": _CONNECTS,
    "kafka.admin": _CONNECTS,
    **_block(_OTHER_REGISTRY, "registry", "url"),
    "registry.basic": _CONNECTS,
    "registry.bearer": _CONNECTS,
    "registry.oauth": _CONNECTS,
    "registry.tls": _CONNECTS,
    "registry.timeout": _CONNECTS,
    "registry.lag": _CONNECTS,
    "registry.address_file": _CONNECTS,
    "catalog": _OTHER_CATALOG,
    "catalog.name": _OTHER_CATALOG,
    "catalog.properties": _CONNECTS,
    "catalog.properties.type": _OTHER_CATALOG,
    "catalog.properties.uri": _OTHER_CATALOG,
    "catalog.properties.warehouse": _OTHER_CATALOG,
    "spark": _OTHER_SESSION,
    "spark.master": KeyRule(_RESTART, "every driver restarts there"),
    "spark.driver_memory": _OTHER_SESSION,
    "spark.ui_address": _OTHER_SESSION,
    "spark.conf": _OTHER_SESSION,
    "state": _OTHER_STATE,
    "state.folder": _OTHER_STATE,
    "state.store": _OTHER_STATE,
    "state.properties": _CONNECTS,
    "state.timeout": _CONNECTS,
    **_block(_OTHER_GROUP, "groups", "default"),
    "drivers": _LAUNCHES,
    "drivers.launcher": KeyRule(_RESTART, "the next driver is launched by it; the former one ends one that runs"),
    "drivers.home": _LAUNCHES,
    "drivers.environment": _LAUNCHES,
    "drivers.spark_submit": _LAUNCHES,
    "drivers.kubernetes": _LAUNCHES,
    "lease_ttl": KeyRule(_RESTART, "every driver renews its lease by it"),
    **_block(_OTHER_LEDGER, "ledger", "table"),
    **_block(_KEPT, "maintenance", "enabled compact manifests remake expire orphans metadata windows budget tables"),
    **_block(_WATCHES, "sources", "url properties timeout statement_timeout"),
    **_block(_WATCHES, "alerts", "targets dagster_url runbooks"),
    **_block(_OTHER_METRICS, "metrics", "folder"),
}  # fmt: skip


def key_rule(keys: Mapping[str, KeyRule], place: str) -> KeyRule:
    """The rule of a key: its own, or that of the nearest block around it.

    Args:
        keys: `STREAM_KEYS` or `SETTINGS_KEYS`.
        place: The key with dots, as in `source.start.timestamp`.

    Raises:
        KeyError: Neither it nor a block around it is known.
    """
    parts = place.split(".")
    for length in range(len(parts), 0, -1):
        if (rule := keys.get(".".join(parts[:length]))) is not None:
            return rule
    raise KeyError(place)
