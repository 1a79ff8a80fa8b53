"""Tables for a width: nothing is wider than the terminal, no number is folded, no short name broken."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from orchestration.cli.common.column_layout import GAP, fold_text, lay_out, paragraphs
from orchestration.cli.common.terminal import print_columns

NAMES = ("stream", "reason", "rows")
ROWS = [["payments", "a rule of the contract is not met by some of the rows", "1,000"]]


def test_what_fits_stays_as_it_is() -> None:
    layout = lay_out(NAMES, ROWS, 80, text=NAMES[:2])
    assert (layout.widths, layout.left_out) == ({"stream": 8, "reason": 53, "rows": 5}, ())


def test_columns_are_left_out_before_texts_are_folded() -> None:
    layout = lay_out(NAMES, ROWS, 60, text=NAMES[:2], optional=["rows", "stream"])
    assert (layout.widths, layout.left_out) == ({"reason": 53}, ("rows", "stream"))
    layout = lay_out(NAMES, ROWS, 40, text=NAMES[:2])
    assert (layout.widths, layout.left_out) == ({"stream": 8, "reason": 23, "rows": 5}, ())


def test_what_fits_nowhere_becomes_paragraphs() -> None:
    names = [f"column {number}" for number in range(12)]
    rows = [[f"{number:,}" for number in range(1_000_000, 1_000_012)]]
    assert lay_out(names, rows, 80, text=()).widths is None
    lines = list(paragraphs(names, rows, 80))
    assert lines[0] == "1,000,000"
    assert lines[1].startswith("  column 1 1,000,001 · column 2 1,000,002 · ")
    assert max(map(len, lines)) <= 80


@given(
    st.lists(st.tuples(*[st.text(st.characters(categories=["L", "Nd", "Zs"]), max_size=40)] * 4), max_size=4),
    st.integers(20, 200),
    st.sets(st.sampled_from("abcd")),
    st.lists(st.sampled_from("abcd"), unique=True, max_size=3),
)
def test_a_layout_is_never_wider_than_asked(
    rows: list[tuple[str, ...]], width: int, text: set[str], optional: list[str]
) -> None:
    layout = lay_out("abcd", rows, width, text=text, optional=optional)
    if layout.widths is None:
        return
    assert sum(layout.widths.values()) + GAP * (len(layout.widths) - 1) <= width
    assert {*layout.widths} | {*layout.left_out} == set("abcd")
    assert {*layout.left_out} <= {*optional}
    for name, wide in layout.widths.items():
        if name not in text:
            assert all(cell_len(row["abcd".index(name)]) <= wide for row in rows)


@pytest.mark.parametrize("columns", ["80", "50", "30", "200"])
def test_lines_are_not_wider_than_the_terminal(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    names = ["table", "what is wrong with it", "files", "bytes", "snapshots"]
    rows = [["orders.payments", "too many small files, and [brackets] that are no markup", 12_345, 9_876_543, None]] * 3
    assert print_columns(names, rows, text=names[:2], optional=["snapshots"]) in ((), ("snapshots",))
    out = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= int(columns)
    assert "orders.payments" in out and "12,345" in out
    assert "[brackets]" in " ".join(out.split())


@given(st.text("ab .-_/é界", max_size=60), st.integers(2, 20))
def test_a_text_is_folded_between_words_and_behind_separators(text: str, width: int) -> None:
    folded = fold_text(text, width)
    lines = folded.split("\n")
    assert all(cell_len(line) <= width for line in lines)
    assert folded.replace("\n", "").replace(" ", "") == text.replace(" ", "")
    for line, following in pairwise(lines):
        pieces = re.split(r"(?<=[ ./_-])", f"{line}{following}")
        at_end = line.endswith((" ", ".", "-", "_", "/"))
        between_words = f"{line} {following}" in text
        assert at_end or between_words or max(map(cell_len, pieces)) > width


def test_a_long_name_is_broken_at_its_separators_or_the_row_becomes_a_paragraph(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ["of the tables", "frazil", "there", "note"]
    rows = [
        ["property write.metadata.delete-after-commit.enabled", "true", "–", ""],
        ["property write.data.path", "–", "s3://warehouse/orders/payments-of-the-former-sink/data", ""],
    ]
    print_columns(names, rows, text=names, whole=True)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    words = [word for line in lines for word in line]
    assert {"write.metadata.delete-after-", "commit.enabled", "write.data.path"} <= {*words}
    rows = [[f"column {'customerShippingAddress' * 3}", "timestamptz not null", "timestamp not null", "a note"]]
    print_columns(names, rows, text=names, whole=True)
    assert f"column {'customerShippingAddress' * 3}\n" in capsys.readouterr().out


def test_a_text_that_fits_keeps_its_indent() -> None:
    assert fold_text("  kind=sale", 12) == "  kind=sale"
    assert fold_text("  kind=sale of all", 12) == "  kind=sale\nof all"
