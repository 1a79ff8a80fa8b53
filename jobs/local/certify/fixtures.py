"""Fixtures of a certificate: its topic and namespace are created, and everything that it made is removed."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyarrow.fs import FileSelector, FileSystem, FileType
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField, StringType

from jobs.base.errors import FrazilError, first_line
from jobs.clients.state_store.chosen_store import remove_store, store_is_there
from jobs.clients.state_store.stream_folder import state_store
from jobs.config.redaction import redacted
from jobs.config.services.security import librdkafka_options
from jobs.config.settings.settings import Settings
from jobs.local.certify.load import SCHEMA
from jobs.local.certify.shapes import NAMED
from jobs.local.certify.workspace import PARTITIONS, Workspace
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.driver.tables.new_rows import NewColumns
from jobs.tables.write.table_creation import create_namespace

_TOPIC_SECONDS = 30.0
_FOLDER_SECONDS, _FOLDER_POLL_SECONDS = 10.0, 0.1


def require_absent(workspace: Workspace, catalog: Catalog) -> None:
    """Raise if anything has the certificate's name already, so that everything with it later may be removed.

    Raises:
        FrazilError: Something does, or a service does not answer.
    """
    settings, store = workspace.settings, workspace.settings.state_store
    there: list[str] = []
    with _permitted(settings, f"namespace {workspace.name} in catalog {settings.catalog.name}", "look for"):
        if catalog.namespace_exists(workspace.name):
            there.append(f"namespace {workspace.name}")
    with _permitted(settings, f"topic {workspace.name}", "look for"):
        if workspace.name in _admin(settings).list_topics(timeout=_TOPIC_SECONDS).topics:
            there.append(f"topic {workspace.name}")
    if store is not None:
        with _permitted(settings, f"the state of {workspace.name}", "look for"):
            if store_is_there(store):
                there.append(f"state in {state_store(settings).place('')}")
    if there:
        raise FrazilError(
            f"frazil certify touches nothing that exists already: {', '.join(there)}.", fix="frazil certify"
        )


def create_fixtures(workspace: Workspace, catalog: Catalog) -> str:
    """Create the topic, the namespace and the tables, and see whether a table may be made and dropped there.

    Returns:
        Where the tables' files are: the scheme of their locations, such as `file` or `s3`.

    Raises:
        FrazilError: A part is not allowed, or a service does not answer.
    """
    settings = workspace.settings
    with _permitted(settings, f"namespace {workspace.name} in catalog {settings.catalog.name}", "create"):
        create_namespace(catalog, workspace.name)
    probe = f"{workspace.name}.probe"
    with _permitted(settings, f"table {probe} in catalog {settings.catalog.name}", "create and drop"):
        catalog.create_table(probe, Schema(NestedField(1, "id", StringType())))
        _remove_table(catalog, probe, workspace.name)
    with _permitted(settings, f"table {workspace.table} in catalog {settings.catalog.name}", "create"):
        create_tables(workspace, catalog)
    with _permitted(settings, f"topic {workspace.name}", "create"):
        # -1: as the brokers have it.
        topic = NewTopic(workspace.name, num_partitions=PARTITIONS, replication_factor=-1)
        # Assigned to a name: an unreferenced client cancels its requests.
        admin = _admin(settings)
        for future in admin.create_topics([topic]).values():
            future.result(timeout=_TOPIC_SECONDS)
    return urlsplit(catalog.load_table(workspace.table).location()).scheme or "file"


def create_tables(workspace: Workspace, catalog: Catalog) -> None:
    """Create the tables: the stream's has the columns of the first records, and follows them from there on."""
    ensure_tables(workspace.spec(), catalog, lambda: NewColumns(iceberg_schema(parse_schema(SCHEMA))))


def remove_fixtures(workspace: Workspace, catalog: Catalog) -> list[str]:
    """Remove everything that a certificate made; returns what is left, with the reason, as sentences."""
    settings, left = workspace.settings, list[str]()
    there = list[str]()
    with _collected(settings, f"tables of namespace {workspace.name}", left):
        if catalog.namespace_exists(workspace.name):
            # Tables that values of records have named; others in the namespace are not the certificate's.
            every = (".".join(each) for each in catalog.list_tables(workspace.name))
            there = [each for each in every if each.startswith(f"{workspace.name}.{NAMED}")]
    names = dict.fromkeys([f"{workspace.name}.probe", *workspace.row_tables, workspace.dead_letters, *there])
    names |= {workspace.mirror: None} if workspace.mirror else {}
    names |= {workspace.settings.ledger.table: None}
    for name in names:
        with _collected(settings, f"table {name}", left), contextlib.suppress(NoSuchTableError):
            remains = _remove_table(catalog, name, workspace.name)
            if remains:
                left.append(remains)
    with _collected(settings, f"namespace {workspace.name}", left):
        if catalog.namespace_exists(workspace.name):
            catalog.drop_namespace(workspace.name)
    with _collected(settings, f"topic {workspace.name}", left):
        if settings.kafka.bootstrap_servers is not None:
            admin = _admin(settings)
            if workspace.name in admin.list_topics(timeout=_TOPIC_SECONDS).topics:
                for future in admin.delete_topics([workspace.name]).values():
                    future.result(timeout=_TOPIC_SECONDS)
    if settings.state_store is not None:
        with _collected(settings, f"state of {workspace.name}", left):
            remove_store(settings.state_store)
    with _collected(settings, f"folder {workspace.folder}", left):
        remove_folder(workspace)
    return left


def _remove_table(catalog: Catalog, name: str, namespace: str) -> str | None:
    """Drop a table and delete its files, those included that nothing refers to: killed drivers leave such files."""
    table = catalog.load_table(name)
    location = table.location()
    # A catalog may put a table anywhere; a folder without the certificate's name is not deleted.
    ours = namespace in location or str(table.metadata.table_uuid) in location
    delete = _folder_of(table) if ours else None
    if delete is not None and isinstance(catalog, MetastoreCatalog):
        catalog.drop_table(name)
    else:
        catalog.purge_table(name)
    if delete is None:
        return f"{location}: the catalog was asked to delete the table's files; others of killed drivers may be there."
    filesystem, path = delete
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_dir(path)
    around = path.rstrip("/").rpartition("/")[0]
    if namespace in around.rpartition("/")[2]:
        _remove_if_empty(filesystem, around)
    return None


def _remove_if_empty(filesystem: FileSystem, folder: str) -> None:
    """Remove the folder of a namespace once no file is in it; in an object store folders are empty objects."""
    with contextlib.suppress(OSError):
        found = filesystem.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True))
        if all(each.type is FileType.Directory for each in found):
            filesystem.delete_dir(folder)


def remove_folder(workspace: Workspace) -> None:
    """Remove a workspace's folder, in which the JVM of a driver that has just ended may still be tidying up its own.

    Raises:
        OSError: The folder cannot be removed.
    """
    folder = workspace.folder
    deadline = time.monotonic() + _FOLDER_SECONDS
    while folder.exists():
        try:
            shutil.rmtree(folder)
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_FOLDER_POLL_SECONDS)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def _folder_of(table: Table) -> tuple[FileSystem, str] | None:
    """The file system and the path of a table's files, if they can be reached as a folder."""
    if not isinstance(table.io, PyArrowFileIO):
        return None
    scheme, netloc, path = table.io.parse_location(table.location())
    return table.io.fs_by_scheme(scheme, netloc), path


def _admin(settings: Settings) -> AdminClient:
    options: dict[str, Any] = {
        "bootstrap.servers": settings.kafka.require_bootstrap(),
        "log_level": 0,
        **librdkafka_options(settings.kafka.admin_security),
    }
    return AdminClient(options)


@contextlib.contextmanager
def _permitted(settings: Settings, what: str, may: str) -> Iterator[None]:
    try:
        yield
    except FrazilError:
        raise
    except Exception as problem:
        # Not chained: the cause could show what was just taken out.
        raise FrazilError(
            f"frazil certify cannot {may} {what}: {redacted(settings, _words(problem))}.",
            fix="let this user create and drop topics and tables, or certify with other --settings",
        ) from None


@contextlib.contextmanager
def _collected(settings: Settings, what: str, left: list[str]) -> Iterator[None]:
    try:
        yield
    except NoSuchTableError:
        raise
    except Exception as problem:
        left.append(f"{what}: {redacted(settings, _words(problem))}")


def _words(problem: Exception) -> str:
    if isinstance(problem, FrazilError):
        return problem.message
    if isinstance(problem, KafkaException):
        return problem.args[0].str()
    return f"{type(problem).__name__}: {first_line(problem, 'no reason given')}"
