"""`frazil validate`: what is not running, and what streams take from each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestration.cli.main import main
from orchestration.cli.stream_files.validate.command import live_findings
from resources.deployment import Deployment
from tests.unit.config.test_mirror import spec
from tests.unit.orchestration.deployments import deployment_in


@pytest.mark.parametrize(
    ("catalog", "verdict", "sentence"),
    [
        ("{properties: {type: sql, uri: 'sqlite:////no/such/catalog.db'}}", "wrong", "there is no folder /no/such for"),
        ("{properties: {type: rest, uri: 'http://127.0.0.1:1'}}", "unchecked", "so the tables were not checked"),
        ("{properties: {type: rest}}", "wrong", "properties.uri is missing"),
        ("{properties: {type: sql, uri: 'nosuch://db/lake'}}", "wrong", "its driver is not installed: "),
        ("{properties: {type: hive, uri: 'thrift://127.0.0.1:1'}}", "unchecked", "so the tables were not checked"),
        ("{properties: {py-catalog-impl: no.such.Catalog}}", "wrong", "Could not initialize Catalog: no.such.Catalog"),
    ],
)
def test_a_dead_broker_and_a_dead_catalog_are_told_once_each(
    tmp_path: Path, catalog: str, verdict: str, sentence: str
) -> None:
    deployment = Deployment.at(deployment_in(tmp_path, "payments", "refunds"))
    (tmp_path / "frazil.yaml").write_text(f"kafka: {{bootstrap_servers: '127.0.0.1:1'}}\ncatalog: {catalog}\n")
    kafka, about_catalog = live_findings(deployment.streams()[0], deployment.settings())
    assert (kafka.subject, kafka.verdict) == ("kafka", "unchecked")
    assert kafka.sentence.startswith("Kafka at 127.0.0.1:1: ")
    assert "kafka.bootstrap_servers in frazil.yaml" in (kafka.fix or "")
    assert (about_catalog.subject, about_catalog.verdict) == ("catalog", verdict)
    assert sentence in about_catalog.sentence
    assert "`catalog` in frazil.yaml" in (about_catalog.fix or "")
    assert all("\n" not in each.sentence for each in (kafka, about_catalog))


def test_a_misspelt_property_of_the_catalog_is_a_warning(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    (home / "frazil.yaml").write_text(
        "kafka: {bootstrap_servers: '127.0.0.1:1'}\n"
        "catalog: {properties: {type: rest, uri: 'http://127.0.0.1:1', s3.endpont: 'http://s'}}\n"
    )
    shown = CliRunner().invoke(main, ["--home", str(home), "validate"])
    assert shown.exit_code == 0, shown.output
    doubt = "catalog.properties.s3.endpont is no property of a catalog that frazil knows; did you mean 's3.endpoint'?"
    assert f"warning     settings: {doubt}\n" in shown.output
    assert f"Next: correct {home}/frazil.yaml, then run `frazil validate`" in shown.output


def test_a_key_without_effect_is_a_warning(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    (home / "frazil.yaml").write_text("kafka: {bootstrap_servers: '127.0.0.1:1'}\n")
    file = home / "streams" / "payments.yaml"
    text = file.read_text()
    file.write_text(text + "errors: {dead_letters: {table: orders.dead, topic: {name: dead, stops: true}}}\n")
    shown = CliRunner().invoke(main, ["--home", str(home), "validate"])
    assert "warning     payments: spec: errors.dead_letters.topic.stops has no effect" in shown.output, text


def test_streams_with_one_id_or_one_table_leave_the_others_alone(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments", "refunds", "orders", "letters")
    (home / "streams" / "again.yaml").write_text((home / "streams" / "payments.yaml").read_text())
    letters = home / "streams" / "letters.yaml"
    letters.write_text(letters.read_text().replace("orders.letters", "orders.refunds_dead"))
    specs, errors = Deployment.at(home).streams()
    assert [spec.stream for spec in specs] == ["orders"]
    said = "\n".join(problem for error in errors for problem in error.problems)
    assert "the stream 'payments' is claimed by" in said
    assert "the table 'orders.refunds_dead' is claimed by" in said
    shown = CliRunner().invoke(main, ["--home", str(home), "validate"])
    assert shown.exit_code == 1
    assert f"Next: correct {home}/streams/again.yaml, then run `frazil validate`" in shown.output
    assert "ok          orders: spec:" in shown.output


def test_a_mirror_compared_with_a_source_that_the_settings_lack(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    spec(tmp_path / "streams", mirrors=[{"table": "shop.customers", "source": {"connection": "shp"}}])
    (tmp_path / "frazil.yaml").write_text("sources: {shop: {url: 'postgresql://reader@db/shop'}}\n")
    shown = CliRunner().invoke(main, ["--home", str(tmp_path), "validate"])
    assert shown.exit_code == 1
    shown_text = shown.output.replace("\n", " ")
    assert "has no such source; did you mean 'shop'? " in shown_text
    assert "or correct mirrors: source of streams/" in shown_text
