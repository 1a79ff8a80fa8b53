"""Who may import whom: each room only those below it, and kernels without Spark or Kafka."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ["jobs", "resources", "assets", "orchestration"]
# The rooms of the house from the ground up (docs/architecture.md): a module imports from its own room and from those
# before it, wherever in the file it does so, `TYPE_CHECKING` included.
ROOMS = {
    "jobs": [
        "errors", "steps", "system", "schema", "formats", "expression", "transform", "spec", "redaction", "write",
        "commit", "state", "rest_catalog", "catalog", "translate", "registry", "kafka", "generate", "deadletter",
        "install", "spark", "local_broker", "local_registry", "pipeline", "task", "supervise", "stream", "group",
        "preview", "schema_contract", "replay",
        "publish", "verify", "time_travel", "operator", "maintain", "promote", "increment", "mirror", "contract",
        "certify", "runtime",
    ],
    "orchestration": ["formatting", "reconcile", "jobs", "cli", "sensors", "definitions"],
}  # fmt: skip
# Tables are created and rows written without them; a kernel must start in milliseconds wherever it is called.
PURE_PACKAGES = ["expression", "formats", "schema", "spec", "transform"]
NOT_IN_PURE = ["pyspark", "py4j", "confluent_kafka", "pyiceberg.catalog"]


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported_names(text: str) -> Iterator[str]:
    """Every imported name with its dots, wherever in the file it is imported, `TYPE_CHECKING` included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "." * node.level
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imported_by(path: Path) -> tuple[str, ...]:
    return tuple(imported_names(path.read_text()))


def wrong_imports(path: Path, forbidden: list[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for name in imported_by(path)
        if any(f"{name}.".startswith(f"{each}.") for each in forbidden)
    ]


def test_the_finder_sees_every_form_of_import() -> None:
    text = "import a.b\nfrom c import d\nfrom . import e\nif x:\n    def f():\n        from g.h import i as j\n"
    assert set(imported_names(text)) == {"a.b", "c.d", ".", "g.h.i"}


@pytest.mark.parametrize("package", LAYERS)
def test_layers_import_only_what_is_below_them(package: str) -> None:
    above = LAYERS[LAYERS.index(package) + 1 :]
    files = modules(package)
    assert files, f"{package} has no modules; is this the right folder?"
    assert [wrong for path in files for wrong in wrong_imports(path, [*above, "tests"])] == []


def room_files(house: str) -> dict[str, list[Path]]:
    """The modules of each room of a package: a folder is one, and so is a module beside the folders."""
    folder = ROOT / house.replace(".", "/")
    rooms = {path.stem: [path] for path in folder.glob("*.py") if path.stem != "__init__"}
    return rooms | {path.parent.name: sorted(path.parent.rglob("*.py")) for path in folder.glob("*/__init__.py")}


@pytest.mark.parametrize("house", ROOMS)
def test_rooms_import_only_what_is_below_them(house: str) -> None:
    order, files = ROOMS[house], room_files(house)
    assert set(order) == set(files)
    wrong = [
        each
        for number, room in enumerate(order)
        for path in files[room]
        for each in wrong_imports(path, [f"{house}.{above}" for above in order[number + 1 :]])
    ]
    assert wrong == []


def test_jobs_never_import_dagster() -> None:
    dagster = ["dagster", "dagster_pyspark", "dagster_graphql", "dagster_webserver", "dagster_shared"]
    assert [wrong for path in modules("jobs") for wrong in wrong_imports(path, dagster)] == []


@pytest.mark.parametrize("package", PURE_PACKAGES)
def test_kernels_import_neither_spark_nor_kafka(package: str) -> None:
    assert [wrong for path in modules(f"jobs/{package}") for wrong in wrong_imports(path, NOT_IN_PURE)] == []


def test_imports_are_absolute() -> None:
    relative = [
        path
        for package in LAYERS
        for path in modules(package)
        if any(name.startswith(".") for name in imported_by(path))
    ]
    assert relative == []
