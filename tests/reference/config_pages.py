"""Pages of the YAML keys: docs/reference/stream-file.md and settings.md."""

from __future__ import annotations

import re

from jobs.config.settings.settings import SettingsFile
from jobs.config.stream.models import StreamSpec
from tests.reference.model_keys import Block, Key, blocks, example_lines

ROOTS = {"streams": StreamSpec, "settings": SettingsFile}
"""Models of whole files, by the folder of their example files."""
_STREAM = """\
# Keys of a stream's file

One file `streams/NAME.yaml` describes one stream. Required are `stream`, `source` with `topics` or `topics_pattern`,
`decode.value`, `decode.schema` and `table.name`. An unknown key is refused, with its line and the nearest known key.
"""
_SETTINGS = """\
# Keys of the settings

The file `frazil.yaml` stands beside the folder `streams`. Without it, or without one of its sections, the local default
counts: a broker, a catalog and a state under `.frazil/`.
"""
_COMMON = """
A duration is a whole number with a unit: `500ms`, `30s`, `5m`, `2h`, `1d`. A size has `B`, `KB`, `MB`, `GB` or `TB`, in
powers of 1024. A secret is a reference, `${env:NAME}` or `${file:/PATH}`. A relative path starts at the folder of its
file. `python -m tests.reference` writes this page from the models in `jobs/config`.
"""


def stream_page() -> str:
    """The page docs/reference/stream-file.md."""
    return _page(_STREAM, blocks(StreamSpec, example_lines(ROOTS)))


def settings_page() -> str:
    """The page docs/reference/settings.md."""
    return _page(_SETTINGS, blocks(SettingsFile, example_lines(dict(reversed(ROOTS.items())))))


def _page(head: str, parts: list[Block]) -> str:
    return "\n".join([head + _COMMON, *(_section(part) for part in parts)]).rstrip() + "\n"


def _section(block: Block) -> str:
    heading = f"## `{block.path}`\n\n{block.summary}\n" if block.path else "## Top level\n"
    rows = [f"| `{key.name}` | {_cell(key.type)} | {key.default} | {_meaning(key)} |" for key in block.keys]
    return "\n".join([heading, "| key | type | default | meaning |", "|---|---|---|---|", *rows, ""])


def _meaning(key: Key) -> str:
    links = [f"[`{path}`](#{anchor(path)})" for path in key.blocks]
    more = f" Keys: {', '.join(links)}." if links else ""
    example = f"<br>`{key.example}`" if key.example else ""
    return _cell(f"{key.description}{more}{example}")


def anchor(path: str) -> str:
    """Anchor of the section of a path, as renderers of Markdown make it."""
    return re.sub(r"[^\w\- ]", "", path.lower()).replace(" ", "-")


def _cell(text: str) -> str:
    if "|" in text:
        raise ValueError(f"a pipe ends a cell of a table: {text}")
    return text
