"""Ivy, as it ships inside PySpark: the one resolver of JVM artifacts that needs nothing installed but Java."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import selectors
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from jobs.errors import FrazilError
from jobs.install.coordinates import Coordinate
from jobs.install.preflight import PreflightError, check_java, pyspark_folder

# Ivy sets no time-out on a socket, and says nothing of a large file before it has all of it.
_SILENCE_SECONDS = 120.0
_LOOK_SECONDS = 1.0
_PROGRESS_SECONDS = 10.0
_FETCHED = re.compile(r"\[SUCCESSFUL \] [^#]+#([^;]+);([^!]+)!")
_PROBLEM = re.compile(r"UNRESOLVED|not found|FAILED|ERROR|Exception|refused|timed out|[Uu]nknown host|Server access")

# A module's POM names a parent, which names another: none of it is needed to fetch one file.
_WITHOUT_POMS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


class IvyError(FrazilError):
    """Ivy could not resolve or fetch something."""


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
        coordinates: What to fetch.
        target: An existing or new folder.
        work: A folder for Ivy's cache, for this call alone: Ivy does not lock it.
        label: How the set is called in progress lines.
        total: How many jars are expected, if that is known.
        on_progress: Called with one line per jar, and now and then while a large one comes.

    Raises:
        IvyError: With what Ivy said; or no byte came for two minutes, however long the whole may take.
        PreflightError: Java or PySpark is missing.
    """
    work.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    module = work / "ivy.xml"
    module.write_text(_module(label, coordinates))
    settings = os.environ.get("FRAZIL_IVY_SETTINGS")
    if settings is None and not any(each.needs_pom for each in coordinates):
        (work / "ivysettings.xml").write_text(_WITHOUT_POMS)
        settings = str(work / "ivysettings.xml")
    command = [
        str(check_java().executable),
        f"-Divy.default.ivy.user.dir={work}",
        "-cp",
        str(_ivy_jar()),
        "org.apache.ivy.Main",
        *(["-settings", settings] if settings else []),
        *("-cache", str(work / "cache")),
        *("-ivy", str(module)),
        *("-types", *dict.fromkeys(["jar", "bundle", *(each.packaging for each in coordinates)])),
        *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    problems: collections.deque[str] = collections.deque(maxlen=4)
    fetched = 0
    try:
        for line in _lines(process, work, lambda size: on_progress(f"{label}: {size / 1e6:,.0f} MB so far")):
            if match := _FETCHED.search(line):
                fetched += 1
                of = f" of {total}" if total else ""
                on_progress(f"{label}: {fetched}{of}: {match.group(1)} {match.group(2)}")
            elif _PROBLEM.search(line):
                problems.append(line.strip(" \t\n:"))
        status = process.wait()
    finally:
        if process.stdout is not None:
            process.stdout.close()
        if process.poll() is None:
            process.kill()
            process.wait()
    if status != 0:
        said = "; ".join(dict.fromkeys(filter(None, problems))) or f"Ivy ended with status {status}"
        raise IvyError(
            said, fix="check the network (a proxy goes into JAVA_TOOL_OPTIONS, a mirror into FRAZIL_IVY_SETTINGS)"
        )


def _lines(process: subprocess.Popen[bytes], work: Path, say: Callable[[int], None]) -> Iterator[str]:
    """What Ivy says, line by line, for as long as it says anything or the files in its cache grow.

    Args:
        process: Ivy's.
        work: Its cache, which belongs to it alone.
        say: Told the bytes in there, every ten seconds in which no line came.

    Raises:
        IvyError: Neither happened for two minutes.
    """
    assert process.stdout is not None
    rest, size = b"", 0
    heard = told = looked = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(min(_LOOK_SECONDS, _SILENCE_SECONDS)):
                came = os.read(process.stdout.fileno(), 65536)
                if not came:
                    break
                heard = time.monotonic()
                *lines, rest = (rest + came).split(b"\n")
                if lines:
                    told = heard
                yield from (line.decode(errors="replace") for line in lines)
            now = time.monotonic()
            if now - looked >= _LOOK_SECONDS:
                looked, before, size = now, size, _size(work)
                heard = now if size != before else heard
            if now - heard > _SILENCE_SECONDS:
                said = f"the repository sent nothing for {_SILENCE_SECONDS:.0f} s"
                raise IvyError(said, fix="check the network; try again")
            if now - told > _PROGRESS_SECONDS:
                told = now
                say(size)
    if rest:
        yield rest.decode(errors="replace")


def _size(folder: Path) -> int:
    """Bytes of the files in a folder; some may be moved meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(parent, name).stat().st_size
    return total


def _ivy_jar() -> Path:
    folder = pyspark_folder() / "jars"
    jars = sorted(folder.glob("ivy-*.jar"))
    if not jars:
        raise PreflightError(f"PySpark's Ivy jar is missing in {folder}; the install is not whole", fix="make setup")
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
