"""Registration of tables by their metadata files, with PyIceberg's tables laid out as Hadoop's catalog does."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.migration.registration import find_table_metadata, register_found

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
IO = PyArrowFileIO()


@pytest.fixture
def former(tmp_path: Path) -> Iterator[Table]:
    """A table of another catalog, with three metadata files."""
    with closing(sql_catalog(tmp_path / "former")) as catalog:
        catalog.create_namespace("pay")
        table = catalog.create_table("pay.ments", ROWS.schema)
        table.append(ROWS)
        table.append(ROWS)
        yield table


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with closing(sql_catalog(tmp_path / "lake")) as catalog:
        yield catalog


def sql_catalog(folder: Path) -> SqlCatalog:
    folder.mkdir()
    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())


def as_hadoop(table: Table, hint: object, *, packed: bool = False) -> str:
    """Lay the metadata files out as Hadoop's catalog does; gives the table's folder."""
    folder = Path(table.location().removeprefix("file://"))
    files = sorted((folder / "metadata").glob("*.metadata.json"))
    assert len(files) == 3
    for version, file in enumerate(files, 1):
        if packed:
            with gzip.open(folder / "metadata" / f"v{version}.gz.metadata.json", "wb") as target:
                target.write(file.read_bytes())
        else:
            shutil.copy(file, folder / "metadata" / f"v{version}.metadata.json")
    if hint is not None:
        (folder / "metadata" / "version-hint.text").write_text(str(hint))
    return folder.as_uri()


def names(folder: str, version: int, *, packed: bool = False) -> str:
    return f"{folder}/metadata/v{version}.{'gz.' if packed else ''}metadata.json"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("hint", [1, 2, 3, "3\n"])
def test_the_newest_version_is_found_also_behind_the_hint(former: Table, hint: object, packed: bool) -> None:
    folder = as_hadoop(former, hint, packed=packed)
    found = find_table_metadata(IO, folder + "/")
    assert found.metadata_location == names(folder, 3, packed=packed)
    assert (found.rows, found.metadata.table_uuid) == (6, former.metadata.table_uuid)
    assert found.updated.timestamp() == pytest.approx(former.metadata.last_updated_ms / 1000)


def test_a_metadata_file_is_taken_as_it_is(former: Table, catalog: SqlCatalog) -> None:
    folder = as_hadoop(former, 3)
    found = find_table_metadata(IO, names(folder, 2))
    assert found.rows == 3
    assert find_table_metadata(IO, names(folder, 1)).rows == 0
    table, new = register_found(catalog, "deep.er.ments", found)
    assert new
    assert table.scan().to_arrow().num_rows == 3


def test_a_registered_table_goes_on(former: Table, catalog: SqlCatalog) -> None:
    folder = as_hadoop(former, 3)
    before = {path: path.read_bytes() for path in Path(folder.removeprefix("file://")).rglob("*") if path.is_file()}
    table, new = register_found(catalog, "lake.payments", find_table_metadata(IO, folder))
    assert (new, table.location()) == (True, former.location())
    table.append(ROWS)
    assert catalog.load_table("lake.payments").scan().to_arrow().num_rows == 9
    assert {path: path.read_bytes() for path in before} == before, "no file of the former catalog changes"
    again, new = register_found(catalog, "lake.payments", find_table_metadata(IO, folder))
    assert (new, again.metadata_location) == (False, catalog.load_table("lake.payments").metadata_location)


def test_a_name_that_another_table_has_is_refused(former: Table, catalog: SqlCatalog) -> None:
    catalog.create_namespace("lake")
    catalog.create_table("lake.payments", ROWS.schema)
    with pytest.raises(FrazilError, match=r"lake\.payments is another table, at file://"):
        register_found(catalog, "lake.payments", find_table_metadata(IO, as_hadoop(former, 3)))


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (None, "is no table of a Hadoop-style warehouse"),
        (9, "names version 9, which does not exist"),
        ("newest", "has no number"),
        ("", "has no number"),
    ],
)
def test_a_folder_that_does_not_tell_stops(former: Table, hint: object, message: str) -> None:
    folder = as_hadoop(former, hint)
    with pytest.raises(FrazilError, match=message) as stopped:
        find_table_metadata(IO, folder)
    assert stopped.value.fix is not None


def test_what_is_not_a_metadata_file_stops(former: Table, tmp_path: Path) -> None:
    with pytest.raises(FrazilError, match="does not exist"):
        find_table_metadata(IO, (tmp_path / "v1.metadata.json").as_uri())
    (tmp_path / "v1.metadata.json").write_text('{"secret": "hunter2"}')
    with pytest.raises(FrazilError, match="is no metadata file") as stopped:
        find_table_metadata(IO, (tmp_path / "v1.metadata.json").as_uri())
    assert "hunter2" not in str(stopped.value)
