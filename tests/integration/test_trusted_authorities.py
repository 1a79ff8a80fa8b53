"""Authorities that the settings name, and Java: Iceberg's client in a JVM of its own, against a catalog over TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from jobs.base.errors import FrazilError
from jobs.clients.install.artifacts import resolve_jars
from jobs.clients.spark.trusted_authorities import trust_authorities
from jobs.config.services.catalog import CatalogSettings
from jobs.config.settings.settings import Settings
from tests.helpers.small_jvm import small_jvm
from tests.helpers.tls import make_tls
from tests.helpers.tls_catalog import silent_catalog

pytestmark = pytest.mark.integration


def namespaces(gateway: Any, uri: str) -> list[str]:
    """What a client that is made now is told."""
    util, name = gateway.jvm.org.apache.iceberg.CatalogUtil, "org.apache.iceberg.rest.RESTCatalog"
    catalog = util.loadCatalog(name, "lake", {"uri": uri}, None)
    return [str(each.toString()) for each in catalog.listNamespaces()]


def test_a_jvm_trusts_whom_the_settings_name(tmp_path: Path) -> None:
    tls, home = make_tls(tmp_path / "tls"), Settings.embedded(tmp_path)

    def named(path: Path | None) -> Settings:
        properties = {"type": "rest", "uri": uri, **({"ssl.cabundle": str(path)} if path else {})}
        return home.model_copy(update={"catalog": CatalogSettings.model_validate({"properties": properties})})

    with silent_catalog(tls) as uri, small_jvm(resolve_jars("rest_catalog"), tmp_path / "jvm.log") as gateway:
        trust_authorities(gateway, named(None))
        # Java has made its mind up whom to trust by now.
        with pytest.raises(Py4JJavaError, match="unable to find valid certification path"):
            namespaces(gateway, uri)
        for path, said in ((tmp_path / "none.pem", "No such file"), (tmp_path / "jvm.log", "no certificate in PEM")):
            with pytest.raises(FrazilError, match=rf"ssl\.cabundle: .*{said}"):
                trust_authorities(gateway, named(path))
        trust_authorities(gateway, named(tls.ca))
        assert namespaces(gateway, uri) == ["lake"]
        store = gateway.jvm.java.lang.System.getProperty("javax.net.ssl.trustStore")
        # What Java trusts by itself is trusted still; and a store that is there is left as it is.
        assert Path(store).stat().st_size > 20_000
        trust_authorities(gateway, named(tmp_path / "none.pem"))
        assert gateway.jvm.java.lang.System.getProperty("javax.net.ssl.trustStore") == store
