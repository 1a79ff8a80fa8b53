"""Block `decode` of a stream: the converters of the connector, or of its worker, and the schema registry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from jobs.config.documents.connect_keys import find_key
from jobs.migration.conversion.account import Account
from jobs.migration.conversion.draft import Draft, Yaml
from jobs.migration.conversion.kafka_connection import tls_files
from jobs.migration.conversion.references import has_reference, has_template

_REGISTRY_FORMATS = ("avro", "protobuf", "json_schema")
_FORMATS = {
    "org.apache.kafka.connect.json.JsonConverter": "json",
    "org.apache.kafka.connect.storage.StringConverter": "string",
    "org.apache.kafka.connect.converters.ByteArrayConverter": "bytes",
    "org.apache.kafka.connect.converters.BooleanConverter": "boolean",
    "org.apache.kafka.connect.converters.ShortConverter": "short",
    "org.apache.kafka.connect.converters.IntegerConverter": "int",
    "org.apache.kafka.connect.converters.LongConverter": "long",
    "org.apache.kafka.connect.converters.FloatConverter": "float",
    "org.apache.kafka.connect.converters.DoubleConverter": "double",
    "io.confluent.connect.avro.AvroConverter": "avro",
    "io.confluent.connect.protobuf.ProtobufConverter": "protobuf",
    "io.confluent.connect.json.JsonSchemaConverter": "json_schema",
    "io.apicurio.registry.utils.converter.AvroConverter": "avro",
    "io.apicurio.registry.utils.converter.ExtJsonConverter": "json_schema",
}
# Connect also takes a class without its package, and without the word Converter.
_SHORT_NAMES = {
    short: name
    for class_, name in _FORMATS.items()
    for simple in [class_.rpartition(".")[2]]
    for short in (simple, simple.removesuffix("Converter"))
}
# Options that a converter and frazil have under one name; the values that are numbers or true and false.
_OPTIONS = {
    "avro": ("enhanced.avro.schema.support", "flatten.singleton.unions", "scrub.invalid.names"),
    "protobuf": (
        *("int.for.enums", "optional.for.nullables", "optional.for.proto2", "wrapper.for.nullables"),
        *("generate.struct.for.nulls", "flatten.unions", "generate.index.for.unions"),
    ),
    "json_schema": ("use.optional.for.nonrequired", "generalized.sum.type.support"),
    "connect_json": ("replace.null.with.default",),
}
# Options that change nothing in a table: only logical names of Connect's own schemas.
_WITHOUT_EFFECT = {"enhanced.avro.schema.support": "for Connect’s own schemas"}


@dataclass(frozen=True, slots=True)
class Format:
    """How values, or keys, are encoded.

    Attributes:
        name: Name of the format here, such as `connect_json`.
        options: Options of the format, by frazil's names.
        is_known: Whether a converter that frazil knows was found.
    """

    name: str
    options: Yaml
    is_known: bool = True

    @property
    def has_registry(self) -> bool:
        """Whether schemas are in a registry."""
        return self.name in _REGISTRY_FORMATS

    @property
    def written(self) -> str | Yaml:
        """The format as a stream's file has it."""
        return {"format": self.name, **self.options} if self.options else self.name


def value_format(draft: Draft) -> Format:
    """Format of values; the registry goes to the settings. Answers `value.converter*` and `header.converter`."""
    found = _format(draft, "value", write_registry=True)
    for key in draft.keys.keys("header.converter"):
        draft.keys.not_needed(key, "the sink writes no headers")
    draft.keys.no_effect("schemas.enable", "no converter reads it without value.converter. in front")
    if found.name == "connect_json" and "replace.null.with.default" not in found.options:
        draft.note(
            "a null member keeps null; Connect put the default of its schema there. "
            "decode.value: {format: connect_json, replace.null.with.default: true} does the same"
        )
    return found


def key_format(draft: Draft) -> Format:
    """Format of keys, for streams that need them. Answers `key.converter*` of the connector."""
    return _format(draft, "key", write_registry=False)


def leave_keys(draft: Draft) -> None:
    """Answer `key.converter*` for a sink that writes no keys."""
    for keys in _accounts(draft):
        for key in keys.keys("key.converter"):
            if not keys.is_answered(key):
                keys.not_needed(key, "the sink writes no key")


def _accounts(draft: Draft) -> list[Account]:
    return [draft.keys, *([draft.worker] if draft.worker is not None else [])]


def _format(draft: Draft, side: Literal["key", "value"], *, write_registry: bool) -> Format:
    key = f"{side}.converter"
    at = "decode.value" if side == "value" else "decode.key"
    if not draft.keys.has(key):
        for lost in draft.keys.keys(f"{key}."):
            said = f"counts beside {key} alone, and the worker's converter has settings of its own"
            draft.keys.no_effect(lost, said)
    owner = next((keys for keys in _accounts(draft) if keys.has(key)), None)
    if owner is None or (written := owner.get(key)) is None:
        where = "the worker's, which is not here" if owner is None else f"{key} is a template or a reference"
        draft.ask(f"the converter of {side}s: {where}. json is written; correct {at}", blocks=True)
        return Format("json", {}, is_known=False)
    if owner is draft.keys and draft.worker is not None and side == "value" and draft.worker.has(key):
        draft.note(
            f"the connector names its own {key}, so the worker's setting does not count"
            + ("" if owner.has(f"{key}.schemas.enable") else "; schemas.enable is true by default")
        )
    name = _FORMATS.get(written) or _SHORT_NAMES.get(written)
    if name is None:
        owner.impossible(key, "no format of frazil: write decode.value: {format: own, decoder: NAME} with a decoder")
        for option in owner.keys(f"{key}."):
            owner.impossible(option, "of a converter that frazil does not know")
        draft.ask(f"the converter of {side}s is none that frazil knows: correct {at}", blocks=True)
        return Format("json", {}, is_known=False)
    if name == "json" and owner.flag(f"{key}.schemas.enable", otherwise=True):
        name = "connect_json"
        if not owner.has(f"{key}.schemas.enable"):
            draft.default(f"{key}.schemas.enable", "true", at, name)
    owner.same(key, at)
    owner.same(f"{key}.schemas.enable", at)
    options = _options(draft, owner, key, name, at)
    if name in _REGISTRY_FORMATS and write_registry:
        _registry(draft, owner, f"{key}.")
    return Format(name, options)


def _options(draft: Draft, owner: Account, key: str, name: str, at: str) -> Yaml:
    found: Yaml = {}
    for option in _OPTIONS.get(name, ()):
        written = f"{key}.{option}"
        if not owner.has(written):
            continue
        if said := _WITHOUT_EFFECT.get(option):
            owner.not_needed(written, said)
            if owner.flag(written):
                draft.note(
                    f"unions of several records: if columns of the table have names with namespaces, write {option}: "
                    f"true into {at}"
                )
        elif owner.get(written) is not None:
            found[option] = owner.flag(written)
            owner.same(written, f"{at}.{option}")
    content = owner.get(f"{key}.schema.content") if name == "connect_json" else None
    if content is not None:
        found["schema.content"] = content
        owner.same(f"{key}.schema.content", f"{at}.schema.content")
    identity = owner.number(f"{key}.use.schema.id") if name in _REGISTRY_FORMATS else None
    if identity is not None:
        found["use.schema.id"] = identity
        owner.same(f"{key}.use.schema.id", f"{at}.use.schema.id")
    return found


def _registry(draft: Draft, owner: Account, prefix: str) -> None:
    """Section `registry` of the settings, of the keys of a converter."""
    urls_key = f"{prefix}schema.registry.url"
    apicurio = f"{prefix}apicurio.registry.url"
    registry: Yaml = {}
    urls = [url.strip() for url in owner.raw(urls_key).split(",") if url.strip()]
    login, parts = "", None
    if any(has_reference(url) or has_template("", url) for url in urls):
        urls = []
    elif urls and (parts := _split_urls(urls)) is None:
        urls = []
        owner.decide(urls_key, "no address of a registry")
    elif urls and parts:
        login = next((part.netloc.rpartition("@")[0] for part in parts if "@" in part.netloc), "")
        urls = [urlunsplit(part._replace(netloc=part.netloc.rpartition("@")[2])) for part in parts]
        owner.same(urls_key, "registry.url")
    elif url := owner.get(apicurio):
        base = re.sub(r"/apis/registry/v\d+/?$|/+$", "", url)
        urls = [f"{base}/apis/ccompat/v7"]
        owner.approximated(
            apicurio, "the address of Apicurio's API that is compatible with Confluent's", "registry.url"
        )
        draft.ask(
            "does Apicurio answer under /apis/ccompat/v7, and do records have its ids of four bytes?", blocks=True
        )
    if urls:
        registry["url"] = urls
    else:
        draft.ask("the address of the schema registry: write registry.url", blocks=True)
        registry["url"] = ["https://undecided.invalid"]
    registry |= _registry_login(draft, owner, prefix, login)
    tls = tls_files(draft, owner, f"{prefix}schema.registry.", "registry.tls", "REGISTRY")
    if tls:
        registry["tls"] = tls
    draft.put("registry", registry)


def _split_urls(urls: list[str]) -> list[SplitResult] | None:
    """Parts of addresses; None if one is no address, such as a part of a password with a comma."""
    try:
        parts = [urlsplit(url) for url in urls]
    except ValueError:
        return None
    return parts if all(part.scheme and part.netloc and "@" not in part.path for part in parts) else None


def _registry_login(draft: Draft, owner: Account, prefix: str, login: str) -> Yaml:
    for above in (prefix, f"{prefix}schema.registry."):
        basic, source = f"{above}basic.auth.user.info", f"{above}basic.auth.credentials.source"
        if owner.has(source) and (owner.get(source) or "").upper() == "SASL_INHERIT":
            owner.decide(source, "the login of Kafka: write it as registry.basic")
            draft.ask("the registry's login is that of Kafka (SASL_INHERIT): write registry.basic", blocks=True)
            return {}
        owner.same(source, "registry.basic")
        if owner.has(basic):
            return {"basic": _basic(draft, owner, basic, owner.raw(basic))}
        token = f"{above}bearer.auth.token"
        if owner.has(token):
            reference = draft.secret(owner, token, "registry.bearer.token", "REGISTRY_TOKEN")
            owner.same(token, "registry.bearer.token")
            return {"bearer": {"token": reference} | _extensions(owner, above, "registry.bearer")}
        if owner.has(f"{above}bearer.auth.issuer.endpoint.url"):
            return {"oauth": _registry_oauth(draft, owner, above)}
    if login:
        return {"basic": _basic(draft, owner, f"{prefix}schema.registry.url", unquote(login))}
    return {}


def _basic(draft: Draft, owner: Account, key: str, written: str) -> Yaml:
    at, variable = "registry.basic.password", "REGISTRY_PASSWORD"
    parts = re.fullmatch(r"((?:\$\{[^}]*\}|(?!\$\{)[^:])*+):(.*)", written, re.DOTALL)
    if not owner.is_answered(key):
        owner.same(key, "registry.basic")
    if parts is None:
        user = draft.secret(owner, key, "registry.basic.user", "REGISTRY_USER", value=written)
        return {"user": user, "password": draft.secret(owner, key, at, variable, value="")}
    user, password = parts[1], parts[2]
    if has_reference(user) or has_template("", user):
        user = draft.secret(owner, key, "registry.basic.user", "REGISTRY_USER", value=user)
    return {"user": user, "password": draft.secret(owner, key, at, variable, value=password)}


def _registry_oauth(draft: Draft, owner: Account, above: str) -> Yaml:
    auth = f"{above}bearer.auth."
    found: dict[str, Any] = {}
    for key, name, otherwise in (
        ("issuer.endpoint.url", "token_url", "https://undecided.invalid/token"),
        ("client.id", "client_id", "undecided"),
    ):
        found[name] = owner.get(f"{auth}{key}") or otherwise
        owner.same(f"{auth}{key}", f"registry.oauth.{name}")
    secret = f"{auth}client.secret"
    found["client_secret"] = "${env:REGISTRY_CLIENT_SECRET}"
    if owner.has(secret):
        at = "registry.oauth.client_secret"
        found["client_secret"] = draft.secret(owner, secret, at, "REGISTRY_CLIENT_SECRET")
        owner.same(secret, at)
    if scope := owner.get(f"{auth}scope"):
        found["scope"] = scope
        owner.same(f"{auth}scope", "registry.oauth.scope")
    owner.same(f"{auth}credentials.source", "registry.oauth")
    return found | _extensions(owner, above, "registry.oauth")


def _extensions(owner: Account, above: str, at: str) -> Yaml:
    found: Yaml = {}
    owner.same(f"{above}bearer.auth.credentials.source", at)
    for key, name in (("logical.cluster", "logical_cluster"), ("identity.pool.id", "identity_pool_id")):
        if value := owner.get(f"{above}bearer.auth.{key}"):
            found[name] = value
            owner.same(f"{above}bearer.auth.{key}", f"{at}.{name}")
    return found


def is_converter_key(key: str) -> bool:
    """Whether a key is of the connector's or the worker's converters."""
    return key.startswith(("key.converter", "value.converter", "header.converter")) and find_key(key) is not None
