from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from jobs.clients.registry.known_schemas import KnownSchemas, read_known_schemas
from jobs.clients.state_store.lease import Lease
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import load_settings
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from orchestration.cli.main import main
from tests.helpers.registry_server import RegistryServer, serving
from tests.unit.orchestration.deployments import deployment_in


def frazil(home: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["--home", str(home), *arguments])
    assert "Traceback" not in result.output
    return result


def test_the_status_names_what_streams_know_and_whether_it_answers(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    result = frazil(home, "registry", "status")
    assert result.exit_code == 1
    assert "frazil.yaml names no schema registry." in result.stderr
    with serving(RegistryServer()) as server:
        (home / "frazil.yaml").write_text(f"registry: {{url: '{server.url}', timeout: 1s}}\n")
        settings = load_settings(None, home=home)
        assert settings.registry is not None
        store = stream_folder(settings, "payments").store
        schema = RegistrySchema("AVRO", WriterSchema('"int"'))
        KnownSchemas(store, settings.registry.identity, "payments").add({SchemaId(5): schema})
        result = frazil(home, "registry", "status")
        assert result.exit_code == 0, result.output
        assert result.stdout == (
            f"payments: 1 schemas of {settings.registry.identity}: id 5\nThe schema registry at {server.url} answers.\n"
        )
        facts = json.loads(frazil(home, "registry", "status", "--json").stdout)
        known = {"stream": "payments", "registry": settings.registry.identity, "schemas": 1, "newest": ["id 5"]}
        assert facts == {"registry": f"The schema registry at {server.url}", "streams": [known]}
    result = frazil(home, "registry", "status", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    result = frazil(home, "registry", "status")
    assert result.exit_code == 1
    assert "payments: 1 schemas" in result.stdout
    assert "cannot be reached" in result.stderr


def test_a_stream_forgets_while_nobody_runs_it(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    settings = load_settings(None, home=home)
    store = stream_folder(settings, "payments").store
    KnownSchemas(store, "http://a:80", "payments").add({SchemaId(5): RegistrySchema("AVRO", WriterSchema('"int"'))})
    lease = Lease(store, "payments", 30.0)
    lease.acquire(0)
    result = frazil(home, "registry", "forget", "payments")
    assert result.exit_code == 1
    assert "stream payments is run by " in result.stderr
    assert len(read_known_schemas(store)) == 1
    lease.release()
    shown = frazil(home, "registry", "forget", "payments", "--dry-run")
    assert (shown.exit_code, len(read_known_schemas(store))) == (0, 1)
    assert shown.stdout.startswith("payments would forget 1 schemas. Nothing was changed.\n")
    refused = frazil(home, "registry", "forget", "payments")
    assert (refused.exit_code, len(read_known_schemas(store))) == (2, 1)
    assert f"Next: frazil --home {home} registry forget payments --yes\n" in refused.stderr
    result = frazil(home, "registry", "forget", "payments", "--yes", "--json")
    assert json.loads(result.stdout) == {"stream": "payments", "schemas": 1, "done": True}
    assert "payments knows 1 schemas of http://a:80" in result.stderr
    assert read_known_schemas(store) == {}
    result = frazil(home, "registry", "forget", "payments", "--yes")
    assert result.exit_code == 0, result.output
    assert "payments has forgotten 0 schemas" in result.stdout
    assert read_known_schemas(store) == {}
    assert "There is no stream 'paymnts'" in frazil(home, "registry", "forget", "paymnts").stderr
