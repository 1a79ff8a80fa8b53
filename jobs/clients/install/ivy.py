"""Ivy inside PySpark: a resolver of JVM artifacts that needs only Java."""

from __future__ import annotations

import collections
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from jobs.base.errors import FrazilError
from jobs.clients.install.coordinates import Coordinate
from jobs.clients.install.preflight import REINSTALL, PreflightError, check_java, pyspark_folder

_FETCHED = re.compile(r"\[SUCCESSFUL \] [^#]+#([^;]+);([^!]+)!")
_PROBLEM = re.compile(r"UNRESOLVED|not found|FAILED|ERROR|Exception|refused|timed out|[Uu]nknown host|Server access")

# Ivy has no time-out by default.
_SILENCE_MS = 120_000
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <timeout-constraints>
    <timeout-constraint name="impatient" connectionTimeout="30000" readTimeout="{silence}"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="{usepoms}" timeoutConstraint="impatient"/>
  </resolvers>
</ivysettings>
"""


class IvyError(FrazilError):
    """Ivy could not resolve or fetch an artifact.

    Safe: Nothing was changed.
    Next: check the network, `JAVA_TOOL_OPTIONS` and `FRAZIL_IVY_SETTINGS`; then `make jars`
    """


def retrieve(
    coordinates: Sequence[Coordinate],
    target: Path,
    *,
    work: Path,
    label: str,
    total: int | None = None,
    on_progress: Callable[[str], None],
) -> None:
    """Fetch the jars of the coordinates into `target`, named `<artifact>-<version>.jar`.

    A coordinate with a classifier is another file of its module, `<artifact>-<version>-<classifier>.<packaging>`.

    Ivy verifies the repository's own checksums; it reads and writes nothing outside `work` and `target`.

    Args:
        coordinates: Modules to fetch.
        target: An existing or new folder.
        work: A folder for Ivy's cache, for this call only, because Ivy does not lock it.
        label: Name of the set in progress lines.
        total: Number of expected jars, if known.
        on_progress: Called with one line per jar.

    Raises:
        IvyError: Ivy failed, with its message; or no byte came for two minutes.
        PreflightError: Java or PySpark is missing.
    """
    work.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    module = work / "ivy.xml"
    module.write_text(_module(label, coordinates))
    settings = os.environ.get("FRAZIL_IVY_SETTINGS")
    if settings is None:
        # A POM names a chain of parents. To fetch one file, none of them is needed.
        usepoms = str(any(each.needs_pom for each in coordinates)).lower()
        (work / "ivysettings.xml").write_text(_SETTINGS.format(silence=_SILENCE_MS, usepoms=usepoms))
        settings = str(work / "ivysettings.xml")
    command = [
        str(check_java().executable),
        f"-Divy.default.ivy.user.dir={work}",
        "-cp",
        str(_ivy_jar()),
        "org.apache.ivy.Main",
        *("-settings", settings),
        *("-cache", str(work / "cache")),
        *("-ivy", str(module)),
        *("-types", *dict.fromkeys(["jar", "bundle", *(each.packaging for each in coordinates)])),
        *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    problems: collections.deque[str] = collections.deque(maxlen=4)
    fetched = 0
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if match := _FETCHED.search(line):
                    fetched += 1
                    of = f" of {total}" if total else ""
                    on_progress(f"{label}: {fetched}{of}: {match.group(1)} {match.group(2)}")
                elif _PROBLEM.search(line):
                    problems.append(line.strip(" \t\n:"))
            status = process.wait()
        except BaseException:
            process.kill()
            raise
    if status != 0:
        said = "; ".join(dict.fromkeys(filter(None, problems))) or f"Ivy ended with status {status}"
        raise IvyError(
            said, fix="check the network (a proxy goes into JAVA_TOOL_OPTIONS, a mirror into FRAZIL_IVY_SETTINGS)"
        )


def _ivy_jar() -> Path:
    folder = pyspark_folder() / "jars"
    jars = sorted(folder.glob("ivy-*.jar"))
    if not jars:
        raise PreflightError(f"PySpark's Ivy jar is missing in {folder}; the installation is incomplete", fix=REINSTALL)
    return jars[-1]


def _module(label: str, coordinates: Iterable[Coordinate]) -> str:
    lines = [
        f"    <dependency org={quoteattr(each.organisation)} name={quoteattr(each.name)} rev={quoteattr(each.version)}"
        f' conf="jars-&gt;default" transitive="{str(each.transitive).lower()}"{_artifact(each)}\n'
        for each in coordinates
    ]
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/extra">\n'
        f'  <info organisation="frazil" module={quoteattr("jars-" + label)} revision="1"/>\n'
        '  <configurations><conf name="jars"/></configurations>\n'
        "  <dependencies>\n" + "".join(lines) + "  </dependencies>\n</ivy-module>\n"
    )


def _artifact(coordinate: Coordinate) -> str:
    if coordinate.classifier is None:
        return "/>"
    name, packaging = quoteattr(coordinate.name), quoteattr(coordinate.packaging)
    jar = f'<artifact name={name} type="jar" ext="jar"/>' if coordinate.with_jar else ""
    return (
        f">{jar}<artifact name={name} type={packaging} ext={packaging}"
        f" m:classifier={quoteattr(coordinate.classifier)}/></dependency>"
    )
