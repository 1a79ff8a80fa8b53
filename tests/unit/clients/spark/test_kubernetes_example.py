"""The example for Kubernetes: its manifests name each other, and its settings are read by frazil."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.clients.spark.master import driver_out_of_reach, master_of
from jobs.clients.spark.session import spark_conf
from jobs.config.settings.settings import Settings, load_settings
from jobs.streaming.supervision.launchers.kubernetes import KubernetesPods
from orchestration.cli.stream_files.validate.service_checks import check_cluster
from tests.unit.streaming.supervision.launchers.orders import order

FOLDER = Path(__file__).resolve().parents[4] / "examples" / "kubernetes"


@pytest.fixture
def manifests() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / "frazil.yaml").read_text())}


@pytest.fixture
def settings(manifests: dict[str, Any], tmp_path: Path) -> Settings:
    (tmp_path / "frazil.yaml").write_text(manifests["ConfigMap"]["data"]["frazil.yaml"])
    return load_settings(None, home=tmp_path)


def test_its_settings_are_those_of_a_cluster(settings: Settings) -> None:
    assert master_of(settings).startswith("k8s://")
    assert driver_out_of_reach(settings) is None
    assert [each.sentence for each in check_cluster(settings) if each.verdict == "wrong"] == []
    conf = spark_conf(settings, "t")
    assert "spark.jars" not in conf
    assert conf["spark.python.daemon.module"] == "jobs.clients.spark.worker_daemon"
    assert conf["spark.driver.host"] == "frazil-0.frazil.lake.svc"


def test_its_manifests_name_each_other(manifests: dict[str, Any], settings: Settings) -> None:
    conf, workload = settings.spark.conf, manifests["StatefulSet"]
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    name, service = f"{workload['metadata']['name']}-0", workload["spec"]["serviceName"]
    assert conf["spark.kubernetes.driver.pod.name"] == name
    assert conf["spark.driver.host"] == f"{name}.{service}.{conf['spark.kubernetes.namespace']}.svc"
    assert manifests["Service"]["metadata"]["name"] == service
    assert manifests["Service"]["spec"]["selector"] == workload["spec"]["template"]["metadata"]["labels"]
    assert conf["spark.kubernetes.container.image"] == container["image"]
    assert {each["metadata"]["namespace"] for each in manifests.values()} == {conf["spark.kubernetes.namespace"]}
    account = manifests["ServiceAccount"]["metadata"]["name"]
    assert {pod["serviceAccountName"], manifests["RoleBinding"]["subjects"][0]["name"]} == {account}
    (rule,) = manifests["Role"]["rules"]
    assert "pods" in rule["resources"]
    assert {"create", "watch", "delete"} <= set(rule["verbs"])
    mounted = {each["name"] for each in container["volumeMounts"]}
    claims = {each["metadata"]["name"] for each in workload["spec"]["volumeClaimTemplates"]}
    assert mounted == claims | {each["name"] for each in pod["volumes"]}


def test_drivers_in_pods_have_what_their_settings_and_rights_say(tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((FOLDER / "drivers.yaml").read_text()))
    (text,) = [each["data"]["frazil.yaml"] for each in documents if each["kind"] == "ConfigMap"]
    (tmp_path / "frazil.yaml").write_text(text)
    settings = load_settings(None, home=tmp_path)
    accounts = {each["metadata"]["name"] for each in documents if each["kind"] == "ServiceAccount"}
    (role,) = [each for each in documents if each["kind"] == "Role"]
    assert set(role["rules"][0]["verbs"]) == {"get", "list", "create", "delete"}
    pod = KubernetesPods(settings).manifest(order(tmp_path, handle="lake/frazil-orders-3-abc123"))
    assert {each["metadata"]["namespace"] for each in documents} == {pod["metadata"]["namespace"]}
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["serviceAccountName"] in accounts
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in spec["volumes"]}
    assert container["workingDir"] == "/srv/lake"


def test_its_image_has_the_spark_that_frazil_has() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    version = re.search(r"^ARG SPARK_IMAGE=apache/spark:(\S+)$", text, re.MULTILINE)
    assert version is not None
    assert f"pyspark=={version[1]}" in (FOLDER.parents[1] / "requirements.lock").read_text()
