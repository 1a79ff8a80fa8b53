"""What Spark's UI and event log show of the settings: nothing secret."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.clients.spark import session
from jobs.clients.spark.session import (
    REDACTED,
    Workload,
    prepare_environment,
    secret_conf,
    spark_conf,
)
from jobs.config.settings.settings import Settings, load_settings

CATALOG = "spark.sql.catalog.lake"


@pytest.mark.parametrize(
    "key",
    [
        f"{CATALOG}.jdbc.password",
        f"{CATALOG}.token",
        f"{CATALOG}.credential",
        f"{CATALOG}.oauth2.client-Secret",
        f"{CATALOG}.header.Authorization",
        f"{CATALOG}.header.X-Api-Key",
        f"{CATALOG}.s3.access-key-id",
        f"{CATALOG}.s3.secret-access-key",
        f"{CATALOG}.s3.session-token",
        f"{CATALOG}.client.access-key-id",
        f"{CATALOG}.adls.account-key",
        f"{CATALOG}.adls.auth.shared-key.account.key",
        f"{CATALOG}.adls.connection-string.store",
        f"{CATALOG}.adls.sas-token.store",
        f"{CATALOG}.gcs.oauth2.token",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.container.store",
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.key",
        "kafka.ssl.key.password",
        "ssl.private.key",
    ],
)
def test_secrets_are_redacted(key: str) -> None:
    assert re.search(REDACTED, key)


@pytest.mark.parametrize("value", ["https://me:hunter2@catalog/api", "jdbc:mysql://db/lake?user=me&password=hunter2"])
def test_addresses_that_hold_one_are(value: str) -> None:
    assert re.search(REDACTED, value)


@pytest.mark.parametrize(
    "text",
    [
        f"{CATALOG}.uri",
        f"{CATALOG}.type",
        f"{CATALOG}.warehouse",
        f"{CATALOG}.jdbc.user",
        f"{CATALOG}.s3.region",
        f"{CATALOG}.s3.path-style-access",
        "kafka.sasl.mechanism",
        "kafka.bootstrap.servers",
        "spark.driver.memory",
        "spark.sql.session.timeZone",
        "https://catalog:8181/api",
        "jdbc:postgresql://db:5433/lake?sslmode=require",
        "s3://kansas/lake",
        "kafka://a:9092/b@c",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert not re.search(REDACTED, text)


@pytest.mark.parametrize(
    ("work", "given", "collectors"),
    [
        ("batches", "", ["-XX:+UseSerialGC"]),
        ("sql", "", ["-XX:+UseParallelGC"]),
        ("batches", "-Xmn100m -XX:+UseG1GC", ["-XX:+UseG1GC"]),
        ("sql", "-XX:+UseZGC", ["-XX:+UseZGC"]),
    ],
)
def test_a_jvm_has_one_collector_and_the_settings_may_choose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Workload, given: str, collectors: list[str]
) -> None:
    """Java refuses to start with two."""
    monkeypatch.setattr(session, "resolve_jars", lambda name: [])
    monkeypatch.setattr(session, "class_path_jars", list)
    settings = Settings.embedded(tmp_path)
    spark = settings.spark.model_copy(update={"conf": {"spark.driver.extraJavaOptions": given}})
    conf = spark_conf(settings.model_copy(update={"spark": spark}), "test", work=work)
    found = re.findall(r"-XX:\+Use\w+GC", conf["spark.driver.extraJavaOptions"])
    assert found == collectors


@pytest.mark.parametrize(
    ("master", "given", "ours"),
    [
        ("local[2]", {}, True),
        ("local", {}, True),
        ("spark://one:7077", {}, True),
        ("spark://one:7077", {"spark.submit.pyFiles": "frazil.zip"}, False),
        ("local[*]", {"spark.master": "yarn", "spark.yarn.dist.pyFiles": "frazil.zip"}, False),
    ],
)
def test_workers_are_forks_of_frazil_s_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, given: dict[str, str], ours: bool
) -> None:
    """Not where frazil comes with the job, which Spark's daemon of an executor does not wait for."""
    monkeypatch.setattr(session, "resolve_jars", lambda name: [])
    monkeypatch.setattr(session, "class_path_jars", list)
    settings = Settings.embedded(tmp_path)
    spark = settings.spark.model_copy(update={"master": master, "conf": given})
    conf = spark_conf(settings.model_copy(update={"spark": spark}), "t")
    assert ("spark.python.daemon.module" in conf) is ours
    if ours:
        assert importlib.util.find_spec(conf["spark.python.daemon.module"]) is not None


@pytest.mark.parametrize(
    ("address", "given", "shown"),
    [
        ("127.0.0.1", {}, None),
        ("0.0.0.0", {}, None),
        ("10.1.2.3", {}, "10.1.2.3"),
        ("10.1.2.3", {"SPARK_PUBLIC_DNS": "lake.example.com"}, "lake.example.com"),
    ],
)
def test_the_ui_listens_where_the_settings_say_and_not_where_the_environment_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, given: dict[str, str], shown: str | None
) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SPARK_LOCAL_IP", "0.0.0.0")
    monkeypatch.setenv("SPARK_PUBLIC_DNS", "")
    monkeypatch.delenv("SPARK_PUBLIC_DNS")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings.embedded(tmp_path)
    spark = settings.spark.model_copy(update={"ui_address": address})
    prepare_environment(settings.model_copy(update={"spark": spark}))
    assert os.environ["SPARK_LOCAL_IP"] == address
    assert os.environ.get("SPARK_PUBLIC_DNS") == shown


def spark_settings(home: Path, **conf: str) -> Settings:
    home.mkdir(parents=True, exist_ok=True)
    document = {"spark": {"master": "spark://one:7077", "conf": {f"spark.{key}": conf[key] for key in conf}}}
    (home / "frazil.yaml").write_text(yaml.safe_dump(document))
    return load_settings(None, home=home)


def test_what_is_secret_and_read_at_the_start_is_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session takes secrets of SQL's and Hadoop's while it runs, and none of these."""
    monkeypatch.setattr(session, "resolve_jars", lambda name: [])
    monkeypatch.setattr(session, "class_path_jars", list)
    monkeypatch.setenv("SOME", "hunter2")
    settings = spark_settings(
        tmp_path,
        **{
            "authenticate.secret": "${env:SOME}",
            "sql.catalog.lake.token": "${env:SOME}",
            "hadoop.a.key": "${env:SOME}",
        },
    )
    assert "hunter2" not in str(spark_conf(settings, "t"))
    assert secret_conf(settings) == {"spark.authenticate.secret": "hunter2"}
    monkeypatch.delenv("SOME")
    with pytest.raises(FrazilError, match="SOME"):
        secret_conf(settings)


def test_executors_get_no_jars_for_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "resolve_jars", lambda name: [Path("/jars/a.jar")])
    monkeypatch.setattr(session, "class_path_jars", list)
    monkeypatch.setattr(session, "catalog_jars", lambda *_: [])
    cluster = spark_settings(tmp_path)
    assert "spark.jars" not in spark_conf(cluster, "t")
    assert spark_conf(cluster, "t", work="sql")["spark.jars"] == "/jars/a.jar"
    assert spark_conf(Settings.embedded(tmp_path), "t")["spark.jars"] == "/jars/a.jar"


def test_the_workers_python_is_this_one_or_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "x")
    prepare_environment(spark_settings(tmp_path, **{"pyspark.python": "./environment/bin/python"}))
    assert (os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"]) == (
        "./environment/bin/python",
        sys.executable,
    )
    prepare_environment(Settings.embedded(tmp_path))
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_the_checkpoints_of_queries_are_written_by_a_class_that_this_spark_has(tmp_path: Path) -> None:
    """By the one that Spark takes for local files, Hadoop starts processes to look at each of them."""
    name = spark_conf(load_settings(None, home=tmp_path), "test")["spark.sql.streaming.checkpointFileManagerClass"]
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None and spark.origin is not None
    (jar,) = (Path(spark.origin).parent / "jars").glob("spark-sql_2*.jar")
    with zipfile.ZipFile(jar) as archive:
        assert f"{name.replace('.', '/')}.class" in archive.namelist()
