"""Keys of Kafka Connect and its Iceberg sink, for those who bring them along: what each is called here, or why not.

Connect itself accepts what it does not know in silence, so a key that is carried over has to get an answer.
"""

from __future__ import annotations

import re

_SETTINGS = "in frazil.yaml"
_ROUTES = "route: {by: …, tables: [{match: …, table: …}]}"
_NO_COORDINATOR = (
    "is not needed: there is no control topic and no coordinator. A batch's offsets are committed with its rows, in "
    "the table's own snapshot"
)
_NO_REWRITES = "has no counterpart: frazil appends, and rewrites no rows by a key"
_TRANSFORMS = (
    "is transform, a list of steps in their order: {smt: {type: CLASS, …}} with the properties of Kafka Connect, or "
    "steps of frazil's own"
)
_BY_READER = "is not needed: tasks read by offset, in batches whose bounds source.max_records_per_batch sets"
_SECURITY = f"is kafka.security {_SETTINGS}: protocol, mechanism, user, password, ca, certificate, key"
_REGISTRY: tuple[tuple[str, str], ...] = (
    (r"schema\.registry\.url", "url, one or a list,"),
    (r"basic\.auth\.(user\.info|credentials\.source)", "basic: {user: NAME, password: '${env:NAME}'}"),
    (r"bearer\.auth\.token", "bearer: '${env:NAME}'"),
    (r"bearer\.auth\.issuer\.endpoint\.url", "token_url of oauth"),
    (r"bearer\.auth\.client\.id", "client_id of oauth"),
    (r"bearer\.auth\.client\.secret", "client_secret of oauth, '${env:NAME}',"),
    (r"bearer\.auth\.scope", "scope of oauth"),
    (r"bearer\.auth\.logical\.cluster", "logical_cluster of oauth or bearer"),
    (r"bearer\.auth\.identity\.pool\.id", "identity_pool_id of oauth or bearer"),
    (r"bearer\.auth\..+", "bearer or oauth"),
    (r"schema\.registry\.ssl\..+", "tls, with PEM files,"),
    (r"schema\.registry\..+", "url, basic, bearer, oauth, tls or timeout"),
)

# The first that matches a whole key counts. What follows the key in the sentence.
_ANSWERS: tuple[tuple[str, str], ...] = (
    (r"connector\.class", "is not needed: there is one sink, Iceberg"),
    (
        r"tasks\.max|tasksMax",
        f"is spark.master {_SETTINGS}, such as local[4]: how many partitions the topic has does not bound it",
    ),
    (r"topics\.regex", "is source.topics_pattern: a regular expression that a topic's whole name matches"),
    (r"iceberg\.tables", f"is table.name; several are the tables of a route, {_ROUTES}"),
    (r"iceberg\.tables\.route-field", f"is by of a route: {_ROUTES}"),
    (r"iceberg\.table\..+\.route-regex", f"is match of that table in a route, of the whole value: {_ROUTES}"),
    (
        r"iceberg\.tables\.dynamic-enabled",
        f"is not needed: a route names its tables, {_ROUTES}; without one all rows go to table.name",
    ),
    (r"iceberg\.tables\.auto-create-enabled", "is not needed: the first run creates the table as it is declared"),
    (r"iceberg\.tables\.auto-create-props(\..+)?", "is table.properties, set when the table is created"),
    (
        r"iceberg\.tables?\.write-props(\..+)?",
        "is the table's own: table.properties when it is created, ALTER TABLE … SET TBLPROPERTIES later",
    ),
    (
        r"iceberg\.tables\.evolve-schema-enabled",
        "is evolve.add, widen and relax where the columns are from a registry, the table or the records; else declare "
        "the column in decode.schema, and `frazil schema apply STREAM` adds it",
    ),
    (
        r"iceberg\.tables\.schema-force-optional",
        "is table.force_optional where the columns are from a registry; a declared one is optional without 'not null'",
    ),
    (
        r"iceberg\.tables\.schema-case-insensitive",
        "is decode.case_insensitive: false unless it says else, and a name that differs by case only is told",
    ),
    (r"iceberg\.tables\.default-partition-by|iceberg\.table\..+\.partition-by", "is table.partition_by, a list"),
    (
        r"iceberg\.tables\.default-id-columns|iceberg\.table\..+\.id-columns",
        "is table.identifier_fields, a list; frazil appends, and rewrites no rows by them",
    ),
    (r"iceberg\.tables\.(cdc-field|upsert-mode-enabled)", _NO_REWRITES),
    (r"iceberg\.tables\.default-commit-branch", "is table.branch"),
    (r"iceberg\.table\..+\.commit-branch", "is table.branch, or branch of an entry of route.tables"),
    (r"iceberg\.control\.commit\.interval-ms", "is trigger: {every: 60s}, by stream"),
    (r"iceberg\.(control|coordinator|connect|kafka)\b.*", _NO_COORDINATOR),
    (r"iceberg\.catalog", f"is catalog.name {_SETTINGS}"),
    (r"iceberg\.catalog\..+", f"is catalog.properties {_SETTINGS}, in PyIceberg's names"),
    (r"iceberg\.hadoop.*", f"is not needed: PyIceberg takes what a store wants in catalog.properties {_SETTINGS}"),
    (r"iceberg(\..*)?", f"has no counterpart under this name: the table is table, the catalog is catalog {_SETTINGS}"),
    *(
        (rf"((key|value)\.converter\.)?(schema\.registry\.)?{pattern}", f"is {answer} under registry {_SETTINGS}")
        for pattern, answer in _REGISTRY
    ),
    (
        r"((key|value)\.converter\.)?(auto\.register\.schemas|use\.latest\.version)",
        "is not needed: nothing is registered, and each record is read with the schema that it names",
    ),
    (
        r"key\.converter",
        "is decode.key: {format: string, into: key}, where the key is wanted as a column, in any format of values",
    ),
    (r"key\.converter\.schemas\.enable", "is not needed: the columns of a key are in decode.key.schema"),
    (r"key\.converter\..+", "has no counterpart: decode.key says how a key is read"),
    (
        r"value\.converter",
        "is decode.value: json, connect_json, string, bytes, long and so on, with the columns in decode.schema",
    ),
    (
        r"(value\.converter\.)?schemas\.enable",
        "is decode.value: connect_json where it is true, so that each value carries its schema; json where it is false",
    ),
    (r"(value\.converter\.)?schema\.content", "is schema.content of decode.value: {format: connect_json}"),
    (
        r"(value\.converter\.)?replace\.null\.with\.default",
        "is replace.null.with.default of decode.value: {format: connect_json}, where it is false unless it says else: "
        "null stays null",
    ),
    (
        r"(value\.converter\.)?decimal\.format",
        "is not needed: it is for writing. With connect_json a decimal is read in either form",
    ),
    (r"(value\.converter\.)?schemas\.cache\.(size|config)", "is not needed: what decodes a schema is kept"),
    (r"value\.converter\..+", "has no counterpart: decode.schema says how a value is read"),
    (
        r"header\.converter(\..+)?",
        "is decode.headers, where headers are wanted as columns: {trace_id: string}; their types are never guessed",
    ),
    (r"transforms(\..+)?", _TRANSFORMS),
    (
        r"predicates(\..+)?",
        "is predicates: {ALIAS: {type: CLASS, …}}, which a step names: {smt: {type: CLASS, predicate: ALIAS, negate: "
        "false}}; any other step has the condition when",
    ),
    (r"errors\.tolerance", "is tolerance under errors: none, data or all"),
    (r"errors\.retry\.timeout", "is timeout under errors.retry, with a unit: 5m; forever in place of -1"),
    (r"errors\.retry\.delay\.max\.ms", "is max_delay under errors.retry, with a unit: 60s"),
    (
        r"errors\.log\.(enable|include\.messages)",
        "is not needed: every failed record is in the dead letters, with its class, field, message and coordinates",
    ),
    (
        r"errors\.deadletterqueue\.topic\.name",
        "is topic under errors.dead_letters; the letters are in a table in any case",
    ),
    (
        r"errors\.deadletterqueue\.topic\.replication\.factor",
        "is replication_factor under errors.dead_letters.topic, with create: true",
    ),
    (
        r"errors\.deadletterqueue\.context\.headers\.enable",
        "is not needed: letters in the topic always have the headers",
    ),
    (r"(errors\.)?deadletterqueue(\..+)?", "is dead_letters under errors: table, topic, keep, mask"),
    (r"consumer\.override\.group\.id", "is source.group, for lag dashboards only: nothing is read back from it"),
    (r"consumer\.override\.auto\.offset\.reset", "is source.start: earliest, latest, a time or offsets"),
    (r"consumer\.override\.isolation\.level", f"is kafka.isolation {_SETTINGS}: read_committed unless it says else"),
    (r"consumer\.override\.(max\.poll\.records|fetch\..+|max\.partition\.fetch\.bytes)", _BY_READER),
    (r"(consumer\.override\.|producer\.override\.|admin\.override\.)?(security\.protocol|sasl\..+|ssl\..+)", _SECURITY),
    (r"(consumer\.override\.)?bootstrap\.servers", f"is kafka.bootstrap_servers {_SETTINGS}"),
    (
        r"(consumer|producer|admin)\.override(\..+)?",
        f"has no counterpart: what a client needs is under kafka {_SETTINGS}",
    ),
    (r"auto[rR]estart|auto\.restart", "is restart: max_restarts, first_delay, longest_delay, stable_after"),
)


def connect_answer(above: str, key: str) -> str | None:
    """What to say of a key that is Kafka Connect's, as the rest of a sentence about it; None if it is not known as one.

    Args:
        above: The keys that it stands under, with dots: `errors`; empty at the top of the file.
        key: The key as it was written, such as `deadletterqueue` or `errors.deadletterqueue.topic.name`.
    """
    for written in (f"{above}.{key}" if above else key, key):
        for pattern, answer in _ANSWERS:
            if re.fullmatch(pattern, written):
                return answer
    return None
