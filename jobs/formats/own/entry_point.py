"""Entry points of decoders of one's own: which an installed package declares, and in which version."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "frazil.decoders"
"""The group of entry points in which a package names its decoders."""


class NoSuchDecoderError(Exception):
    """No decoder of a name can be had here; the message says why, and what to do."""


@lru_cache(maxsize=64)
def loaded(name: str) -> Callable[..., Any]:
    """The function behind a name.

    Raises:
        NoSuchDecoderError: No package that is installed here declares it, several do, or it cannot be imported.
    """
    found = _declared(name)
    try:
        function = found.load()
    except Exception as problem:
        raise NoSuchDecoderError(
            f"the decoder `{name}`, which is `{found.value}`, cannot be imported here "
            f"({type(problem).__name__}: {problem}); install its package wherever frazil runs"
        ) from None
    if not callable(function):
        raise NoSuchDecoderError(f"the decoder `{name}`, which is `{found.value}`, is no function")
    return function


@lru_cache(maxsize=64)
def version_of(name: str) -> str:
    """The package that declares a decoder, with its version: another one may give other rows.

    Raises:
        NoSuchDecoderError: As of `loaded`.
    """
    package = _declared(name).dist
    if package is None:
        raise NoSuchDecoderError(f"the decoder `{name}` belongs to no installed package")
    return f"{package.name} {package.version}"


def _declared(name: str) -> EntryPoint:
    every = entry_points(group=GROUP)
    # One package may be found at two places of the path, of which the first counts.
    found = {each.value: each for each in reversed(tuple(every)) if each.name == name}
    if not found:
        there = ", ".join(sorted({each.name for each in every})) or "none"
        raise NoSuchDecoderError(
            f"no package that is installed here declares a decoder `{name}` as an entry point of {GROUP}; there are: "
            f"{there}"
        )
    if len(found) > 1:
        raise NoSuchDecoderError(f"several packages declare a decoder `{name}`: {', '.join(sorted(found))}")
    return next(iter(found.values()))
