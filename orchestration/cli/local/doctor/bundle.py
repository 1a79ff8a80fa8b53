"""Bundle of `frazil doctor`: an archive of findings, settings and logs for a maintainer, with secrets redacted."""

from __future__ import annotations

import base64
import contextlib
import importlib.metadata
import io
import json
import os
import re
import tarfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from jobs.base.errors import FrazilError
from jobs.base.system.mounted import mounted_text, texts_read
from jobs.base.system.private_files import private_opener
from jobs.clients.state_store.stream_folder import state_store
from jobs.config.documents.secrets import REFERENCE, WrittenSecret, holds_secret, secrets_in
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings, secret_references
from jobs.config.stream.models import StreamSpec
from orchestration.cli.common.dagster_instance import dagster_home
from orchestration.cli.common.unexpected_error import FOLDER as ERRORS_FOLDER
from orchestration.cli.stream_files.validate.findings import Finding, finding_facts
from resources.deployment import Deployment

REDACTED = "(redacted)"
_LOG_LINES = 500
_LOG_BYTES = 1_000_000
_ERROR_FILES = 10
_MOST_DOCUMENTS = 2_000
# Shorter secrets also occur as parts of ordinary words and numbers.
_LEAST_SECRET = 4
_LOGS = ("*.log", "*.out", "*.log.*", "*.previous")
# Fields of state documents whose texts frazil chooses. Other texts may come from users or from records.
_PLAIN_FIELDS = frozenset({"state", "mode", "kind", "format", "launcher", "phase"})
_ENVIRONMENT = re.compile(r"^(FRAZIL_|DAGSTER_|JAVA_|SPARK_|PYTHON|HOME$|TZ$|LANG$)")

# A password may contain a slash, so a port with a path is sometimes redacted, too.
_USERINFO = re.compile(r"(?P<before>://)(?:[^/\s@'\"]+|[^/:\s@'\"]*:[^\s@'\"]+)@")
_PAIR = re.compile(
    r"""(?P<key>[A-Za-z0-9_.-]*(?:passw|passphrase|secret|token|credential|authorization|signature|\bsig\b|\bpwd\b|jaas\.config|
        (?:account|api|access|private|ssl)[-_.]?key(?![-_.](?:id|file|path)))[A-Za-z0-9_.-]*)
        (?P<between>["']?\s*[=:]\s*)(?P<value>"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\S[^\n]*)""",
    re.IGNORECASE | re.VERBOSE,
)
_BEARER = re.compile(r"(?P<before>\b(?:bearer|basic)\s+)[A-Za-z0-9+/._~=-]{8,}", re.IGNORECASE)
# JSON Web Tokens, and URLs that are secrets themselves.
_KNOWN = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*|(?<=hooks\.slack\.com/)[\w/-]+")
_KEY_BLOCK = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


class Redaction:
    """Redaction of texts: replaces the values of secret references, and whatever looks like a secret.

    Args:
        settings: The settings; None if they cannot be read.
        specs: Specs of the streams whose files are valid.
        files: Texts of the files of settings and streams, valid or not; their secret references are replaced, too.
    """

    def __init__(self, settings: Settings | None, specs: Sequence[StreamSpec], files: Iterable[str]) -> None:
        self._settings: Settings | None = settings
        self._also: tuple[Any, ...] = tuple(secrets_in(specs))
        self._values: dict[str, str] = {}
        for text in files:
            for match in REFERENCE.finditer(text):
                for value in _values_of(match):
                    self._add(value, match[0])
        for secret in (*(secret_references(settings) if settings is not None else ()), *self._also):
            if isinstance(secret, WrittenSecret):
                for name, value in secret.variables:
                    self._add(value, f"${{env:{name}}}")

    def _add(self, value: str, shown: str) -> None:
        if len(value) >= _LEAST_SECRET:
            escaped = json.dumps(value)[1:-1]
            encoded = base64.b64encode(value.encode()).decode()
            for form in (value, quote(value, safe=""), quote(value), escaped, encoded):
                self._values[form] = shown

    def clean(self, text: str) -> str:
        """Redact a text. Whatever follows the name of a secret on its line is replaced."""
        if self._settings is not None:
            text = redacted(self._settings, text, self._also)
        # The longest value goes first, as one secret may be a part of another.
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, self._values[value])
        text = _KNOWN.sub(REDACTED, _KEY_BLOCK.sub(REDACTED, text))
        text = _USERINFO.sub(rf"\g<before>{REDACTED}@", text)
        text = _PAIR.sub(_pair_redacted, text)
        return _BEARER.sub(rf"\g<before>{REDACTED}", text)

    def clean_json(self, node: Any) -> str:
        """Write facts as JSON, with each text redacted."""
        return json.dumps(self._cleaned(node), indent=2, default=str) + "\n"

    def _cleaned(self, node: Any) -> Any:
        if isinstance(node, Mapping):
            return {name: self._cleaned(value) for name, value in node.items()}
        if isinstance(node, list):
            return [self._cleaned(value) for value in node]
        return self.clean(node) if isinstance(node, str) else node

    def clean_yaml(self, text: str) -> str:
        """Redact the text of a YAML file, and drop its comments, which may contain anything.

        Keys that name a secret keep only references to variables and files as values.
        """
        try:
            documents = list(yaml.safe_load_all(text))
        except yaml.YAMLError as problem:
            mark = getattr(problem, "problem_mark", None)
            return f"# Left out: it is no YAML{f' at line {mark.line + 1}' if mark is not None else ''}.\n"
        bare = [_without_values(document) for document in documents]
        return self.clean(yaml.safe_dump_all(bare, sort_keys=False, allow_unicode=True))


def _values_of(reference: re.Match[str]) -> Iterator[str]:
    """Values of a secret reference: the current one, and those that this process has read from its file before."""
    if reference[1]:
        yield os.environ.get(reference[1], "")
        return
    try:
        yield mounted_text(reference[2])
    except (OSError, ValueError):
        # The lines of a file that is no valid secret may be secret all the same.
        with contextlib.suppress(OSError):
            yield from Path(reference[2]).read_text(errors="replace").splitlines()
    yield from texts_read(reference[2])


def _pair_redacted(match: re.Match[str]) -> str:
    value = match["value"]
    rest = REFERENCE.sub("", value).strip(" \"',;{}[]()")
    kept = not rest or rest == REDACTED or rest in ("null", "None", "true", "false")
    return match[0] if kept else f"{match['key']}{match['between']}{REDACTED}"


def _without_values(node: Any, key: str = "") -> Any:
    if isinstance(node, Mapping):
        return {name: _without_values(value, str(name)) for name, value in node.items()}
    if isinstance(node, list):
        return [_without_values(value, key) for value in node]
    if isinstance(node, str) and holds_secret(key) and REFERENCE.sub("", node).strip():
        return REDACTED
    return node


def write_bundle(
    file: Path,
    deployment: Deployment,
    specs: Sequence[StreamSpec],
    settings: Settings | None,
    findings: Sequence[Finding],
    versions: Mapping[str, str],
) -> list[str]:
    """Write the archive, readable by its owner only, and return the names of the files in it.

    Args:
        file: The archive, gzipped tar; must not exist.
        settings: The settings; None if they cannot be read.

    Raises:
        FrazilError: The file exists or cannot be written.
    """
    sources = list(_yaml_files(deployment))
    redaction = Redaction(settings, specs, [text for _, text in sources])
    written: list[str] = []
    try:
        with (
            open(file, "xb", opener=private_opener) as raw,
            tarfile.open(fileobj=raw, mode="w:gz") as archive,
        ):
            for name, text in _contents(deployment, settings, findings, versions, sources, redaction):
                data = text.encode()
                # A file's name may contain names of streams and users, but no secret.
                entry = tarfile.TarInfo(f"frazil-doctor/{redaction.clean(name)}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))
                written.append(name)
    except FileExistsError:
        raise FrazilError(f"{file} exists, and nothing is written over.", fix="name another file") from None
    except OSError as problem:
        raise FrazilError(f"{file} cannot be written: {problem.strerror}", fix="name another file") from None
    return written


def _contents(
    deployment: Deployment,
    settings: Settings | None,
    findings: Sequence[Finding],
    versions: Mapping[str, str],
    sources: Sequence[tuple[str, str]],
    redaction: Redaction,
) -> Iterator[tuple[str, str]]:
    facts = {"versions": versions, "findings": [finding_facts(finding) for finding in findings]}
    yield "findings.json", redaction.clean_json(facts)
    packages = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    yield "packages.txt", "".join(f"{name}=={version}\n" for name, version in sorted(packages.items()))
    names = sorted(name for name in os.environ if _ENVIRONMENT.match(name))
    yield "environment.txt", "# Names only.\n" + "".join(f"{name}\n" for name in names)
    for name, text in sources:
        yield name, redaction.clean_yaml(text)
    if settings is not None:
        errors = sorted((settings.state / ERRORS_FOLDER).glob("*.txt"))[-_ERROR_FILES:]
        for path in errors:
            yield f"errors/{path.name}", redaction.clean(_tail(path))
        yield "state.json", redaction.clean_json(_state_summary(settings))
    for name, path in _log_files(deployment, settings):
        yield f"logs/{name}", redaction.clean(_tail(path))


def _yaml_files(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """Yield the name in the bundle and the text of the settings, each stream's file and Dagster's settings."""
    settings = deployment.settings_file or deployment.home / "frazil.yaml"
    home = dagster_home(deployment)
    files = [
        ("settings.yaml", settings),
        *((f"streams/{path.name}", path) for path in sorted(deployment.streams_folder.glob("*.y*ml"))),
        *((f"dagster/{name}", home / name) for name in ("dagster.yaml", "workspace.yaml")),
    ]
    for name, path in files:
        try:
            yield name, path.read_text(errors="replace")
        except OSError:
            continue


def _log_files(deployment: Deployment, settings: Settings | None) -> Iterator[tuple[str, Path]]:
    """Yield the name in the bundle and the path of each log: of drivers, Dagster's services, broker and registry."""
    roots = [
        ("broker", deployment.embedded / "broker"),
        ("registry", deployment.embedded / "registry"),
        ("dagster", deployment.embedded / "dagster"),
    ]
    for name, folder in roots:
        for pattern in _LOGS:
            yield from ((f"{name}/{path.name}", path) for path in sorted(folder.glob(pattern)) if path.is_file())
    if settings is not None:
        for path in sorted(settings.state.glob("**/logs/*")):
            if path.is_file():
                yield "/".join(path.relative_to(settings.state).parts), path


def _tail(path: Path) -> str:
    """Read the last lines of a file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_BYTES))
            lines = deque(file.read().decode(errors="replace").splitlines(), maxlen=_LOG_LINES)
    except OSError as problem:
        return f"(cannot be read: {problem.strerror})\n"
    if size > _LOG_BYTES and len(lines) < _LOG_LINES:
        # The first line may be cut: a secret without its name would not be redacted.
        lines.popleft()
    return "".join(f"{line}\n" for line in lines)


def _state_summary(settings: Settings) -> dict[str, Any]:
    """Summarize the documents in the state store: sizes, numbers, and texts that frazil chooses."""
    try:
        store = state_store(settings)
        keys = [key for depth in range(1, 6) for key in store.keys("/".join(["*"] * (depth - 1) + ["*.json"]))]
        shown = {key: _document_summary(store.get(key)) for key in keys[:_MOST_DOCUMENTS]}
    except (OSError, FrazilError) as problem:
        return {"problem": str(problem)}
    return {"documents": len(keys), "now": time.time(), "summaries": shown}


def _document_summary(content: bytes | None) -> dict[str, Any] | None:
    if content is None:
        return None
    try:
        document = json.loads(content)
    except ValueError:
        return {"bytes": len(content), "damaged": True}
    return {"bytes": len(content), "fields": _numbers(document)}


def _numbers(node: Any, key: str = "") -> Any:
    if isinstance(node, Mapping):
        return {name: _numbers(value, str(name)) for name, value in node.items()}
    if isinstance(node, list):
        return f"({len(node)} entries)"
    if isinstance(node, str):
        return node if key in _PLAIN_FIELDS else f"({len(node)} characters)"
    return node
