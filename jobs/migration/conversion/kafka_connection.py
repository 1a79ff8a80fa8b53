"""Section `kafka` of the settings: bootstrap servers and security of the connector's clients."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

from jobs.migration.connectors.strimzi import secret_of
from jobs.migration.conversion.account import Account
from jobs.migration.conversion.draft import Draft, Yaml
from jobs.migration.conversion.references import has_reference, has_template

_JAAS = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*?);?\s*", re.DOTALL
)
_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
_PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MOUNTED = "/etc/frazil/secrets"
_STRIMZI = {"scram-sha-512": "SCRAM-SHA-512", "scram-sha-256": "SCRAM-SHA-256", "plain": "PLAIN"}


def connect_kafka(draft: Draft) -> None:
    """Write `kafka.bootstrap_servers` and `kafka.security`, from the strongest place that has them.

    That is `consumer.override.*`, then the worker's `consumer.*` and its own keys, then the sink's `iceberg.kafka.*`.
    """
    places = _places(draft)
    _bootstrap(draft, places)
    if draft.worker is not None and draft.worker.keys("spec."):
        _strimzi(draft, draft.worker)
    # The clients of one cluster prove themselves in one way: the first place that says how.
    secured = [(keys, prefix) for keys, prefix in places if _says_security(keys, prefix)]
    for at, (keys, prefix) in enumerate(secured):
        if at == 0 or prefix in ("consumer.override.", "consumer.", ""):
            _security(draft, keys, prefix, write=at == 0)


def _places(draft: Draft) -> list[tuple[Account, str]]:
    worker = [(draft.worker, "consumer."), (draft.worker, "")] if draft.worker is not None else []
    return [(draft.keys, "consumer.override."), *worker, (draft.keys, "iceberg.kafka.")]


def _bootstrap(draft: Draft, places: list[tuple[Account, str]]) -> None:
    named = [(keys, f"{prefix}bootstrap.servers") for keys, prefix in places]
    if draft.worker is not None:
        named.insert(1, (draft.worker, "spec.bootstrapServers"))
    for keys, key in named:
        if servers := [name.strip() for name in (keys.get(key) or "").split(",") if name.strip()]:
            draft.put("kafka.bootstrap_servers", servers)
            keys.same(key, "kafka.bootstrap_servers")
            return
    if draft.settings.get("kafka", "bootstrap_servers") is None:
        connector = draft.connector
        where = "they are in the worker's properties, which are not here"
        if connector.worker_name and connector.worker is None:
            where = f"they are in the KafkaConnect {connector.worker_name}, which is not here"
        draft.ask(f"bootstrap servers: {where}. Write kafka.bootstrap_servers, or import them together")


def _says_security(keys: Account, prefix: str) -> bool:
    return any(keys.has(f"{prefix}{key}") for key in ("security.protocol", "sasl.mechanism", "sasl.jaas.config")) or (
        keys.has(f"{prefix}ssl.truststore.location")
    )


def _security(draft: Draft, keys: Account, prefix: str, *, write: bool) -> None:
    """Security of one place; without `write` its keys are answered alone, because a stronger place counts."""
    if not write:
        for key in [k for k in keys.keys(prefix) if re.match(r"(security\.|sasl\.|ssl\.)", k.removeprefix(prefix))]:
            keys.not_needed(key, "a stronger setting determines how clients authenticate")
        return
    protocol = (keys.get(f"{prefix}security.protocol") or "PLAINTEXT").upper()
    keys.same(f"{prefix}security.protocol", "kafka.security.protocol")
    security: Yaml = {"protocol": protocol}
    if protocol.startswith("SASL_"):
        security |= _sasl(draft, keys, prefix)
    if protocol.endswith("SSL"):
        security |= tls_files(draft, keys, prefix, "kafka.security", "KAFKA")
    if protocol != "PLAINTEXT":
        draft.put("kafka.security", security)


def _sasl(draft: Draft, keys: Account, prefix: str) -> Yaml:
    mechanism = (keys.get(f"{prefix}sasl.mechanism") or "GSSAPI").upper()
    keys.same(f"{prefix}sasl.mechanism", "kafka.security.mechanism")
    jaas = f"{prefix}sasl.jaas.config"
    options = jaas_options(keys.raw(jaas))
    for name in ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class"):
        keys.not_needed(f"{prefix}{name}", "the mechanism determines how frazil logs in")
    if mechanism in _PASSWORDS:
        return {"mechanism": mechanism} | _password(draft, keys, jaas, options)
    if mechanism == "OAUTHBEARER":
        return {"mechanism": mechanism, "oauth": _oauth(draft, keys, prefix, options)}
    if mechanism == "GSSAPI":
        kerberos: Yaml = {
            "principal": options.get("principal") or "undecided@EXAMPLE.COM",
            "keytab": options.get("keyTab") or "/etc/frazil/frazil.keytab",
        }
        service = keys.get(f"{prefix}sasl.kerberos.service.name") or options.get("serviceName")
        keys.same(f"{prefix}sasl.kerberos.service.name", "kafka.security.kerberos.service_name")
        keys.same(jaas, "kafka.security.kerberos")
        if not options.get("principal"):
            draft.ask("the principal and the keytab: write kafka.security.kerberos", blocks=True)
        return {"mechanism": mechanism, "kerberos": kerberos | ({"service_name": service} if service else {})}
    way_out = "Amazon MSK takes SCRAM-SHA-512 and certificates as well: write another kafka.security"
    keys.impossible(jaas, f"no client of frazil knows the mechanism. {way_out}")
    draft.ask(f"the mechanism {mechanism} is none of frazil's. {way_out}", blocks=True)
    user, password = "undecided", "${env:KAFKA_PASSWORD}"
    return {"mechanism": "SCRAM-SHA-512", "user": user, "password": password}


def _password(draft: Draft, keys: Account, jaas: str, options: dict[str, str]) -> Yaml:
    keys.same(jaas, "kafka.security.user and kafka.security.password")
    if "username" not in options or "password" not in options:
        # A reference or template stands for the whole text.
        if keys.has(jaas):
            user = draft.secret(keys, jaas, "kafka.security.user", "KAFKA_USER", was=_part_of(keys, jaas, "user"))
            password = draft.secret(
                keys, jaas, "kafka.security.password", "KAFKA_PASSWORD", value="", was=_part_of(keys, jaas, "password")
            )
            return {"user": user, "password": password}
        draft.ask("user and password of Kafka: write kafka.security.user and kafka.security.password", blocks=True)
        return {"user": "undecided", "password": "${env:KAFKA_PASSWORD}"}
    user = options["username"]
    if has_reference(user) or has_template("", user):
        user = draft.secret(keys, jaas, "kafka.security.user", "KAFKA_USER", value=user)
    password = draft.secret(keys, jaas, "kafka.security.password", "KAFKA_PASSWORD", value=options["password"])
    return {"user": user, "password": password}


def _part_of(keys: Account, key: str, part: str) -> str:
    from jobs.migration.conversion.references import provider_reference

    return f"{part} within the text of {provider_reference(keys.raw(key))[1]}"


def _oauth(draft: Draft, keys: Account, prefix: str, options: dict[str, str]) -> Yaml:
    endpoint = f"{prefix}sasl.oauthbearer.token.endpoint.url"
    url = keys.get(endpoint) or options.get("oauth.token.endpoint.uri")
    jaas = f"{prefix}sasl.jaas.config"
    keys.same(endpoint, "kafka.security.oauth.token_url")
    keys.same(jaas, "kafka.security.oauth")
    client = options.get("clientId") or options.get("oauth.client.id")
    if not url or not client:
        draft.ask("the issuer of tokens: write token_url and client_id of kafka.security.oauth", blocks=True)
    if client and (has_reference(client) or has_template("", client)):
        client = draft.secret(keys, jaas, "kafka.security.oauth.client_id", "KAFKA_CLIENT_ID", value=client)
    secret = options.get("clientSecret") or options.get("oauth.client.secret") or ""
    reference = "${env:KAFKA_CLIENT_SECRET}"
    if keys.has(jaas):
        at = "kafka.security.oauth.client_secret"
        reference = draft.secret(keys, jaas, at, "KAFKA_CLIENT_SECRET", value=secret)
    scope = options.get("scope") or options.get("oauth.scope")
    return {
        "token_url": url or "https://undecided.invalid/token",
        "client_id": client or "undecided",
        "client_secret": reference,
    } | ({"scope": scope} if scope else {})


def tls_files(draft: Draft, keys: Account, prefix: str, at: str, variable: str) -> Yaml:
    """Certificates in PEM that take the place of Java's stores; the report names the commands that convert them.

    Args:
        draft: Draft of the connector.
        keys: Account with the keys.
        prefix: What stands before `ssl.truststore.location` and the others.
        at: Section of the settings, such as `kafka.security` or `registry.tls`.
        variable: First word of environment variables.
    """
    found: Yaml = {}
    trust, key_store = f"{prefix}ssl.truststore.location", f"{prefix}ssl.keystore.location"
    if keys.has(trust):
        found["ca"] = _pem(draft, keys, trust, f"{prefix}ssl.truststore.type", f"{at}.ca", "ca")
    if keys.has(key_store):
        found["certificate"] = _pem(draft, keys, key_store, f"{prefix}ssl.keystore.type", f"{at}.certificate", "client")
        for name in ("ssl.key.password", "ssl.keystore.password"):
            if keys.has(f"{prefix}{name}") and "key_password" not in found:
                key = f"{prefix}{name}"
                found["key_password"] = draft.secret(keys, key, f"{at}.key_password", f"{variable}_KEY_PASSWORD")
                keys.approximated(key, "password of the key in the PEM file", f"{at}.key_password")
    for name in ("ssl.truststore.password", "ssl.keystore.password", "ssl.key.password"):
        if keys.has(f"{prefix}{name}") and not keys.is_answered(f"{prefix}{name}"):
            keys.take(f"{prefix}{name}")
            keys.not_needed(f"{prefix}{name}", "a PEM file of certificates has no password")
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        keys.not_needed(f"{prefix}{name}", "frazil takes PEM files")
    endpoint = f"{prefix}ssl.endpoint.identification.algorithm"
    if keys.has(endpoint):
        if at == "kafka.security" and keys.raw(endpoint).lower() in ("", "none"):
            found["verify_hostname"] = False
            keys.same(endpoint, f"{at}.verify_hostname")
        else:
            keys.not_needed(endpoint, "the certificate is checked against the host's name anyway")
    for name in ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"):
        if keys.has(f"{prefix}{name}"):
            keys.decide(f"{prefix}{name}", f"text in PEM: save it as a file, and name the file at {at}")
            draft.ask(f"{prefix}{name} is text in PEM: save it as a file, and name the file at {at}", blocks=True)
    for name in ("ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.provider"):
        keys.not_needed(f"{prefix}{name}", "the client and the broker agree on it")
    return found


def _pem(draft: Draft, keys: Account, key: str, type_key: str, at: str, name: str) -> str:
    kind, location = (keys.get(type_key) or "").upper(), keys.get(key)
    if kind == "PEM" and location:
        keys.same(key, at)
        return location
    stem = PurePosixPath(location).stem if location else name
    path = f"/etc/frazil/{stem}.pem" if location is None else str(PurePosixPath(location).with_suffix(".pem"))
    keys.approximated(key, f"a store of Java becomes a file in PEM; {_command(location, path, kind, name)}", at)
    draft.ask(f"make {path}: {_command(location, path, kind, name)}")
    return path


def _command(location: str | None, path: str, kind: str, name: str) -> str:
    store = location or "STORE"
    pkcs12 = store
    first = ""
    if kind != "PKCS12" and not store.endswith((".p12", ".pfx")):
        pkcs12 = str(PurePosixPath(store).with_suffix(".p12"))
        first = f"keytool -importkeystore -srckeystore {store} -destkeystore {pkcs12} -deststoretype PKCS12 && "
    only = "-cacerts -nokeys " if name == "ca" else ""
    return f"{first}openssl pkcs12 -in {pkcs12} {only}-out {path}"


def jaas_options(text: str) -> dict[str, str]:
    """Options of a login module in `sasl.jaas.config`, without their quotes; empty if the text has none."""
    match = _JAAS.fullmatch(text)
    if match is None:
        return {}
    found: dict[str, str] = {}
    for name, double, single, bare in _OPTION.findall(match["options"]):
        found[name] = re.sub(r"\\(.)", r"\1", double or single) if double or single else bare
    return found


def _strimzi(draft: Draft, worker: Account) -> None:
    """Security of a `KafkaConnect`: its `tls` and `authentication`."""
    security: Yaml = {}
    tls = bool(worker.keys("spec.tls"))
    trusted = "spec.tls.trustedCertificates"
    if worker.has(trusted):
        named = secret_of(worker.raw(trusted)) or [("secret", "")]
        first = named[0][0].split(",")[0]
        path = f"{_MOUNTED}/{first.removeprefix('secret ')}/ca.crt"
        security["ca"] = draft.secret_file(worker, trusted, "kafka.security.ca", path, f"{first}, as a PEM file")
        others = "".join(f", with that of {name.split(',')[0]} behind it" for name, _ in named[1:])
        worker.same(trusted, "kafka.security.ca", f"mount {first} so that {path} is its certificate{others}")
    kind = (worker.get("spec.authentication.type") or "").lower()
    custom = kind == "custom" and worker.flag("spec.authentication.sasl")
    if kind in (*_STRIMZI, "oauth", "tls") or custom:
        worker.same("spec.authentication.type", "kafka.security.mechanism")
    sasl = kind in _STRIMZI or kind == "oauth" or custom
    if kind in _STRIMZI:
        security |= {"mechanism": _STRIMZI[kind]} | _strimzi_password(draft, worker)
    elif kind == "oauth":
        security |= {"mechanism": "OAUTHBEARER", "oauth": _strimzi_oauth(draft, worker)}
    elif custom:
        worker.same("spec.authentication.sasl", "kafka.security.protocol")
        security |= _sasl(draft, worker, "spec.authentication.config.")
    elif kind == "tls" and not worker.has("spec.authentication.certificateAndKey"):
        draft.ask("the certificate of Kafka's clients: write certificate and key of kafka.security", blocks=True)
    elif kind == "tls":
        key = "spec.authentication.certificateAndKey"
        pair = _object(worker.raw(key))
        folder, was = f"{_MOUNTED}/{pair.get('secretName', 'undecided')}", f"secret {pair.get('secretName')}, as files"
        file = f"{folder}/{pair.get('certificate', 'user.crt')}"
        security["certificate"] = draft.secret_file(worker, key, "kafka.security.certificate", file, was)
        security["key"] = f"{folder}/{pair.get('key', 'user.key')}"
        worker.same(key, "kafka.security.certificate", f"mount the secret at {folder}")
    elif kind:
        worker.decide("spec.authentication.type", "an authentication that frazil does not know")
        draft.ask("how clients of Kafka prove themselves: write kafka.security", blocks=True)
    if tls or kind:
        protocol = ("SASL_SSL" if tls else "SASL_PLAINTEXT") if sasl else ("SSL" if tls else "PLAINTEXT")
        if protocol != "PLAINTEXT":
            draft.put("kafka.security", {"protocol": protocol} | security)


def _strimzi_password(draft: Draft, worker: Account) -> Yaml:
    key, user = "spec.authentication.passwordSecret", worker.get("spec.authentication.username")
    worker.same("spec.authentication.username", "kafka.security.user")
    password = "${env:KAFKA_PASSWORD}"
    if worker.has(key):
        was = (secret_of(worker.raw(key)) or [("a secret", "")])[0][0]
        password = draft.secret(worker, key, "kafka.security.password", "KAFKA_PASSWORD", was=was)
        worker.same(key, "kafka.security.password")
    return {"user": user or "undecided", "password": password}


def _strimzi_oauth(draft: Draft, worker: Account) -> Yaml:
    above = "spec.authentication."
    url, client = worker.get(f"{above}tokenEndpointUri"), worker.get(f"{above}clientId")
    worker.same(f"{above}tokenEndpointUri", "kafka.security.oauth.token_url")
    worker.same(f"{above}clientId", "kafka.security.oauth.client_id")
    reference, key = "${env:KAFKA_CLIENT_SECRET}", f"{above}clientSecret"
    if worker.has(key):
        secret = _object(worker.raw(key))
        was = f"secret {secret.get('secretName')}, key {secret.get('key')}"
        reference = draft.secret(worker, key, "kafka.security.oauth.client_secret", "KAFKA_CLIENT_SECRET", was=was)
        worker.same(key, "kafka.security.oauth.client_secret")
    scope = worker.get(f"{above}scope")
    worker.same(f"{above}scope", "kafka.security.oauth.scope")
    return {
        "token_url": url or "https://undecided.invalid/token",
        "client_id": client or "undecided",
        "client_secret": reference,
    } | ({"scope": scope} if scope else {})


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
