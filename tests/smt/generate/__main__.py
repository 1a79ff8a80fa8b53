"""Generator of the tables of Kafka Connect's transforms: `python -m tests.smt.generate [FILE ...]`.

Every case of `tests/smt/cases` goes through a real worker of Kafka Connect 4.3 with a real broker: its records are
produced, a sink connector with the case's chain consumes them with Connect's JSON converter, and what reaches the
sink, what is dropped and what ends in the dead letter queue is written to `tests/smt/tables`. The artifacts come from
Maven Central, checked against `jobs/clients/install/artifacts.sha256` (set `transforms`). It needs a JDK of Java 17,
takes a few minutes, and is not part of the tests: those read the tables.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from jobs.local.broker.broker import LocalBroker
from tests.smt.case import TABLES, Case, cases
from tests.smt.generate.worker import SmtWorker

_AT_ONCE = 24


def main() -> None:
    """Make the tables of the named case files, or of all."""
    wanted = set(sys.argv[1:])
    chosen: dict[str, list[Case]] = {}
    for each in cases():
        if not wanted or each.file in wanted:
            chosen.setdefault(each.file, []).append(each)
    if missing := wanted - chosen.keys():
        raise SystemExit(f"there is no case file {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory(prefix="frazil-smt-") as folder:
        broker = LocalBroker(
            Path(folder) / "broker",
            properties={"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"},
        )
        home = Path(folder) / "connect"
        home.mkdir()
        with broker:
            address = broker.status().address
            assert address is not None
            with SmtWorker(home, address) as worker:
                for file, of in chosen.items():
                    _write(file, of, worker)


def _write(file: str, of: list[Case], worker: SmtWorker) -> None:
    table: dict[str, object] = {}
    for start in range(0, len(of), _AT_ONCE):
        part = of[start : start + _AT_ONCE]
        table |= {case.name: found for case, found in zip(part, worker.run(part), strict=True)}
    assert len(table) == len(of), f"two cases of {file} have one name"
    (TABLES / f"{file}.json").write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    print(f"{file}: {len(of)} cases", flush=True)


if __name__ == "__main__":
    main()
