"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# Hypothesis judges what is found, not how long a busy machine took to find it.
settings.register_profile("frazil", deadline=None, print_blob=True)
settings.load_profile("frazil")
