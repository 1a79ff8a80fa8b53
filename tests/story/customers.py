"""Customers of a database, and the events that Debezium would send of what is done to them.

The database's own rows are what the mirror has to be in the end.
"""

from __future__ import annotations

import json
from typing import Any

from tests.story.records import Record, Row

UNAVAILABLE = "__debezium_unavailable_value"
_FIRST_POSITION = 21_000_000
_POSITIONS_APART = 64


class CustomerDatabase:
    """A table of customers, and the records that a connector makes of its changes.

    Attributes:
        rows: The customers by id, as the database has them now.
        records: Records of changes that were not taken yet.
    """

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.records: list[Record] = []
        self._committed: str | None = None
        self._position: int = _FIRST_POSITION

    def take_records(self) -> list[Record]:
        """The records of all changes since the last call."""
        taken, self.records = self.records, []
        return taken

    def snapshot(self, *customers: int) -> None:
        """Customers that were there before the connector was: it reads them first, all at one position."""
        for customer in customers:
            self.rows[customer] = _new_customer(customer)
            self._send("r", customer, after=self.rows[customer])
        self._commit()

    def insert(self, customer: int) -> None:
        """A new customer."""
        self.rows[customer] = _new_customer(customer)
        self._send("c", customer, after=self.rows[customer])
        self._commit()

    def update(self, customer: int, **values: Any) -> None:
        """Some values of a customer change; the large `notes` are not sent again."""
        self.rows[customer] = self.rows[customer] | values
        self._send("u", customer, after=self.rows[customer] | {"notes": UNAVAILABLE})
        self._commit()

    def delete(self, customer: int) -> None:
        """A customer is deleted, and a tombstone follows."""
        del self.rows[customer]
        self._send("d", customer, before=_only_key(customer))
        self.records.append(Record(None, key=_key(customer)))
        self._commit()

    def change_key(self, former: int, customer: int) -> None:
        """A customer gets another id: a deletion and a creation at one position, in which `notes` are not sent."""
        row = self.rows.pop(former) | {"id": customer}
        self.rows[customer] = row
        self._send("d", former, before=_only_key(former), header=("__debezium.newkey", _key(customer)))
        self.records.append(Record(None, key=_key(former)))
        sent = row | {"notes": UNAVAILABLE}
        self._send("c", customer, after=sent, header=("__debezium.oldkey", _key(former)))
        self._commit()

    def _send(
        self,
        op: str,
        customer: int,
        *,
        before: Row | None = None,
        after: Row | None = None,
        header: tuple[str, bytes] | None = None,
    ) -> None:
        """Make the record of a change at the present position of the log."""
        milliseconds = 1_793_600_000_000 + self._position
        event = {
            "before": before,
            "after": after,
            "op": op,
            "ts_ms": milliseconds,
            "source": {
                "connector": "postgresql",
                "name": "story",
                "db": "shop",
                "snapshot": "true" if op == "r" else "false",
                "sequence": json.dumps([self._committed, str(self._position)]),
                "lsn": self._position,
                "ts_ms": milliseconds,
            },
        }
        # Every event is a row of the changelog; the story looks at the mirror's rows.
        self.records.append(
            Record(
                json.dumps(event).encode(),
                row={},
                key=_key(customer),
                headers=() if header is None else (header,),
            )
        )

    def _commit(self) -> None:
        """End a transaction: the next change stands behind its commit."""
        self._committed = str(self._position)
        self._position += _POSITIONS_APART


def _new_customer(customer: int) -> Row:
    return {
        "id": customer,
        "name": f"customer {customer}",
        "email": None if customer % 5 == 0 else f"{customer}@example.com",
        "credit": customer * 1_000_000_007,
        "notes": f"notes of {customer}",
    }


def _only_key(customer: int) -> Row:
    return {"id": customer, "name": "", "email": None, "credit": None, "notes": None}


def _key(customer: int) -> bytes:
    return json.dumps({"id": customer}).encode()
