"""The built wheel in its own environment: what it installs, and that commands, drivers and Dagster run from it."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
STREAM = """\
stream: orders
source: {topics: [orders]}
decode: {value: json, schema: "id string not null, amount decimal(12,2)"}
table: {name: shop.orders}
"""
PACKAGES = {"assets", "jobs", "orchestration", "resources"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the files of the checkout that are under version control or new."""
    source = tmp_path_factory.mktemp("source")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True, timeout=300)
    (built,) = target.glob("frazil-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and the packages that `pip install 'frazil[ui]'` brings, and no others.

    Those packages are the ones of the tests' environment.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    install = ["install", "--no-deps", "--no-index", "--quiet", str(wheel)]
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python")]
    subprocess.run([*pip, *install], env=variables(), check=True, timeout=300)
    purelib = Path(sysconfig.get_path("purelib"))
    (installed,) = importlib.metadata.distributions(path=[str(site)])
    for name in brought(installed.requires or [], {"ui"}):
        for entry in {file.parts[0] for file in importlib.metadata.distribution(name).files or ()}:
            if (purelib / entry).exists() and not (site / entry).exists():
                (site / entry).symlink_to(purelib / entry)
    return folder


def brought(requirements: list[str], extras: set[str]) -> set[str]:
    """The packages that pip installs for requirements, with extras of the package that has them."""
    found = dict[str, set[str]]()
    waiting = [(line, extras) for line in requirements]
    while waiting:
        line, chosen = waiting.pop()
        needed = Requirement(line)
        if needed.marker is not None and not any(needed.marker.evaluate({"extra": each}) for each in ("", *chosen)):
            continue
        if needed.name in found and needed.extras <= found[needed.name]:
            continue
        found[needed.name] = found.get(needed.name, set()) | needed.extras
        further = importlib.metadata.requires(needed.name) or []
        waiting += [(line, found[needed.name]) for line in further]
    return {*found}


def run(environment: Path, home: Path, *command: str) -> str:
    """Run a program of the environment in a folder that is not the checkout; returns what it printed."""
    done = _run(environment, home, command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_any(environment: Path, home: Path, *command: str) -> str:
    """As `run`, whatever the exit status is."""
    return _run(environment, home, command).stdout


def _run(environment: Path, home: Path, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(environment / "bin" / command[0]), *command[1:]],
        cwd=home,
        env=variables(),
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )


def variables() -> dict[str, str]:
    """The environment of this process, without what leads to the checkout or to a deployment."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FRAZIL", "DAGSTER"))}


def test_the_wheel_holds_the_packages_their_data_and_the_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == PACKAGES
    tracked = subprocess.run(["git", "ls-files", "-z", *sorted(PACKAGES)], cwd=ROOT, check=True, capture_output=True)
    expected = {name for name in tracked.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    assert expected <= set(names), sorted(expected - set(names))
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_command_works_in_an_environment_of_its_own(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "orders.yaml").write_text(STREAM)
    assert "version 0." in run(environment, tmp_path, "frazil", "--version")
    assert "orders" in run(environment, tmp_path, "frazil", "validate")


def test_every_command_is_there_without_extras_that_nobody_asked_for(environment: Path, tmp_path: Path) -> None:
    program = (
        "import click; from orchestration.cli.main import main; "
        "print(*(name for name in main.table if main.get_command(click.Context(main), name) is None))"
    )
    assert run(environment, tmp_path, "python", "-c", program).strip() == ""


def test_payments_land_through_dagster_from_it(environment: Path, tmp_path: Path) -> None:
    program = "import orchestration.definitions, jobs; print(jobs.__file__)"
    assert Path(run(environment, tmp_path, "python", "-c", program).strip()).is_relative_to(environment)
    # In an empty folder, as there is no checkout with a stream.
    printed = run(environment, tmp_path, "frazil", "demo", "--once", "--payments", "3000")
    assert "missing or doubled" in printed
    assert (tmp_path / ".frazil" / "demo" / "json" / "streams" / "payments.yaml").is_file()


def test_the_first_hour_works_from_it(environment: Path, tmp_path: Path) -> None:
    """`frazil init`, `up`, `generate` and `run`; and `frazil dev` serves the deployment until it is ended."""
    (tmp_path / "orders.jsonl").write_text('{"id": "a", "amount": 1.5}\n{"id": "b", "amount": 2.5}\n')
    home = tmp_path / "lake"
    run(environment, tmp_path, "frazil", "init", str(home), "--records", "orders.jsonl")
    assert "ok          packages: the packages satisfy" in run_any(environment, home, "frazil", "doctor")
    run(environment, home, "frazil", "up")
    try:
        run(environment, home, "frazil", "generate", "orders", "--from", str(tmp_path / "orders.jsonl"))
        run(environment, home, "frazil", "run", "orders")
        # Dagster starts in a folder that has nothing of a checkout; an interrupt ends it.
        with subprocess.Popen(
            [str(environment / "bin" / "frazil"), "dev"],
            cwd=home,
            env=variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as dev:
            assert dev.stdout is not None
            assert dev.stdout.readline().startswith("Dagster is at http://127.0.0.1:")
            dev.send_signal(signal.SIGINT)
            assert dev.wait(120) == 130
    finally:
        run_any(environment, home, "frazil", "stop", "--all")
        run(environment, home, "frazil", "down")
