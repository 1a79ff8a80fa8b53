"""A stream with a contract whose table is written without a driver, and checks of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import yaml
from pyiceberg.table import Table

from jobs.config.stream.models import StreamSpec
from jobs.quality.contracts.check import Check
from jobs.quality.contracts.check_result import TableCheck
from jobs.quality.incremental_scan.validated_position import ValidatedPosition, validated_position
from tests.helpers.landed_table import NAME, SCHEMA, LandedTable

CONTRACT: dict[str, Any] = {
    "expectations": [
        {"expect_column_values_to_not_be_null": {"column": "amount"}, "name": "amount_is_set"},
        {
            "expect_column_values_to_be_between": {"column": "amount", "min_value": 0},
            "name": "amount_is_positive",
            "severity": "warning",
        },
    ],
}


def no_spark() -> NoReturn:
    raise AssertionError("Spark would have been started")


class CheckWorld:
    """The stream `orders`, its table, and its contract."""

    def __init__(self, home: Path, contract: dict[str, Any] | None = None, **more: Any) -> None:
        self.landed: LandedTable = LandedTable(home)
        document = {
            "stream": "orders",
            "source": {"topics": ["orders"]},
            "decode": {"value": "json", "schema": SCHEMA},
            "table": {"name": NAME},
            "contract": contract or CONTRACT,
            **more,
        }
        self.home: Path = home
        self.file: Path = home / "streams" / "orders.yaml"
        self.file.parent.mkdir()
        self.file.write_text(yaml.safe_dump(document, sort_keys=False))
        self.spec: StreamSpec = StreamSpec.model_validate(document)

    @property
    def table(self) -> Table:
        return self.landed.table

    def land(self, start: int, amounts: list[float | None], **values: Any) -> int:
        return self.landed.land((0, start, start + len(amounts)), amount=amounts, **values)

    def check(self, role: str = "rows", **options: Any) -> TableCheck:
        options = {"spark": no_spark, **options}
        check = Check(
            spec=options.pop("spec", self.spec),
            settings=self.landed.settings,
            catalog=self.landed.catalog,
            spark=options.pop("spark"),
            **options,
        )
        return check.run(next(target for target in self.spec.targets if target.role == role))

    @property
    def recorded(self) -> ValidatedPosition | None:
        return validated_position(self.table.metadata.properties, "orders")
