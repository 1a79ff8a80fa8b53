"""Hive metastore for tests: Hive 2.3 from PySpark's own jars, over Derby, on the loopback, in a JVM of its own.

Its `main` would listen on all interfaces, so the server is put together here. As Java's client of Iceberg and
PyIceberg's lock tables, it has the tables of Hive's transactions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.base.system.ports import HOST
from jobs.base.system.threads import background_thread
from jobs.clients.install.preflight import pyspark_folder
from tests.helpers.small_jvm import small_jvm
from tests.helpers.waiting import wait_for

LONGEST_PROPERTY = 4_000
"""Characters of a table's property, as in the databases of metastores before Hive 2.3, and of many after them."""

_OPENED = ("java.lang", "java.net", "java.util", "java.util.concurrent", "java.nio")


@dataclass(frozen=True)
class HiveServer:
    """Address of the server.

    Attributes:
        port: Port on 127.0.0.1.
        warehouse: Folder for tables, another one than the metastore's own warehouse.
    """

    port: int
    warehouse: Path

    @property
    def uri(self) -> str:
        """The URI of the catalog."""
        return f"thrift://{HOST}:{self.port}"


@contextlib.contextmanager
def hive_server(folder: Path) -> Iterator[HiveServer]:
    """Run it until the end.

    Args:
        folder: Folder for its database and its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
    jars = sorted((pyspark_folder() / "jars").glob("*.jar"))
    options = [f"-Dderby.stream.error.file={folder / 'derby.log'}", *opens]
    with small_jvm(jars, folder / "hive.log", options) as gateway:
        jvm = gateway.jvm
        database = f"jdbc:derby:{folder / 'metastore'};create=true"
        handler = _handler(jvm, folder, database)
        handler.get_all_tables("default")
        _limit_properties(jvm, database)
        transport = jvm.org.apache.thrift.transport.TServerSocket(jvm.java.net.InetSocketAddress(HOST, 0))
        server = _server(gateway, transport, handler)
        background_thread(_serve, "metastore", server).start()
        wait_for(server.isServing, "the metastore to serve", 60)
        try:
            yield HiveServer(transport.getServerSocket().getLocalPort(), folder / "tables")
        finally:
            server.stop()


def _serve(server: Any) -> None:
    # The call returns with the server's end, or fails with the JVM's.
    with contextlib.suppress(Exception):
        server.serve()


def _handler(jvm: Any, folder: Path, database: str) -> Any:
    hive = jvm.org.apache.hadoop.hive
    conf = hive.conf.HiveConf()
    for key, value in {
        "javax.jdo.option.ConnectionURL": database,
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "HikariCP",
        "hive.metastore.schema.verification": "false",
        # As Iceberg needs it: by default a column in the middle of a table is refused.
        "hive.metastore.disallow.incompatible.col.type.changes": "false",
        "hive.metastore.uris": "",
        "hive.metastore.warehouse.dir": (folder / "warehouse").as_uri(),
    }.items():
        conf.set(key, value)
    hive.metastore.txn.TxnDbUtil.setConfValues(conf)
    hive.metastore.txn.TxnDbUtil.prepDb(conf)
    return hive.metastore.HiveMetaStore.newRetryingHMSHandler("metastore", conf, True)


def _limit_properties(jvm: Any, database: str) -> None:
    connection = jvm.java.sql.DriverManager.getConnection(database)
    connection.createStatement().execute(
        f"ALTER TABLE TABLE_PARAMS ADD CONSTRAINT SHORT_PARAMS CHECK (LENGTH(PARAM_VALUE) <= {LONGEST_PROPERTY})"
    )
    connection.close()


def _server(gateway: Any, transport: Any, handler: Any) -> Any:
    jvm, thrift = gateway.jvm, gateway.jvm.org.apache.thrift
    options = jvm.java.lang.Class.forName("org.apache.thrift.server.TThreadPoolServer$Args")
    given = gateway.new_array(jvm.java.lang.Object, 1)
    given[0] = transport
    arguments = options.getConstructors()[0].newInstance(given)
    arguments.processor(jvm.org.apache.hadoop.hive.metastore.TSetIpAddressProcessor(handler))
    arguments.protocolFactory(thrift.protocol.TBinaryProtocol.Factory())
    return thrift.server.TThreadPoolServer(arguments)
