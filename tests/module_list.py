"""Generator of the module list and of the drawing of the packages: `python -m tests.module_list` writes both."""

from __future__ import annotations

import ast
from html import escape
from pathlib import Path

from tests.helpers.import_order import LAYERS, ORDER, ROOT, child_names

PAGE = ROOT / "docs" / "reference" / "modules.md"
DRAWING = ROOT / "docs" / "images" / "packages.svg"
_HEAD = """\
# Modules

Every module with the first line of its docstring, in import order: a package imports only what stands before it.
`python -m tests.module_list` writes this page, and `tests/unit/test_module_list.py` holds it.
[architecture.md](../architecture.md) has the packages on one page.
"""
_WIDTH, _ROW, _GAP, _LEFT = 960, 44, 6, 210
_STYLE = """\
  <style>
    text { font-family: system-ui, sans-serif; font-size: 13px; fill: #1f2933; }
    .name { font-weight: 600; font-size: 15px; }
    .parts { font-size: 12px; fill: #52606d; }
    .jobs { fill: #e3f2fd; stroke: #90b4ce; }
    .above { fill: #fff3e0; stroke: #d9b382; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4e7eb; }
      .parts { fill: #9aa5b1; }
      .jobs { fill: #102a43; stroke: #486581; }
      .above { fill: #3e2c12; stroke: #8d6b3a; }
    }
  </style>
"""


def first_line(path: Path) -> str:
    """First line of a module's docstring, without its full stop; empty if it has none."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n", 1)[0].rstrip(".")


def children(package: str) -> list[str]:
    """Dotted names of what stands in a package, in import order where it has one, else by name."""
    names = ORDER.get(package) or sorted(child_names(package))
    return [f"{package}.{name}" for name in names]


def _file(name: str) -> Path:
    folder = ROOT / name.replace(".", "/")
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def _is_package(name: str) -> bool:
    return (ROOT / name.replace(".", "/")).is_dir()


def _package_lines(package: str, level: int) -> list[str]:
    lines = [f"{'#' * level} {package}", ""]
    if purpose := first_line(_file(package)):
        lines += [f"{purpose}.", ""]
    modules = [name for name in children(package) if not _is_package(name)]
    if modules:
        lines += ["| module | what it is |", "|---|---|"]
        for name in modules:
            text = first_line(_file(name)).replace("|", "\\|")
            lines.append(f"| `{name.rsplit('.', 1)[1]}` | {text} |")
        lines.append("")
    for name in children(package):
        if _is_package(name):
            lines += _package_lines(name, min(level + 1, 4))
    return lines


def module_page() -> str:
    """The page docs/reference/modules.md."""
    lines = [_HEAD]
    for layer in LAYERS:
        lines += _package_lines(layer, 2)
    return "\n".join(lines).rstrip() + "\n"


def package_drawing() -> str:
    """The drawing docs/images/packages.svg: packages from the top down, each imports only what is below it."""
    rows = [("above", name, first_line(_file(name)), "") for name in reversed(LAYERS[1:])]
    for name in reversed(children("jobs")):
        purpose = first_line(_file(name))
        if not purpose.startswith("Former"):
            parts = " · ".join(part.rsplit(".", 1)[1] for part in children(name))
            rows.append(("jobs", name.replace(".", "/"), purpose, parts))
    height = len(rows) * (_ROW + _GAP) + _GAP
    boxes: list[str] = []
    for number, (kind, name, purpose, parts) in enumerate(rows):
        top = _GAP + number * (_ROW + _GAP)
        boxes += [
            f'<rect class="{kind}" x="4" y="{top}" width="{_WIDTH - 8}" height="{_ROW}" rx="6"/>',
            f'<text class="name" x="18" y="{top + 27}">{escape(name)}</text>',
            f'<text x="{_LEFT}" y="{top + (19 if parts else 27)}">{escape(purpose)}</text>',
        ]
        if parts:
            boxes.append(f'<text class="parts" x="{_LEFT}" y="{top + 36}">{escape(parts)}</text>')
    lines = "".join(f"  {box}\n" for box in boxes)
    title = "Packages of frazil; each imports only those below it"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{title}">\n'
        f"  <title>{title}</title>\n{_STYLE}{lines}</svg>\n"
    )


if __name__ == "__main__":
    PAGE.write_text(module_page(), encoding="utf-8")
    DRAWING.write_text(package_drawing(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} and {DRAWING.relative_to(ROOT)} are written.")
