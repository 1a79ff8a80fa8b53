"""Section `catalog` of the settings, of the Iceberg sink's `iceberg.catalog*` and `iceberg.hadoop*`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from jobs.config.documents.secrets import looks_secret
from jobs.config.services.catalog_properties import known_properties, nearest_property
from jobs.migration.conversion.draft import Draft, Yaml
from jobs.migration.conversion.references import has_login, has_template, is_secret_property

_SINK = "iceberg.catalog."
_TYPES = {
    "rest": "rest", "hive": "hive", "glue": "glue", "jdbc": "sql", "sql": "sql", "dynamodb": "dynamodb",
    "bigquery": "bigquery", "hadoop": "hadoop", "nessie": "nessie",
}  # fmt: skip
_CLASSES = {
    "RESTCatalog": "rest", "HiveCatalog": "hive", "GlueCatalog": "glue", "JdbcCatalog": "sql",
    "HadoopCatalog": "hadoop", "NessieCatalog": "nessie", "DynamoDbCatalog": "dynamodb",
    "BigQueryMetastoreCatalog": "bigquery",
}  # fmt: skip
_FILE_IO = (
    r"org\.apache\.iceberg\.(aws\.s3\.S3FileIO|hadoop\.HadoopFileIO|io\.ResolvingFileIO|gcp\.gcs\.GCSFileIO|"
    r"azure\.adlsv2\.ADLSFileIO)"
)
_REGISTER = (
    "register each table in a supported catalog (frazil register NAMESPACE.TABLE LOCATION), and write that catalog here"
)
_REASONS = {
    "nessie": f"a catalog that shows a table’s newest snapshot alone cannot keep a stream’s position: {_REGISTER}",
    "hadoop": f"a warehouse of files alone has no safe commit for several writers: {_REGISTER}",
}
# jdbc:DRIVER: of Java, and SQLAlchemy's name with its driver.
_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "sqlite": "sqlite",
}
_SSL = {"require": "require", "true": "verify-full", "false": "disable", "": "verify-full"}
_S3A = {
    "fs.s3a.endpoint": "s3.endpoint",
    "fs.s3a.access.key": "s3.access-key-id",
    "fs.s3a.secret.key": "s3.secret-access-key",
    "fs.s3a.session.token": "s3.session-token",
    "fs.s3a.endpoint.region": "s3.region",
}
# Names that Java's clients alone read, with PyIceberg's; frazil gives Spark what Java wants.
_NAMES_OF_JAVA = {
    "adls.auth.shared-key.account.name": "adls.account-name",
    "adls.auth.shared-key.account.key": "adls.account-key",
    "client.assume-role.arn": "client.role-arn",
    "client.assume-role.session-name": "client.role-session-name",
}
NOWHERE = "https://undecided.invalid/catalog"
"""Address of a catalog that only a person knows; nothing answers there."""


def connect_catalog(
    draft: Draft,
    above: str = _SINK,
    name_key: str = "iceberg.catalog",
    *,
    skipped: Collection[str] = (),
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write section `catalog`. Answers `iceberg.catalog*` and `iceberg.hadoop*`.

    Args:
        draft: Draft of the connector.
        above: What stands before the names of the catalog's properties.
        name_key: Key of the catalog's name.
        skipped: Keys below `above` that are none of the catalog.
        more: Properties that other keys say, where the catalog's own do not.
    """
    keys = draft.keys
    kind = _kind(draft, above)
    name = _name(draft, kind, name_key)
    properties: Yaml = {}
    if kind in ("hadoop", "nessie"):
        properties |= {"type": "rest", "uri": NOWHERE}
        for key in ("uri", "warehouse"):
            keys.decide(f"{above}{key}", "that of the catalog in which the tables are registered")
        foreign = r"(ref|authentication\..*|nessie\..*|client-api-version|default-branch.*|cache-enabled)"
        for key in keys.keys(above):
            if re.fullmatch(foreign, key.removeprefix(above)) and not keys.is_answered(key):
                keys.impossible(key, f"{'Nessie' if kind == 'nessie' else 'Hadoop'}’s")
    elif kind is None:
        properties |= {"type": "rest", "uri": NOWHERE}
    else:
        properties["type"] = kind
        if kind == "sql":
            _database(draft, above, properties)
        if kind == "rest" and keys.has(f"{above}ref"):
            keys.no_effect(f"{above}ref", "no property of a REST catalog; a branch is table.branch")
    for key in keys.keys(above):
        if not keys.is_answered(key) and key not in skipped:
            _property(draft, key, above, properties)
    properties |= {name: value for name, value in more.items() if name not in properties}
    hadoop_properties(draft, "iceberg.hadoop.", properties)
    _style(draft, above, properties)
    draft.put("catalog", {"name": name, "properties": properties})


def _kind(draft: Draft, above: str) -> str | None:
    keys = draft.keys
    by_type, by_class = f"{above}type", f"{above}catalog-impl"
    key = by_class if keys.has(by_class) else by_type
    written = keys.get(key) or ""
    kind = _CLASSES.get(written.rpartition(".")[2]) if key == by_class else _TYPES.get(written.lower())
    if key == by_class and keys.has(by_type):
        keys.no_effect(by_type, "catalog-impl counts beside it")
    if kind in ("hadoop", "nessie"):
        keys.impossible(key, _REASONS[kind])
        draft.ask(f"the catalog: {_REASONS[kind]}", blocks=True)
    elif kind is not None:
        keys.same(key, "catalog.properties.type")
    elif keys.has(key):
        keys.decide(
            key, "a catalog that frazil does not know; if it speaks Iceberg's REST, write type: rest and its uri"
        )
        draft.ask("the catalog: frazil does not know its class. Write catalog.properties", blocks=True)
    else:
        draft.ask("the catalog: the connector has neither iceberg.catalog.type nor catalog-impl", blocks=True)
    return kind


def _name(draft: Draft, kind: str | None, key: str) -> str:
    keys = draft.keys
    written, otherwise = keys.get(key), "iceberg" if key == "iceberg.catalog" else "default"
    name = written or otherwise
    if written is None:
        draft.default(key, otherwise, "catalog.name", name)
    fitting = re.sub(r"\W", "_", name, flags=re.ASCII)
    fitting = fitting if re.match(r"[A-Za-z_]", fitting) else f"_{fitting}"
    if fitting == name:
        keys.same(key, "catalog.name")
    elif kind == "sql":
        keys.impossible(key, "a database keeps tables by the catalog's name, and frazil's has no such letters")
        draft.ask(
            "the catalog's name has letters that frazil's cannot have, and its database keeps tables by it", blocks=True
        )
    else:
        keys.approximated(key, "a name of letters, digits and _; this kind of catalog does not keep it", "catalog.name")
    if kind == "sql":
        draft.note(f"the catalog’s name keeps its tables: it must stay {fitting}")
    return fitting[:63]


def _property(draft: Draft, key: str, above: str, properties: Yaml) -> None:
    """Answer one property of the catalog, and write it if something reads it."""
    keys, name = draft.keys, key.removeprefix(above)
    value = keys.raw(key)
    if (ours := _NAMES_OF_JAVA.get(name)) is not None and not keys.has(f"{above}{ours}"):
        name = ours
    at = f"catalog.properties.{name}"
    if not value:
        keys.no_effect(key, "is empty")
        return
    if name == "io-impl":
        if re.fullmatch(_FILE_IO, value):
            keys.not_needed(key, "the client of files is chosen by their scheme")
        else:
            keys.decide(key, "a client of files of your own: py-io-impl takes its counterpart in Python")
        return
    if name == "s3.path-style-access":
        return
    if near := nearest_property(name):
        keys.no_effect(key, f"no client of a catalog reads it; did you mean {near}?")
        draft.ask(f"{key} is read by no client; did you mean {above}{near}?")
        return
    reference = keys.is_open(key) or is_secret_property(name, value)
    if reference:
        properties[name] = draft.secret(keys, key, at, _variable(name))
    else:
        properties[name] = value
    if has_template(key, value) and not looks_secret(name):
        keys.decide(key, f"a template: render it first, or set the variable of {properties[name]} at {at}")
    elif name == "warehouse" and value.startswith("s3a://"):
        keys.approximated(key, "s3a:// and s3:// are two styles of one place", at)
    elif keys.is_open(key) and not looks_secret(name):
        keys.approximated(key, f"the value is set elsewhere: set the variable of {properties[name]}", at)
    elif name in known_properties() or name.startswith(("header.", "rest.", "hive.", "glue.", "s3.", "adls.", "gcs.")):
        keys.same(key, at)
    else:
        keys.approximated(key, "passed on as it is; frazil knows no client that reads it", at)


def _variable(name: str) -> str:
    return "CATALOG_" + re.sub(r"\W+", "_", name, flags=re.ASCII).upper().strip("_")


def _style(draft: Draft, above: str, properties: Yaml) -> None:
    """Style of addresses in S3: Java's client puts the bucket into the host unless told, PyIceberg's into the path."""
    keys, key = draft.keys, f"{above}s3.path-style-access"
    if keys.flag(key):
        keys.not_needed(key, "the bucket is in the path unless s3.force-virtual-addressing is true")
    elif "s3.endpoint" in properties and not keys.is_open(key):
        properties["s3.force-virtual-addressing"] = "true"
        if keys.has(key):
            keys.same(key, "catalog.properties.s3.force-virtual-addressing")
        else:
            draft.default(key, "false", "catalog.properties.s3.force-virtual-addressing", "true")
    else:
        keys.not_needed(key, "the client's own style, without an endpoint")


def _database(draft: Draft, above: str, properties: Yaml) -> None:
    """Address, user and password of a JDBC catalog, as SQLAlchemy wants them."""
    keys, key = draft.keys, f"{above}uri"
    match = re.fullmatch(r"jdbc:(\w+):(.*)", keys.raw(key), re.DOTALL)
    driver = _DRIVERS.get(match[1]) if match else None
    if match is None or driver is None or keys.is_open(key) or not _is_plain(match[2]):
        properties["uri"] = f"{_DRIVERS['postgresql']}://undecided@undecided.invalid/undecided"
        keys.decide(key, "no address that SQLAlchemy knows: write catalog.properties.uri")
        draft.ask(
            "the catalog's database: write catalog.properties.uri, such as postgresql+psycopg://USER@HOST/DB",
            blocks=True,
        )
        return
    if driver == "sqlite":
        properties["uri"] = f"sqlite:///{match[2].partition('?')[0]}"
        keys.same(key, "catalog.properties.uri")
        return
    parts = urlsplit(f"{driver.partition('+')[0]}:{match[2]}")
    query, user, password = _query(draft, parts.query)
    user = _first(draft, above, ("jdbc.user", "user"), user or unquote(parts.username or ""))
    password = password or (unquote(parts.password) if parts.password else "")
    host = parts.netloc.rpartition("@")[2]
    tail = f"?{urlencode(query, safe='/')}" if query else ""
    login = f"{user if user.startswith('${') else quote(user, safe='')}@" if user else ""
    properties["uri"] = f"{driver}://{login}{host}{parts.path}{tail}"
    keys.same(key, "catalog.properties.uri")
    at = "catalog.properties.password"
    for name in ("jdbc.password", "password"):
        written = f"{above}{name}"
        if keys.has(written):
            properties["password"] = draft.secret(keys, written, at, "CATALOG_PASSWORD")
            keys.same(written, at)
            password = ""
    if password:
        properties["password"] = draft.secret(keys, key, at, "CATALOG_PASSWORD", value=password)
    for name in ("jdbc.useSSL", "jdbc.verifyServerCertificate", "jdbc.schema-version", "jdbc.init-catalog-tables"):
        keys.approximated(f"{above}{name}", "Java's driver reads it; write its counterpart into catalog.properties.uri")


def _is_plain(address: str) -> bool:
    """Whether an address can be split, and has a password in no part but the login and the query."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    rest = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
    return "@" not in rest and not has_login(rest)


def _first(draft: Draft, above: str, names: tuple[str, ...], otherwise: str) -> str:
    keys = draft.keys
    for name in names:
        key = f"{above}{name}"
        if keys.has(key):
            keys.same(key, "catalog.properties.uri")
            if keys.is_open(key):
                return draft.secret(keys, key, "catalog.properties.uri", "CATALOG_USER")
            return keys.raw(key)
    return otherwise


def _query(draft: Draft, text: str) -> tuple[list[tuple[str, str]], str, str]:
    """Query of libpq, user and password, of the query of Java's driver."""
    query: list[tuple[str, str]] = []
    user = password = ""
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name == "ssl":
            query.append(("sslmode", _SSL.get(value.lower(), value)))
        elif name in ("sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout"):
            query.append((name, value))
        elif name == "user":
            user = value
        elif name == "password":
            password = value
        else:
            draft.note(f"{name} of the catalog's address is for Java's driver, and left out")
    return query, user, password


def hadoop_properties(draft: Draft, above: str, properties: Yaml, *, only: str = "") -> None:
    """Answer keys of Hadoop: those of S3A have counterparts.

    Args:
        draft: Draft of the connector.
        above: What stands before Hadoop's names.
        properties: Properties of the catalog, to which counterparts are added.
        only: Beginning of the keys; without it, all below `above`.
    """
    keys = draft.keys
    for key in keys.keys(only or above):
        name = key.removeprefix(above)
        ours = _S3A.get(name)
        if ours is None or ours in properties:
            said = "PyIceberg takes what a store wants in catalog.properties"
            if name == "fs.s3a.path.style.access" or ours is not None or name.endswith(".impl"):
                keys.not_needed(key, said)
            else:
                keys.approximated(key, f"{said}; frazil reads no configuration of Hadoop")
            continue
        at = f"catalog.properties.{ours}"
        secret = looks_secret(ours) or keys.is_open(key)
        properties[ours] = draft.secret(keys, key, at, _variable(ours)) if secret else keys.raw(key)
        keys.same(key, at)
    keys.approximated("iceberg.hadoop-conf-dir", "PyIceberg takes what a store wants in catalog.properties")
