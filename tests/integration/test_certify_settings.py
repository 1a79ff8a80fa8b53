"""`frazil certify --settings` beyond one machine: a cluster, a REST catalog, tables in S3, the state in PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.state_store.stream_folder import state_store
from jobs.config.settings.settings import load_settings
from tests.helpers.bucket_listing import keys_with
from tests.helpers.catalogs import rest_settings
from tests.helpers.database_server import PASSWORD, DatabaseServer
from tests.helpers.object_server import SECRET, ObjectServer
from tests.helpers.rest_server import RestServer
from tests.helpers.services import database_state
from tests.helpers.spark_cluster import CLUSTER_SECRET, SECRET_VARIABLE, spark_cluster
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import ROOT, SPARK_CONF

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]


def certified(home: Path, settings: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, the JSON report, and what was said on standard error."""
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), "certify"]
    done = subprocess.run(
        [*command, "--settings", str(settings), "--json", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), SECRET_VARIABLE: CLUSTER_SECRET},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def test_on_a_cluster_with_everything_in_services(
    broker: str, rest_catalog: RestServer, objects: ObjectServer, database: DatabaseServer, tmp_path: Path
) -> None:
    """A driver is killed, and an executor in the midst of a batch; nothing of it is left, what was there is."""
    home, file = tmp_path / "home", tmp_path / "cluster.yaml"
    home.mkdir()
    with spark_cluster(tmp_path / "cluster", "master", "worker1") as cluster:
        document = {
            "kafka": {"bootstrap_servers": broker},
            "catalog": rest_settings(rest_catalog.uri, objects),
            "spark": {"master": cluster.url, "driver_memory": "600m", "conf": cluster.conf | SPARK_CONF},
            "state": database_state(database).model_dump(mode="json", exclude_none=True),
        }
        file.write_text(yaml.safe_dump(document))
        settings = load_settings(file, home=home)
        state_store(settings).put("streams/payments/launch.json", b"theirs")
        cluster.wait_for_workers(1)
        steps = ("before_commit", "inside_tasks")
        options = ("--steps", ",".join(steps), "--runs", "1", "--seed", "17", "--records", "200")
        status, facts, said = certified(home, file, *options)
    assert status == 0, said
    assert facts["problems"] == []
    assert {row["step"]: (row["kills"], row["passed"]) for row in facts["steps"]} == dict.fromkeys(steps, (1, True))
    assert facts["recovery_seconds"]["measured"] == 2
    assert facts["settings"] | {"catalog_type": "rest", "tables_in": "s3", "state": "postgresql"} == facts["settings"]
    assert facts["settings"]["spark_master"] == cluster.url
    assert "workers and the master of the cluster, which are not the certificate's" in facts["not_tried"]
    assert not [each for each in facts["not_tried"] if each.startswith("executors")]
    (report,) = (home / ".frazil" / "certificates").glob("*.md")
    assert "(rest), tables in S3, state in PostgreSQL, tasks on a cluster." in report.read_text()
    shown = report.read_text() + json.dumps(facts) + said
    assert [secret for secret in (CLUSTER_SECRET, PASSWORD, SECRET) if secret in shown] == []
    nothing_is_left(f"frazil_certify_{facts['certificate']}", broker, file, home, objects, database)
    assert state_store(settings).get("streams/payments/launch.json") == b"theirs"


def nothing_is_left(
    name: str, broker: str, file: Path, home: Path, objects: ObjectServer, database: DatabaseServer
) -> None:
    """No topic, namespace, object, table or folder bears the certificate's name."""
    import psycopg

    admin = AdminClient({"bootstrap.servers": broker})
    wait_for(lambda: name not in admin.list_topics(timeout=60).topics, "the topic's end")
    with connect_catalog(load_settings(file, home=home)) as catalog:
        assert not catalog.namespace_exists(name)
    assert keys_with(objects, name) == []
    with psycopg.connect(database.url, password=PASSWORD) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE strpos(tablename, %s) > 0", (name,))
        assert found.fetchall() == []
    assert [path for path in home.rglob("*") if name in path.name] == []
