"""Import of Kafka Connect's connectors, answers for keys and seconds: `python -m bench.import_connectors`.

Counts what the importer answers for every key of the configurations that its tests have: the worked examples, and fifty
others. Then `frazil import` runs in a fresh process on a folder of a hundred Iceberg sinks, into an empty folder, and
once more, when nothing has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobs.config.documents.connect_keys import KeyClass
from jobs.migration.connectors.reading import read_sources
from jobs.migration.conversion.conversion import convert

ROOT = Path(__file__).parents[1]
FOLDERS: Mapping[str, Path] = {
    "examples": ROOT / "tests/unit/migration/examples",
    "corpus": ROOT / "tests/unit/migration/corpus",
}
_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(slots=True)
class Answers:
    """Answers for a folder of configurations.

    Attributes:
        files: Number of configurations.
        headings: Keys of connectors and workers by heading.
        outcomes: Connectors by outcome.
        families: Connectors by family; `none` without a converter.
        secrets: Secrets that became references.
    """

    files: int = 0
    headings: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)
    secrets: int = 0


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connectors", type=int, default=100, help="how many are imported on the clock")
    parser.add_argument("--runs", type=int, default=3, help="of which the median counts")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()

    counted = {name: count_answers(folder) for name, folder in FOLDERS.items() if folder.is_dir()}
    seconds = import_seconds(options.connectors, options.runs)
    if options.json:
        facts = {name: _facts(answers) for name, answers in counted.items()}
        print(json.dumps({"answers": facts, "connectors": options.connectors, "seconds": seconds}, indent=2))
        return
    _print_answers(counted)
    print(f"\n{options.connectors} connectors: median of {options.runs} runs, a fresh process each")
    for name, (wall, cpu) in seconds.items():
        print(f"  {name:<14} {wall:6.1f} s, {cpu:5.1f} CPU-s")


def count_answers(folder: Path) -> Answers:
    """Import every configuration of a folder by itself, and count what became of its keys."""
    answers = Answers()
    for path in sorted(folder.iterdir()):
        if ".expect." in path.name or path.suffix not in (".json", ".yaml", ".properties"):
            continue
        answers.files += 1
        conversion = convert(read_sources([str(path)]))
        for one in conversion.connectors:
            answers.outcomes[one.outcome] += 1
            answers.families[one.family or "none"] += 1
        keys = [answer for part in (*conversion.connectors, *conversion.workers) for answer in part.answers]
        answers.headings.update(str(answer.heading) for answer in keys)
        answers.secrets += len(conversion.secrets)
    return answers


def import_seconds(count: int, runs: int) -> dict[str, tuple[float, float]]:
    """Wall and CPU seconds of `frazil import` on a folder of connectors: at first, and when nothing has changed.

    Args:
        count: Number of connectors, each in a file of its own.
        runs: Number of runs of each.
    """
    taken: dict[str, list[tuple[float, float]]] = {"first": [], "nothing new": []}
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as name:
        sources = Path(name) / "connectors"
        sources.mkdir()
        for number, connector in enumerate(_connectors(count)):
            (sources / f"{number:03}.json").write_text(json.dumps(connector), encoding="utf-8")
        for run in range(runs):
            into = Path(name) / f"deployment-{run}"
            for times in taken.values():
                times.append(_timed_import(sources, into))
            streams = len(list((into / "streams").glob("*.yaml")))
            if streams != count:
                raise SystemExit(f"{streams} streams were written for {count} connectors")
    return {
        name: (statistics.median(wall for wall, _ in times), statistics.median(cpu for _, cpu in times))
        for name, times in taken.items()
    }


def _timed_import(sources: Path, into: Path) -> tuple[float, float]:
    command = [sys.executable, "-m", "orchestration.cli.main", "import", str(sources), "--into", str(into), "--yes"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=sources.parent, env=environment)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _connectors(count: int) -> Iterator[dict[str, object]]:
    """Sinks as teams have them: static tables, routes, transforms and formats by turns, in one catalog."""
    for number in range(count):
        topic = f"team{number % 10}.events{number}"
        config = {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": str(1 + number % 4),
            "topics": topic,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": _CONVERTER,
            "value.converter.schemas.enable": "false",
            "iceberg.tables": topic,
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.evolve-schema-enabled": "true",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": "https://catalog.example/api",
            "iceberg.catalog.warehouse": "lake",
            "iceberg.catalog.credential": "team:bench",
            "iceberg.control.commit.interval-ms": "60000",
            "consumer.override.auto.offset.reset": "earliest",
        }
        match number % 4:
            case 1:
                config |= {
                    "iceberg.tables": f"{topic}_in,{topic}_out",
                    "iceberg.tables.route-field": "direction",
                    f"iceberg.table.{topic}_in.route-regex": "IN",
                    f"iceberg.table.{topic}_out.route-regex": "OUT",
                }
            case 2:
                config |= {
                    "transforms": "flat,drop",
                    "transforms.flat.type": "org.apache.kafka.connect.transforms.Flatten$Value",
                    "transforms.drop.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
                    "transforms.drop.exclude": "note",
                }
            case 3:
                config |= {
                    "value.converter": "io.confluent.connect.avro.AvroConverter",
                    "value.converter.schema.registry.url": "https://registry.example",
                    "iceberg.tables.default-partition-by": "day(at)",
                }
            case _:
                pass
        yield {"name": f"sink-{number}", "config": config}


def _print_answers(counted: Mapping[str, Answers]) -> None:
    everything = Answers()
    for answers in counted.values():
        everything.files += answers.files
        everything.secrets += answers.secrets
        for total, part in (
            (everything.headings, answers.headings),
            (everything.outcomes, answers.outcomes),
            (everything.families, answers.families),
        ):
            total.update(part)
    columns = {**counted, "all": everything} if len(counted) > 1 else dict(counted)
    print(f"{'':<24}" + "".join(f"{name:>18}" for name in columns))
    rows: list[tuple[str, list[str]]] = [("configurations", [str(one.files) for one in columns.values()])]
    for heading in map(str, KeyClass):
        shares = [
            f"{one.headings[heading]} ({one.headings[heading] / one.headings.total():.1%})" for one in columns.values()
        ]
        rows.append((f"keys: {heading}", shares))
    rows.append(("keys", [str(one.headings.total()) for one in columns.values()]))
    rows += [
        (f"connectors: {name}", [str(one.outcomes[name]) for one in columns.values()]) for name in everything.outcomes
    ]
    rows += [(name, [str(one.families[name]) for one in columns.values()]) for name in sorted(everything.families)]
    rows.append(("secrets", [str(one.secrets) for one in columns.values()]))
    for name, values in rows:
        print(f"{name:<24}" + "".join(f"{value:>18}" for value in values))


def _facts(answers: Answers) -> dict[str, object]:
    return {
        "files": answers.files,
        "keys": {str(heading): answers.headings[str(heading)] for heading in KeyClass},
        "outcomes": dict(answers.outcomes),
        "families": dict(answers.families),
        "secrets": answers.secrets,
    }


if __name__ == "__main__":
    main()
