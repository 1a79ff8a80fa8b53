"""Registration of a table that another catalog made: found by its metadata file, and entered in this one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError, ValidationError
from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.tables.write.table_creation import ensure_namespace

_HINT = "version-hint.text"
# Java: HadoopTableOperations writes the first, and the second if metadata is compressed.
_VERSIONED = ("v{}.metadata.json", "v{}.gz.metadata.json")
_METADATA = re.compile(r"\.metadata\.json(\.gz)?$")
_NEWEST = "SELECT file FROM CATALOG.TABLE.metadata_log_entries ORDER BY timestamp DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table as its metadata file has it.

    Attributes:
        metadata_location: The file.
        metadata: What it holds.
    """

    metadata_location: str
    metadata: TableMetadata

    @property
    def rows(self) -> int | None:
        """Rows, as the newest snapshot counts them; None if it does not, 0 without a snapshot."""
        snapshot = self.metadata.current_snapshot()
        if snapshot is None:
            return 0
        total = snapshot.summary.additional_properties.get("total-records") if snapshot.summary is not None else None
        return int(total) if total is not None else None

    @property
    def updated(self) -> datetime:
        """When it was last changed."""
        return datetime.fromtimestamp(self.metadata.last_updated_ms / 1000, UTC)


def find_table_metadata(io: FileIO, location: str) -> FoundTable:
    """Read a table from its metadata file, or from its folder in a Hadoop-style warehouse.

    In such a warehouse the newest version is the one after which no file exists; `version-hint.text` may be behind.

    Args:
        io: Reads files there.
        location: A file `….metadata.json`, or the table's folder.

    Raises:
        FrazilError: There is no table, or the folder does not tell which metadata file is the newest.
    """
    location = location.rstrip("/")
    file = location if _METADATA.search(location) else _newest_version(io, location)
    try:
        return FoundTable(file, FromInputFile.table_metadata(io.new_input(file)))
    except FileNotFoundError:
        raise FrazilError(f"{file} does not exist.", fix="name the metadata file, or the table's folder") from None
    except (ValueError, ValidationError):
        # What is wrong with it repeats the file.
        raise FrazilError(
            f"{file} is no metadata file of an Iceberg table.", fix="name the metadata file, or the table's folder"
        ) from None


def register_found(catalog: Catalog, name: str, found: FoundTable) -> tuple[Table, bool]:
    """Enter a table in a catalog, with its namespace.

    Returns:
        The table, and whether it is new; False if the very table is there already, as it was found or further on.

    Raises:
        FrazilError: The name is taken by another table.
    """
    ensure_namespace(catalog, Catalog.namespace_from(name))
    known = _known(catalog, name)
    if known is None:
        try:
            return catalog.register_table(name, found.metadata_location), True
        except TableAlreadyExistsError:
            known = catalog.load_table(name)
    if known.metadata.table_uuid != found.metadata.table_uuid:
        raise FrazilError(
            f"{name} is another table, at {known.location()}.", fix="register the table under another name"
        )
    return known, False


def _known(catalog: Catalog, name: str) -> Table | None:
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        return None


def _newest_version(io: FileIO, folder: str) -> str:
    hint = f"{folder}/metadata/{_HINT}"
    try:
        with io.new_input(hint).open() as stream:
            version = int(stream.read())
    except FileNotFoundError:
        raise FrazilError(
            f"{folder} is no table of a Hadoop-style warehouse: it has no metadata/{_HINT}, and another catalog alone "
            "knows which metadata file is the newest.",
            fix=f"name that file; in the former catalog, this query of Spark shows it: {_NEWEST}",
        ) from None
    except ValueError:
        raise FrazilError(f"{hint} has no number.", fix="name the newest v….metadata.json of that folder") from None
    newest = _version_file(io, folder, version)
    for later in count(version + 1):
        file = _version_file(io, folder, later)
        if file is None:
            break
        newest = file
    if newest is None:
        raise FrazilError(
            f"{hint} names version {version}, which does not exist.",
            fix="name the newest v….metadata.json of that folder",
        )
    return newest


def _version_file(io: FileIO, folder: str, version: int) -> str | None:
    files = (f"{folder}/metadata/{form.format(version)}" for form in _VERSIONED)
    return next((file for file in files if io.new_input(file).exists()), None)
