"""Tables of other writers that how-to pages begin with: `python -m tests.docs.tables sink` in a reader's deployment.

`sink` is the table `lake.payments` as Kafka Connect's Iceberg sink makes it of the first payments, without coordinates.
`job` is the same table as a batch job makes it.
`hadoop` is a folder `warehouse/payments` as Spark's Hadoop catalog leaves it.
"""

from __future__ import annotations

import json
import shutil
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import load_settings
from tests.docs.lake import PAYMENTS
from tests.helpers.sink_table import sink_table

_COLUMNS = Schema(
    ice.NestedField(1, "id", ice.StringType(), required=False),
    ice.NestedField(2, "amount", ice.DecimalType(38, 2), required=False),
    ice.NestedField(3, "status", ice.StringType(), required=False),
    ice.NestedField(4, "created_at", ice.TimestamptzType(), required=False),
)
# A sink commits more often than this; three commits show the same.
_LANDED = 3


def _rows() -> list[dict[str, Any]]:
    payments = [json.loads(str(payment.value)) for payment in PAYMENTS[:_LANDED]]
    return [
        row | {"amount": Decimal(str(row["amount"])), "created_at": datetime.fromisoformat(row["created_at"])}
        for row in payments
    ]


def make_sink_table(catalog: Catalog) -> None:
    """Create `lake.payments` with the first payments, one of which has another status than its record."""
    rows = _rows()
    rows[-1]["status"] = "UNKNOWN"
    sink_table(catalog, "lake.payments", rows, _COLUMNS)


def make_job_table(catalog: Catalog) -> None:
    """Create `lake.payments` with the first payments, in one append."""
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.payments", _COLUMNS)
    table.append(pa.Table.from_pylist(_rows(), schema=table.schema().as_arrow()))


def make_hadoop_table(folder: Path) -> None:
    """Create the table `warehouse/payments` of a folder; a file with the newest version stands for the catalog."""
    catalog = SqlCatalog("former", uri="sqlite://", warehouse=str(folder))
    table = sink_table(catalog, "warehouse.payments", _rows(), _COLUMNS)
    metadata = Path(table.location()) / "metadata"
    shutil.copy(table.metadata_location, metadata / "v1.metadata.json")
    (metadata / "version-hint.text").write_text("1")


if __name__ == "__main__":
    if sys.argv[1] == "hadoop":
        make_hadoop_table(Path.cwd())
    else:
        make = {"sink": make_sink_table, "job": make_job_table}[sys.argv[1]]
        make(connect_catalog(load_settings(None, home=Path.cwd())))
