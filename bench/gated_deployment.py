"""The two deployments that `bench.gated` compares: the demo's stream without a gate, and with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml

from bench.drain import SPEC

STREAM, TABLE = "payments", "orders.payments"
Side = Literal["direct", "gated"]
SIDES: tuple[Side, Side] = ("direct", "gated")


def deployment(home: Path, address: str, side: Side, topic: str, trigger: Any, batch: int = 100_000) -> None:
    """Make a deployment with the demo's stream, with a gate of three expectations or without one.

    Args:
        home: A new folder.
        address: Address of the broker.
        side: Side of the comparison that the deployment belongs to.
        topic: Topic that the stream reads.
        trigger: Trigger of the stream's file.
        batch: The most records of one.
    """
    (home / "streams").mkdir(parents=True)
    (home / "frazil.yaml").write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": address}}))
    spec = yaml.safe_load(SPEC.read_text()) | {"trigger": trigger}
    spec["source"] |= {"topics": [topic], "max_records_per_batch": batch}
    if side == "gated":
        expectations = [
            {"expect_column_values_to_not_be_null": {"column": "id"}},
            {"expect_column_values_to_not_be_null": {"column": "payer"}},
            {"expect_column_values_to_be_between": {"column": "amount", "min_value": 0}},
        ]
        spec |= {"contract": {"expectations": expectations}, "publish": {"gate": "contract", "every": "1m"}}
    (home / "streams" / f"{STREAM}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
