"""Who may import whom: each package only those below it, and kernels without Spark or Kafka."""

from __future__ import annotations

import pytest

from tests.helpers.import_order import (
    LAYERS,
    ORDER,
    ROOT,
    child_names,
    imported_by,
    imported_names,
    package_files,
    packages_with_sub_packages,
    wrong_imports,
)

# Tables are created and rows written without them; a kernel must start in milliseconds wherever it is called.
PURE_PACKAGES = ["jobs.records", "jobs.config"]
NOT_IN_PURE = ["pyspark", "py4j", "confluent_kafka", "pyiceberg.catalog"]
# Broker, registry, generator and certificate stand above the product: commands offer them, the product works without.
LOCAL_SERVICES = ["jobs.local", "bench"]
MOST_FILES, MOST_PACKAGES = 20, 13
# Packages that hold nothing but former names of programs, which running deployments start.
FORMER_NAMES = {"runtime", "stream", "group", "mirror", "install", "supervise", "spark"}


def test_the_finder_sees_every_form_of_import() -> None:
    text = "import a.b\nfrom c import d\nfrom . import e\nif x:\n    def f():\n        from g.h import i as j\n"
    assert set(imported_names(text)) == {"a.b", "c.d", ".", "g.h.i"}


@pytest.mark.parametrize("package", LAYERS)
def test_layers_import_only_what_is_below_them(package: str) -> None:
    above = LAYERS[LAYERS.index(package) + 1 :]
    files = package_files(package)
    assert files, f"{package} has no modules; is this the right folder?"
    assert [wrong for path in files for wrong in wrong_imports(path, [*above, "tests"])] == []


def test_every_package_with_sub_packages_has_an_order() -> None:
    assert set(ORDER) == set(packages_with_sub_packages())


@pytest.mark.parametrize("package", ORDER)
def test_packages_import_only_what_stands_before_them(package: str) -> None:
    order = ORDER[package]
    assert set(order) == child_names(package)
    wrong = [
        sentence
        for number, child in enumerate(order)
        for path in package_files(f"{package}.{child}")
        for sentence in wrong_imports(path, [f"{package}.{above}" for above in order[number + 1 :]])
    ]
    assert wrong == []


def test_folders_and_packages_stay_few() -> None:
    folders = {path.parent for package in LAYERS for path in package_files(package)}
    large = {
        str(folder.relative_to(ROOT)): count
        for folder in folders
        if (count := sum(path.name != "__init__.py" for path in folder.glob("*.py"))) > MOST_FILES
    }
    assert large == {}
    assert len(child_names("jobs") - FORMER_NAMES) <= MOST_PACKAGES


def test_only_commands_import_the_local_services() -> None:
    product = [path for package in LAYERS for path in package_files(package)]
    allowed = (ROOT / "jobs" / "local", ROOT / "orchestration" / "cli")
    others = [path for path in product if not path.is_relative_to(allowed[0]) and not path.is_relative_to(allowed[1])]
    assert [wrong for path in others for wrong in wrong_imports(path, LOCAL_SERVICES)] == []


def test_jobs_never_import_dagster() -> None:
    dagster = ["dagster", "dagster_pyspark", "dagster_graphql", "dagster_webserver", "dagster_shared"]
    assert [wrong for path in package_files("jobs") for wrong in wrong_imports(path, dagster)] == []


@pytest.mark.parametrize("package", PURE_PACKAGES)
def test_kernels_import_neither_spark_nor_kafka(package: str) -> None:
    assert [wrong for path in package_files(package) for wrong in wrong_imports(path, NOT_IN_PURE)] == []


def test_imports_are_absolute() -> None:
    files = [path for package in LAYERS for path in package_files(package)]
    assert [path for path in files if any(name.startswith(".") for name in imported_by(path))] == []
