"""Import order of packages, and of what is in a package: each imports only what stands before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ["jobs", "resources", "assets", "orchestration"]
ORDER: dict[str, list[str]] = {
    "jobs": [
        "base",
        "records",
        "config",
        "tables",
        "clients",
        "install",
        "spark",
        "streaming",
        "stream",
        "dead_letters",
        "quality",
        "proof",
        "maintenance",
        "mirrors",
        "migration",
        "local",
        "group",
        "mirror",
        "runtime",
        "supervise",
    ],
    "orchestration": [
        "formatting",
        "reconcile",
        "deployment_plan",
        "jobs",
        "alerts",
        "connect_api",
        "cli",
        "sensors",
        "definitions",
    ],
    "jobs.base": ["errors", "failpoints", "spark_names", "system"],
    "jobs.clients": ["state_store", "catalog", "registry", "kafka", "install", "spark"],
    "jobs.config": ["documents", "values", "services", "contract", "steps", "stream", "settings", "redaction"],
    "jobs.dead_letters": ["replay", "connect_queue", "expiry"],
    "jobs.local": ["generate", "broker", "registry", "certify"],
    "jobs.maintenance": ["measure", "plan", "run", "backfill"],
    "jobs.migration": [
        "connect_worker",
        "connectors",
        "conversion",
        "report",
        "files",
        "comparison",
        "offset_backfill",
        "registration",
        "sink_protocol",
        "takeover",
    ],
    "jobs.mirrors": ["model", "fold", "merge", "run", "check", "main"],
    "jobs.proof": ["audit", "lookup"],
    "jobs.quality": ["publishing", "incremental_scan", "contracts", "schema_checks"],
    "jobs.records": ["schema", "formats", "expressions", "transforms"],
    "jobs.streaming": [
        "pipeline",
        "task",
        "supervision",
        "dead_letter_publisher",
        "driver",
        "groups",
        "operator",
        "preview",
        "cases",
    ],
    "jobs.supervise": ["launchers", "keeper_process", "kept_stream", "keeper_restart"],
    "jobs.tables": ["write", "commit", "dead_letter_table", "ledger"],
    "orchestration.cli": [
        "common",
        "tables",
        "dead_letters",
        "main",
        "stream_files",
        "streams",
        "connect",
        "local",
    ],
    "orchestration.jobs": [
        "mirrors",
        "audit",
        "discard_report",
        "runs",
        "contract",
        "control",
        "halted",
        "history",
        "actions",
        "dead_letter_expiry",
        "discard",
        "maintain",
        "publish",
        "release",
        "replay",
        "reset",
    ],
    "jobs.migration.conversion": [
        "references",
        "account",
        "draft",
        "kafka_connection",
        "source",
        "decoding",
        "transforms",
        "error_handling",
        "debezium_topics",
        "change_form",
        "topic_tables",
        "file_layout",
        "file_sinks",
        "jdbc_sink",
        "debezium_source",
        "iceberg",
        "converters",
        "conversion",
    ],
    "jobs.mirrors.merge": ["merge_source", "mirror_table", "merge", "small_merge"],
    "jobs.records.formats": [
        "conform_place",
        "connect_types",
        "interface",
        "json_texts",
        "columns",
        "avro",
        "conform_values",
        "conform_plan",
        "json",
        "own",
        "primitive",
        "protobuf",
        "record_columns",
        "registry_wire",
        "rescued_fields",
        "conform",
        "connect_json",
        "json_schema",
        "registry_decoder",
        "known_formats",
    ],
    "jobs.records.transforms": [
        "columns",
        "frame",
        "masks",
        "path",
        "row_json",
        "transform",
        "conditional",
        "nested",
        "cast",
        "mask",
        "own_code",
        "parse_json",
        "record_parts",
        "select",
        "set_columns",
        "sql",
        "timestamps",
        "smt",
        "change_events",
    ],
    "jobs.streaming.driver": ["context", "tables", "watch", "opening", "batch", "process", "main"],
    "jobs.streaming.supervision": ["documents", "launchers", "processes", "state", "control", "keeper"],
    "jobs.tables.commit": ["stamp", "schema", "history", "recovery", "protocol"],
    "orchestration.cli.connect": [
        "worker_options",
        "compare",
        "connect_api",
        "import_connectors",
        "offsets",
        "takeover",
    ],
    "orchestration.cli.local": [
        "completion",
        "generate",
        "broker",
        "certify",
        "dev",
        "open_page",
        "doctor",
        "demo",
        "init_questions",
        "init",
    ],
    "orchestration.cli.stream_files": ["preview", "stream_cases", "validate", "schema"],
    "orchestration.cli.streams": [
        "registry",
        "state",
        "logs",
        "control",
        "plan",
        "run",
        "accept",
        "manifest",
        "reset_offsets",
        "backfill",
        "status",
    ],
    "orchestration.cli.tables": [
        "contract",
        "at",
        "query",
        "audit",
        "check_history",
        "check",
        "maintain",
        "mirror",
        "publish",
        "register",
        "shell",
        "tag",
    ],
}


def module_name(path: Path) -> str:
    """Dotted name of a module or package, from its path."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_files(package: str) -> list[Path]:
    """Python files of a package and its sub-packages, or the file of a module."""
    folder = ROOT / package.replace(".", "/")
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def child_names(package: str) -> set[str]:
    """Names of the modules and sub-packages that stand directly in a package."""
    folder = ROOT / package.replace(".", "/")
    modules = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    return modules | {path.parent.name for path in folder.glob("*/__init__.py")}


def packages_with_sub_packages() -> list[str]:
    """Packages of the product that hold other packages; their children have an order."""
    found = {module_name(path.parent.parent) for top in LAYERS for path in (ROOT / top).glob("*/**/__init__.py")}
    return sorted(found)


def imported_names(text: str) -> Iterator[str]:
    """Dotted names of all imports in a file, including those in functions and under `TYPE_CHECKING`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "." * node.level
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imported_by(path: Path) -> tuple[str, ...]:
    """Names that a file imports, see `imported_names`."""
    return tuple(imported_names(path.read_text()))


def wrong_imports(path: Path, forbidden: list[str]) -> list[str]:
    """Imports of a file that are, or are within, one of the forbidden packages; one sentence each."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for name in imported_by(path)
        if any(f"{name}.".startswith(f"{package}.") for package in forbidden)
    ]
