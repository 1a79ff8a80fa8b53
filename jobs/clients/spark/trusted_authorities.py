"""Certificate authorities of the catalog and of S3 in the settings, for Spark's JVM in addition to Java's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs.base.errors import FrazilError
from jobs.base.system.private_files import private_folder
from jobs.config.services.catalog_properties import STORE_AUTHORITIES
from jobs.config.settings.settings import Settings

AUTHORITIES = ("ssl.cabundle", STORE_AUTHORITIES)
"""Properties that name files with certificate authorities."""

_PROPERTY = "javax.net.ssl.trustStore"
# Java's default password of its list of authorities, which is public.
_PASSWORD = "changeit"


def trust_authorities(gateway: Any, settings: Settings) -> None:
    """Let a running JVM trust the authorities in ``ssl.cabundle`` and ``s3.ssl.cabundle``.

    A JVM that was started with its own trust store keeps it.

    Args:
        gateway: py4j's gateway to the JVM.

    Raises:
        FrazilError: A file cannot be read, or has no certificates.
    """
    properties = settings.catalog.properties
    named = {key: Path(str(properties[key])) for key in AUTHORITIES if key in properties}
    jvm: Any = gateway.jvm
    system = jvm.java.lang.System
    if not named or system.getProperty(_PROPERTY) is not None:
        return
    for key, path in named.items():
        try:
            # Java's errors for these would come through py4j with a Java stack trace.
            text = path.read_text(encoding="ascii", errors="replace")
        except OSError as problem:
            raise _unusable(key, path, problem.strerror or "cannot be read") from None
        if "BEGIN CERTIFICATE" not in text:
            raise _unusable(key, path, "it holds no certificate in PEM form")
    password = gateway.new_array(jvm.char, len(_PASSWORD))
    for at, letter in enumerate(_PASSWORD):
        password[at] = letter
    own = jvm.java.io.File(f"{system.getProperty('java.home')}/lib/security/cacerts")
    store = jvm.java.security.KeyStore.getInstance(own, password)
    certificates = jvm.java.security.cert.CertificateFactory.getInstance("X.509")
    for key, path in named.items():
        stream = jvm.java.io.FileInputStream(str(path))
        try:
            for number, certificate in enumerate(certificates.generateCertificates(stream)):
                store.setCertificateEntry(f"frazil-{key}-{number}", certificate)
        finally:
            stream.close()
    file = private_folder(settings.state / "spark") / f"authorities-{jvm.java.lang.ProcessHandle.current().pid()}"
    written = jvm.java.io.FileOutputStream(str(file))
    try:
        store.store(written, password)
    finally:
        written.close()
    system.setProperty("javax.net.ssl.trustStoreType", store.getType())
    system.setProperty("javax.net.ssl.trustStorePassword", _PASSWORD)
    system.setProperty(_PROPERTY, str(file))
    # Some clients use the process's default context, which may exist already.
    tls = jvm.javax.net.ssl
    managers = tls.TrustManagerFactory.getInstance(tls.TrustManagerFactory.getDefaultAlgorithm())
    managers.init(store)
    context = tls.SSLContext.getInstance("TLS")
    context.init(None, managers.getTrustManagers(), None)
    tls.SSLContext.setDefault(context)


def _unusable(key: str, path: Path, why: str) -> FrazilError:
    return FrazilError(
        f"catalog.properties.{key}: {path}: {why}.", fix="name a file with certificates of authorities there"
    )
