"""Regular expressions of Java in Python: patterns that mean the same in both, and replacements with their groups."""

from __future__ import annotations

import re

from jobs.transform.columns import TransformProblem

_NAMED = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
_NAMED_BACK = re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>")
# What Python does not know, or reads otherwise.
_OTHER = re.compile(r"\\[pPQEGhHRXzN]|\\0|&&|\[[^\]]*\[")
_GROUP = re.compile(r"\\(.)|\$(\d)|\$\{([A-Za-z][A-Za-z0-9]*)\}|([\\$])", re.DOTALL)


def java_pattern(text: str, key: str) -> re.Pattern[str]:
    """A pattern of Java.

    Args:
        text: The pattern.
        key: The property that it stands in.

    Raises:
        TransformProblem: It is none, or has what only Java knows.
    """
    if match := _OTHER.search(text):
        hint = "write the characters, such as [A-Za-z] or [0-9]"
        raise TransformProblem(f"'{match.group()}' in {key} is known to Java alone; {hint}", (key,))
    translated = _NAMED_BACK.sub(r"(?P=\1)", _NAMED.sub(r"(?P<\1>", text))
    try:
        # Java's \d, \w and \s are ASCII.
        return re.compile(translated, re.ASCII)
    except re.error as problem:
        raise TransformProblem(f"{key} '{text}' is no regular expression: {problem}", (key,)) from None


class Replacement:
    r"""What takes the place of a whole match, in Java's words: `$1`, `${name}`, and `\` before a character.

    Args:
        text: The replacement.
        pattern: Whose groups it may name.
        key: The property that it stands in.

    Raises:
        TransformProblem: It names a group that the pattern does not have.
    """

    def __init__(self, text: str, pattern: re.Pattern[str], key: str) -> None:
        self._parts: list[str | tuple[int | str]] = []
        end = 0
        while match := _GROUP.search(text, end):
            self._parts.append(text[end : match.start()])
            end = match.end()
            escaped, number, name, alone = match.groups()
            if alone:
                raise TransformProblem(f"'{alone}' in {key} needs a group behind it, or \\ before it", (key,))
            if escaped is not None:
                self._parts.append(escaped)
            elif number is not None:
                group, end = _number(text, int(number), end, pattern.groups)
                if group > pattern.groups:
                    known = f"and the pattern has {pattern.groups}"
                    raise TransformProblem(f"{key} names the group {group}, {known}", (key,))
                self._parts.append((group,))
            else:
                if name not in pattern.groupindex:
                    known = ", ".join(pattern.groupindex) or "none"
                    raise TransformProblem(f"{key} names the group '{name}', and the pattern has {known}", (key,))
                self._parts.append((name,))
        self._parts.append(text[end:])

    def of(self, match: re.Match[str]) -> str:
        """The text for a match; a group that took no part gives nothing."""
        return "".join(each if isinstance(each, str) else match.group(each[0]) or "" for each in self._parts)


def _number(text: str, group: int, end: int, groups: int) -> tuple[int, int]:
    """The group's number: Java takes further digits as long as there is such a group."""
    while end < len(text) and text[end] in "0123456789" and group * 10 + int(text[end]) <= groups:
        group = group * 10 + int(text[end])
        end += 1
    return group, end
