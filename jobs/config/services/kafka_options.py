"""Options of Kafka's clients that a file may set, with their allowed values and the clients that get them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from jobs.config.documents.base import Problem, problems_at

OptionValue = int | bool | str


@dataclass(frozen=True, slots=True)
class KafkaOption:
    """One option that may be set.

    Attributes:
        bounds: Bounds of an integer, both included.
        words: Allowed words; empty for any text.
        clients: ``reading``: consumers that read records; ``all``: every client of librdkafka; ``planner``: only the
            client of Spark's planner.
        librdkafka: Name in librdkafka, if it differs.
        java: Name in the Java client of Spark's planner; None if that does not get the option.
    """

    kind: Literal["number", "flag", "word", "text"]
    clients: Literal["reading", "all", "planner"]
    bounds: tuple[int, int] = (0, 0)
    words: tuple[str, ...] = ()
    librdkafka: str | None = None
    java: str | None = None


_DATA: Mapping[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def _option(entry: Mapping[str, Any]) -> KafkaOption:
    several = {name: tuple(entry[name]) for name in ("bounds", "words") if name in entry}
    return KafkaOption(**{**entry, **several})


KNOWN: dict[str, KafkaOption] = {name: _option(entry) for name, entry in _DATA["options"].items()}
"""Options that may be set, by name."""
_OTHER_NAMES: Mapping[str, str] = _DATA["other_names"]
_REASONS: Mapping[str, str] = _DATA["reasons"]
"""Why other options may not be set, by name."""
_BLOCKS = (
    (("security.", "sasl.", "ssl."), "is a matter of kafka.security in frazil.yaml, which takes secrets as references"),
    (("kafka.",), "is written without the kafka. in front"),
)
_TEXT = re.compile(r"[A-Za-z0-9._-]{1,200}")
# librdkafka's defaults, for comparing one option with another.
_RECONNECT, _RECONNECT_MAX, _FETCH_MAX = 100, 10_000, 4 * 1024 * 1024
_JAVA_REQUEST, _JAVA_API = 30_000, 60_000


def option_problems(options: Mapping[str, OptionValue]) -> list[tuple[str, str]]:
    """Return options that contradict each other, with the reason; each is valid by itself."""

    def number(name: str, otherwise: int) -> int:
        return int(options.get(name, otherwise))

    problems: list[tuple[str, str]] = []
    first, longest = number("reconnect.backoff.ms", _RECONNECT), number("reconnect.backoff.max.ms", _RECONNECT_MAX)
    if first > longest:
        at = "reconnect.backoff.ms" if "reconnect.backoff.ms" in options else "reconnect.backoff.max.ms"
        problems.append((at, f"reconnect.backoff.ms ({first}) is above reconnect.backoff.max.ms ({longest})"))
    if (first := number("retry.backoff.ms", 0)) > (longest := number("retry.backoff.max.ms", 60_000)):
        problems.append(("retry.backoff.ms", f"is above retry.backoff.max.ms ({longest})"))
    most = number("fetch.max.bytes", _FETCH_MAX)
    if "receive.message.max.bytes" in options and number("receive.message.max.bytes", 0) < most + 512:
        problems.append(("receive.message.max.bytes", f"must be at least fetch.max.bytes ({most}) and 512 more"))
    if number("fetch.min.bytes", 1) > most:
        problems.append(("fetch.min.bytes", f"is above fetch.max.bytes ({most})"))
    one, all_ = number("request.timeout.ms", _JAVA_REQUEST), number("default.api.timeout.ms", _JAVA_API)
    if "default.api.timeout.ms" in options and all_ < one:
        problems.append(("default.api.timeout.ms", f"is below request.timeout.ms ({one})"))
    return problems


def _checked(value: object) -> Any:
    if not isinstance(value, Mapping):
        return value
    problems: list[Problem] = []
    found: dict[str, OptionValue] = {}
    for name, given in value.items():
        option = KNOWN.get(name) if isinstance(name, str) else None
        text = _refusal(str(name)) if option is None else _misfit(option, given)
        if text is None:
            found[str(name)] = given
        else:
            problems.append(((str(name),), text))
    if not problems:
        problems = [((name,), text) for name, text in option_problems(found)]
    if problems:
        raise problems_at(problems)
    return dict(sorted(found.items()))


def _refusal(name: str) -> str:
    word = name.strip().lower()
    if (other := _OTHER_NAMES.get(word)) is not None:
        return f"is {other} here"
    if (reason := _REASONS.get(word)) is not None:
        return reason
    for prefixes, reason in _BLOCKS:
        if word.startswith(prefixes):
            return reason
    near = difflib.get_close_matches(word, [*KNOWN, *_OTHER_NAMES], n=1, cutoff=0.75)
    if near:
        return f"unknown option; did you mean '{_OTHER_NAMES.get(near[0], near[0])}'?"
    return f"is no option that a file may set; known: {', '.join(sorted(KNOWN))}"


def _misfit(option: KafkaOption, given: object) -> str | None:
    if option.kind == "flag":
        return None if isinstance(given, bool) else "must be true or false"
    if option.kind == "number":
        least, most = option.bounds
        if isinstance(given, bool) or not isinstance(given, int):
            return f"must be a whole number without a unit, {least} to {most}"
        return None if least <= given <= most else f"must be {least} to {most}"
    if option.kind == "word":
        return None if given in option.words else f"must be one of {', '.join(option.words)}"
    if isinstance(given, str) and _TEXT.fullmatch(given):
        return None
    return "must be text of letters, digits, '.', '_' and '-', 200 at most; secrets have no place here"


KafkaOptions = Annotated[dict[str, int | bool | str], BeforeValidator(_checked)]
"""Options by name, sorted, all known and valid."""


def connection_options(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return the options for every client of librdkafka, with its names."""
    return {KNOWN[name].librdkafka or name: value for name, value in options.items() if KNOWN[name].clients == "all"}


def reading_options(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return the options for consumers that read records, with librdkafka's names."""
    return {KNOWN[name].librdkafka or name: v for name, v in options.items() if KNOWN[name].clients != "planner"}


def planner_options(options: Mapping[str, OptionValue], stream: str) -> dict[str, str]:
    """Return the options for the Java client of Spark's planner, with its names.

    Args:
        stream: Stream of the planner. Its `client.id` contains the stream, because Java needs a unique one in each JVM.
    """
    found = {java: str(value) for name, value in options.items() if (java := KNOWN[name].java) is not None}
    if "client.id" in found:
        found["client.id"] += f"-planner-{stream}"
    return found
