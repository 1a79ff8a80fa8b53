"""Lines of a file of records, as editors, spreadsheets and shells leave such files."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.local.generate.record_lines import record_lines

TEXT = '{"id": "a"}\n\n  {"id": "ü"}  \n'
LINES = [b'{"id": "a"}', '{"id": "ü"}'.encode()]


@pytest.mark.parametrize("text", [TEXT, "\ufeff" + TEXT, TEXT.replace("\n", "\r\n"), "\ufeff\n" + TEXT])
def test_lines_are_stripped_and_a_mark_of_utf_8_is_no_part_of_them(text: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_bytes(text.encode())
    assert list(record_lines(file)) == LINES


@pytest.mark.parametrize("name", ["gzip", "UTF-16"])
def test_a_file_of_another_form_comes_with_the_command_that_makes_text_of_it(name: str, tmp_path: Path) -> None:
    file = tmp_path / "my orders.jsonl"
    file.write_bytes(gzip.compress(TEXT.encode()) if name == "gzip" else TEXT.encode("utf-16"))
    with pytest.raises(FrazilError, match=name) as refused:
        list(record_lines(file))
    command = (refused.value.fix or "").removesuffix(", and name that file")
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"{command.split()[0]} is not on this machine")
    subprocess.run(command, shell=True, check=True)
    assert list(record_lines(tmp_path / "my orders-lines.jsonl")) == LINES


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(FrazilError, match=r"none\.jsonl cannot be read: No such file"):
        list(record_lines(tmp_path / "none.jsonl"))
