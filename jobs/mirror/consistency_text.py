"""What a check of a mirror found, in words."""

from __future__ import annotations

from jobs.mirror.consistency import BUCKETS, Consistency
from jobs.spec.models import StreamSpec


def consistency_sentence(found: Consistency) -> str:
    """What was compared, and what came of it."""
    part = "all keys" if found.looked_at == BUCKETS else f"{found.looked_at} of {BUCKETS} buckets of keys"
    compared = f"{part} of {found.table} were compared with its changelog ({found.rows:,} rows)"
    adopted = (
        f" {found.adopted:,} rows have no change in the changelog, and are not compared: they were there before it "
        "was a mirror, or their changes have expired."
        if found.adopted
        else ""
    )
    letters = (
        f" {found.letters:,} dead letters had not come back at its newest merge: the changes in them are on neither "
        "side."
        if found.letters
        else ""
    )
    if not found.wrong:
        return f"{compared[0].upper()}{compared[1:]}: they are the same.{adopted}{letters}"
    wrong = {
        "missing": sum(each.missing for each in found.buckets),
        "there too much": sum(each.extra for each in found.buckets),
        "different": sum(each.different for each in found.buckets),
    }
    said = ", ".join(f"{count:,} {what}" for what, count in wrong.items() if count)
    what, key = found.examples[0]
    named = ", ".join(f"{name} = {value}" for name, value in key.items())
    return f"{compared[0].upper()}{compared[1:]}: of its rows {said}; for instance {named} is {what}.{adopted}{letters}"


def consistency_fix(spec: StreamSpec, found: Consistency) -> str | None:
    """The next command; None if nothing is to be done."""
    if found.wrong:
        return f"frazil mirror rebuild {spec.stream} --table {found.table}"
    return f"frazil replay {spec.stream} --dry-run" if found.letters else None
