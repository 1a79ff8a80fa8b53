"""Generation of a configuration: a hash that changes with everything for which a driver has to be restarted."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from jobs.config.documents.secrets import WrittenSecret
from jobs.config.services.trigger import Every, Restart
from jobs.config.settings.groups import group_of
from jobs.config.settings.settings import UI_ADDRESS, Settings
from jobs.config.stream.changes import hashed_changes
from jobs.config.stream.error_handling import DEFAULT_STOP, Errors, Retry
from jobs.config.stream.evolve import Evolve
from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import NO_MASK
from jobs.config.values.targets import MAIN_BRANCH

# Keys that only describe a stream, or concern how it and its tables are watched and maintained: no restart is needed.
# `restart` is not among them, because the watchdog restarts the driver as it was launched.
_WATCHING = {"description", "owner", "freshness", "slo", "maintenance", "publish", "contract"}


def generation(spec: StreamSpec, settings: Settings) -> str:
    """Return a hash, twelve hexadecimal digits, of everything for which a driver has to be restarted.

    `StreamSpec.config_hash` changes only with the rows; this hash changes also with trigger, bounds and settings. The
    address of the local broker is left out: a driver looks it up whenever it connects.
    """
    meaning = {
        "rows": spec.config_hash,
        "stream": _of_stream(spec, settings),
        "settings": _of_settings(settings, with_registry=spec.decode.needs_registry),
    }
    return _digest(meaning)


def settings_of_generation(spec: StreamSpec, settings: Settings) -> dict[str, Any]:
    """The settings that count in a stream's generation, with the names of `frazil.yaml` and secrets as references."""
    configured = _of_settings(settings, with_registry=spec.decode.needs_registry, reveal=False)
    if (store := configured.pop("state_store", None)) is not None:
        configured["state"] = store
    return configured


def group_generation(settings: Settings, version: str) -> str:
    """Return a hash, twelve hexadecimal digits, of everything for which a group's driver has to be restarted."""
    return _digest({"settings": _of_settings(settings, with_registry=True), "version": version})


def _of_settings(settings: Settings, *, with_registry: bool, reveal: bool = True) -> dict[str, Any]:
    """The settings that a driver has to be started anew for, as JSON.

    Args:
        settings: The settings.
        with_registry: Whether the schema registry counts.
        reveal: Whether secrets that stand in URLs of `frazil.yaml` are written out, as they are for a hash.
    """
    excluded = {"home", "ledger", "maintenance", "groups", "drivers", "sources", "alerts"}
    configured: dict[str, Any] = settings.model_dump(mode="json", exclude=excluded)
    if reveal:
        _as_written(configured, settings)
    if settings.drivers.remote:
        # The deployment's folder may have another path there, but paths within it are the same configuration.
        home = re.compile(rf"(?<![^/:=,;]){re.escape(str(settings.home))}(?=/)")
        configured = _from_home(configured, home) | {"drivers": settings.drivers.meaning()}
    if settings.kafka.is_embedded:
        configured["kafka"].pop("bootstrap_servers")
    if not settings.kafka.options:
        configured["kafka"].pop("options")
    if settings.kafka.admin is None:
        configured["kafka"].pop("admin")
    if settings.spark.ui_address == UI_ADDRESS:
        # A key of a later version counts only if it is used, so that an upgrade restarts no driver. So below.
        configured["spark"].pop("ui_address")
    if settings.metrics.folder is None:
        configured.pop("metrics")
    if not with_registry:
        configured.pop("registry")
    if settings.state_store is None:
        configured.pop("state_store")
    else:
        # Folders of one machine may differ on another one, without being another configuration.
        configured.pop("state")
        configured["state_store"].pop("folder")
    return configured


def _as_written(configured: dict[str, Any], settings: Settings) -> None:
    """Put secrets that the file has in URLs back there: as in earlier releases, they are part of the configuration."""
    uri, store = settings.catalog.properties.get("uri"), settings.state_store
    if isinstance(uri, WrittenSecret):
        configured["catalog"]["properties"]["uri"] = uri.url
    for key, secret in store.properties.items() if store is not None else ():
        if isinstance(secret, WrittenSecret):
            configured["state_store"]["store"] = secret.url
            configured["state_store"]["properties"].pop(key)


def _from_home(value: Any, home: re.Pattern[str]) -> Any:
    """Replace a folder in all paths and addresses of a document by a dot."""
    if isinstance(value, dict):
        return {key: _from_home(each, home) for key, each in value.items()}
    if isinstance(value, list):
        return [_from_home(each, home) for each in value]
    return home.sub(".", value) if isinstance(value, str) else value


def _of_stream(spec: StreamSpec, settings: Settings) -> dict[str, Any]:
    excluded = {*_WATCHING, "decode", "errors", "predicates", "group"}
    stream: dict[str, Any] = spec.model_dump(mode="json", exclude=excluded)
    if (group := group_of(spec, settings)) is not None:
        stream["group"] = group
    if spec.restart == Restart():
        stream.pop("restart")
    if spec.evolve == Evolve():
        stream.pop("evolve")
    if isinstance(spec.trigger, Every) and spec.trigger.while_red is None:
        stream["trigger"].pop("while_red")
    if spec.source.max_bytes_per_batch is None:
        stream["source"].pop("max_bytes_per_batch")
    if not spec.source.options:
        stream["source"].pop("options")
    for mirror in stream["mirrors"]:
        # Only comparisons with the source use it, never the driver.
        mirror.pop("source")
    for name in ("transform", "rules", "mirrors"):
        if not stream[name]:
            stream.pop(name)
    for name in ("event_time", "route", "changes"):
        if stream[name] is None:
            stream.pop(name)
    if spec.route is not None:
        _drop_defaults(stream["route"])
    if spec.changes is not None:
        stream["changes"] = hashed_changes(spec, spec.changes)
    for name in ("location", "sort_by", "identifier_fields", "force_optional"):
        if not stream["table"][name]:
            stream["table"].pop(name)
    if spec.table.branch == MAIN_BRANCH:
        stream["table"].pop("branch")
    return stream | {"errors": generation_of_errors(spec.errors)}


def _digest(meaning: dict[str, Any]) -> str:
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _drop_defaults(route: dict[str, Any]) -> None:
    """Leave out unused keys of a route that later versions brought."""
    if not route["recreate"]:
        del route["recreate"]
    said = route["on_table_error"]
    for each in (route, *route["tables"]):
        if each["on_table_error"] is None or each["on_table_error"] == said == "stop":
            del each["on_table_error"]
        for name in ("columns", "branch"):
            if name in each and each[name] is None:
                del each[name]


def generation_of_errors(errors: Errors) -> dict[str, Any]:
    """Return the part of the `errors` block that counts in a stream's generation, as JSON.

    Keys of later versions are left out if unused, so the generation of files without them stays the same.
    """
    dumped: dict[str, Any] = errors.model_dump(mode="json", exclude={"replay"})
    if errors.retry == Retry():
        del dumped["retry"]
    if errors.stop_above == DEFAULT_STOP:
        # The dump of versions without a default.
        dumped["stop_above"] = None
    elif (stop := dumped["stop_above"]) is None:
        dumped["stop_above"] = "off"
    else:
        # 1,000 was once the default of min_records. So files with and without that value keep their generation.
        dumped["stop_above"] = {"min_records": 1000} | {k: v for k, v in stop.items() if v is not None}
    if (letters := dumped["dead_letters"]) is not None:
        del letters["keep"]
        if errors.mask == NO_MASK:
            del letters["mask"]
        if letters["topic"] is None:
            del letters["topic"]
        elif not letters["topic"]["stops"]:
            del letters["topic"]["stops"]
    return dumped
