"""Which workspaces share a code server, by which name, and the workspace that its clients are given."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest
import yaml
from dagster._core.workspace.load import location_origins_from_yaml_paths

from orchestration.cli.local.dev.code_server import MODULE, CodeServerPlace, shared_location


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("load_from: [{python_module: orchestration.definitions}]", MODULE),
        ("load_from: [{python_module: {module_name: orchestration.definitions}}]", MODULE),
        ("load_from: [{python_module: {module_name: orchestration.definitions, location_name: frazil}}]", "frazil"),
        # Whatever else a workspace has is the user's, and is loaded as the user says.
        ("load_from: [{python_module: {module_name: orchestration.definitions, executable_path: /p}}]", None),
        ("load_from: [{python_module: {module_name: orchestration.definitions, location_name: 1}}]", None),
        ("load_from: [{python_module: another}]", None),
        ("load_from: [{python_module: orchestration.definitions}, {python_file: mine.py}]", None),
        ("load_from: [{grpc_server: {port: 4000, location_name: frazil}}]", None),
        ("load_from: []", None),
        ("load_from: [", None),
        ("", None),
    ],
)
def test_only_frazil_s_own_definitions_are_shared(tmp_path: Path, text: str, name: str | None) -> None:
    file = tmp_path / "workspace.yaml"
    file.write_text(text)
    assert shared_location(file) == name


def test_a_deployment_without_a_workspace_keeps_the_name_of_the_module(tmp_path: Path) -> None:
    assert shared_location(None) == MODULE
    assert shared_location(tmp_path / "none") is None


def test_dagster_reads_the_workspace_of_the_shared_server() -> None:
    place = CodeServerPlace("frazil")
    try:
        (origin,) = location_origins_from_yaml_paths([str(place.workspace)])
        assert (origin.location_name, getattr(origin, "socket", None)) == ("frazil", str(place.socket))
        assert yaml.safe_load(place.workspace.read_text()).keys() == {"load_from"}
        assert stat.S_IMODE(place.workspace.parent.stat().st_mode) == 0o700
        assert place.command()[:3] == ["dagster", "code-server", "start"]
        assert not place.answers()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(place.socket))
            server.listen()
            assert place.answers()
        assert not place.answers()
    finally:
        place.remove()
    assert not place.workspace.parent.exists()
