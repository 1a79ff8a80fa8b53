"""Uuid columns in data files: without statistics and dictionaries, so that no reader leaves out rows by their order.

Parquet orders uuids by their unsigned bytes. Iceberg's readers for Spark (1.12) compare the statistics and the
dictionary of a row group as two signed numbers, and leave row groups out in which the value stands, also where a query
asks for one uuid; other engines compare the halves the other way round. Without either nothing is left out.
"""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import UUIDType

_SWITCHES = ("write.parquet.stats-enabled.column", "write.parquet.dict-encoding-enabled.column")


def uuid_properties(schema: Schema, given: Collection[str] = ()) -> dict[str, str]:
    """The table properties by which compaction in Spark writes uuid columns as frazil does.

    Args:
        schema: The table's.
        given: Properties that the table has: what they say of a column stays.
    """
    ids = [field_id for field_id, field in index_by_id(schema).items() if isinstance(field.field_type, UUIDType)]
    names = [schema.find_column_name(field_id) for field_id in ids]
    wanted = [f"{switch}.{name}" for name in names for switch in _SWITCHES]
    return {switch: "false" for switch in wanted if switch not in given}
