"""Small JVM for tests, which is talked to by py4j and ends with whoever asked for it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs.clients.install.preflight import check_java, pyspark_folder


@contextlib.contextmanager
def small_jvm(jars: Sequence[Path], log: Path, options: Sequence[str] = ()) -> Iterator[Any]:
    """Start one with these jars on its class path; gives py4j's gateway to it.

    Args:
        log: File of its output.
        options: Further ones of the JVM.
    """
    # Imported here: only tests with a JVM need it.
    from py4j import java_gateway, protocol
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    installed: Any = java_gateway.get_return_value
    py4j = next((pyspark_folder() / "jars").glob("py4j-*.jar"))
    with log.open("w") as output:
        launched: Any = launch_gateway(
            jarpath=str(py4j),
            classpath=os.pathsep.join(map(str, [py4j, *jars])),
            javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options],
            java_path=str(check_java().executable),
            die_on_exit=True,
            redirect_stdout=output,
            redirect_stderr=output,
            return_proc=True,
        )
        port, process = launched
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        # PySpark installs a reader of answers that converts errors by Spark's JVM.
        java_gateway.get_return_value = protocol.get_return_value
        try:
            yield gateway
        finally:
            java_gateway.get_return_value = installed
            with contextlib.suppress(Exception):
                gateway.shutdown()
            process.stdin.close()
            process.kill()
            process.wait()
