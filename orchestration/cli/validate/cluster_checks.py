"""Checks of a cluster of Spark: its master, and what of the settings is of the driver's machine alone."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.errors import FrazilError
from jobs.spark.master import MasterUnavailableError, driver_out_of_reach, is_local, master_of, require_master
from jobs.spec.settings import Settings, secret_references
from jobs.write.locations import local_folder
from orchestration.cli.validate.findings import Finding

_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def check_cluster(settings: Settings) -> Iterator[Finding]:
    """What can be said of a master that is not `local`; nothing of one that is."""
    master = master_of(settings)
    if is_local(master):
        return
    try:
        require_master(settings)
        apart = driver_out_of_reach(settings)
    except MasterUnavailableError as problem:
        yield Finding(None, "spark", "unchecked", problem.message, problem.fix)
        apart = driver_out_of_reach(settings)
    except FrazilError as problem:
        yield Finding(None, "spark", "wrong", problem.message, problem.fix)
        return
    else:
        if master.startswith("spark://"):
            yield Finding(None, "spark", "ok", f"the master {master} answers")
        else:
            yield Finding(None, "spark", "unchecked", f"whether {master} answers was not asked")
    if apart is not None:
        fix = "set spark.driver.host and spark.driver.bindAddress in spark.conf of frazil.yaml"
        yield Finding(None, "spark", "wrong", f"spark.conf: {apart}", fix)
        if settings.kafka.is_embedded:
            sentence = f"the local broker listens on 127.0.0.1, where tasks on {master} do not find it"
            yield Finding(None, "spark", "wrong", sentence, "set kafka.bootstrap_servers in frazil.yaml")
    warehouse = settings.catalog.properties.get("warehouse")
    if isinstance(warehouse, str) and local_folder(warehouse) is not None:
        sentence = (
            f"the warehouse {warehouse} is a folder, and tasks run on {master}: each of its hosts must have that same "
            "folder mounted. A batch whose files the driver does not find is refused"
        )
        yield Finding(None, "spark", "unchecked", sentence, "put catalog.properties.warehouse into an object store")
    conf = settings.spark.conf
    # No driver knows the sources' secrets.
    secrets = any(True for _ in secret_references(settings, sources=False))
    if secrets and not any(conf.get(key) == "true" for key in _ENCRYPTED):
        sentence = f"what the driver sends to {master} holds secrets, and Spark is not told to encrypt it"
        yield Finding(None, "spark", "unchecked", sentence, "see Secrets in docs/cluster.md")
