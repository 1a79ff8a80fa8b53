"""Properties of a single-message transform, by Connect's names: read, checked, and none of them unknown."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from jobs.transform.columns import TransformProblem

LEGACY: Mapping[str, str] = {"blacklist": "exclude", "whitelist": "include"}
"""Names that Connect once had and now ignores in silence."""


class Properties:
    """What a block says beside `type`.

    Args:
        given: Names and values, as texts.
        smt: What messages call the transform.
        known: Every name that it has.

    Raises:
        TransformProblem: A name is unknown; it is placed at its key.
    """

    def __init__(self, given: Mapping[str, str], smt: str, known: Sequence[str]) -> None:
        self._given: dict[str, str] = dict(given)
        self._smt: str = smt
        for key in given:
            if key in known:
                continue
            if key in LEGACY and LEGACY[key] in known:
                hint = f"Kafka Connect ignores it in silence; write {LEGACY[key]}"
            elif near := difflib.get_close_matches(key, known, n=1, cutoff=0.6):
                hint = f"did you mean '{near[0]}'?"
            else:
                hint = f"it has {', '.join(known) or 'none'}"
            raise TransformProblem(f"{smt} has no property '{key}'; {hint}", (key,))

    def __contains__(self, key: str) -> bool:
        return key in self._given

    def text(self, key: str, default: str = "") -> str:
        """A property as it was written."""
        return self._given.get(key, default)

    def needed(self, key: str) -> str:
        """A property that has to be there, and says something.

        Raises:
            TransformProblem: It does not.
        """
        found = self._given.get(key, "")
        if not found:
            raise TransformProblem(f"{self._smt} needs '{key}'", (key,) if key in self else ())
        return found

    def names(self, key: str) -> tuple[str, ...]:
        """A list with commas between its entries, trimmed; empty without the property."""
        found = self._given.get(key, "")
        return tuple(each.strip() for each in found.split(",")) if found.strip() else ()

    def needed_names(self, key: str) -> tuple[str, ...]:
        """A list with at least one entry; raises as `needed` does."""
        self.needed(key)
        return self.names(key)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """A list of `one:other`.

        Raises:
            TransformProblem: An entry is no such pair.
        """
        found: list[tuple[str, str]] = []
        for each in self.names(key):
            one, colon, other = (part.strip() for part in each.partition(":"))
            if not colon or not one or not other or ":" in other:
                raise TransformProblem(f"'{each}' in {key} is no pair such as field:name", (key,))
            found.append((one, other))
        return tuple(found)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false.

        Raises:
            TransformProblem: It says something else.
        """
        return self.choice(key, ("true", "false"), str(default).lower(), ignore_case=True) == "true"

    def choice(self, key: str, values: Sequence[str], default: str | None = None, *, ignore_case: bool = False) -> str:
        """One of some words.

        Args:
            key: The property.
            values: The words.
            default: Without the property; None: it has to be there.
            ignore_case: Whether it may be written in whatever case.

        Raises:
            TransformProblem: It is another one.
        """
        found = self.needed(key) if default is None else self._given.get(key, default)
        known = {each.casefold() if ignore_case else each: each for each in values}
        if (found.casefold() if ignore_case else found) not in known:
            folded = {each.casefold(): each for each in values}
            near = difflib.get_close_matches(found.casefold(), folded, n=1, cutoff=0.5)
            hint = f"did you mean '{folded[near[0]]}'?" if near else f"it is one of {', '.join(values)}"
            raise TransformProblem(f"{self._smt} has no {key} '{found}'; {hint}", (key,))
        return known[found.casefold() if ignore_case else found]
