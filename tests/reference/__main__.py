"""Command of the reference: `python -m tests.reference` writes the generated pages, `… words` counts the others."""

from __future__ import annotations

import sys

from tests.reference.pages import DOCS, GENERATED, PAGES
from tests.reference.words import count_docs


def write_pages() -> None:
    """Write every generated page."""
    for name, made in PAGES.items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made(), encoding="utf-8")
        print(f"docs/{name} is written.")


def print_counts() -> None:
    """Print words, pages and lengths of sentences of the pages that people write."""
    written = [path for path in sorted(DOCS.rglob("*.md")) if path.relative_to(DOCS).as_posix() not in GENERATED]
    counts = count_docs(written)
    print(f"pages      {counts.pages:>8,}")
    print(f"words      {counts.words:>8,}")
    print(f"sentences  {counts.sentences:>8,}")
    print(f"words of a sentence: median {counts.median:g}, p90 {counts.p90:g}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            write_pages()
        case ["words"]:
            print_counts()
        case _:
            sys.exit("usage: python -m tests.reference [words]")
