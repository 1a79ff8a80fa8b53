"""Search for faults with fresh random input and a fresh order of tests, for as long as it is asked to.

    python -m tests.explore --minutes 60 [--seed N] [--examples N] [arguments of pytest]

`make test` draws the same input in each run, so it finds nothing new. This command runs the tests of generated input
round after round, each with a seed of its own, and every fourth round all of `tests/unit`, in random order. A
failure is printed at once, and the command that repeats it at the end of the round. It belongs into the tests as a
fixed example.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

# What pytest returns when no test was selected.
NO_TESTS = 5


def round_command(number: int, seed: int, processes: int, arguments: Sequence[str]) -> list[str]:
    """Return the command of a round, counted from 0."""
    chosen = arguments or ["tests/unit"]
    generated = [] if number % 4 == 3 else ["-m", "hypothesis"]
    seeds = [f"--randomly-seed={seed}", f"--hypothesis-seed={seed}"]
    spread = ["-n", str(processes), "--dist", "worksteal"] if processes > 1 else []
    at_once = ["-p", "tests.helpers.shown_at_once"]
    return [sys.executable, "-m", "pytest", "-q", "--tb=short", *at_once, *spread, *generated, *seeds, *chosen]


def main() -> int:
    """Run rounds until the time is up; returns 1 if a round failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no round after this time (60)")
    parser.add_argument("--seed", type=int, help="seed of the first round; the next one has the next number")
    parser.add_argument("--examples", type=float, default=1, help="times the examples that each test draws (1)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes of pytest")
    options, arguments = parser.parse_known_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**31)
    environment = {**os.environ, "FRAZIL_EXPLORE": "1", "FRAZIL_EXAMPLES": str(options.examples)}
    began, number, failed = time.monotonic(), 0, list[str]()
    while number == 0 or time.monotonic() - began < options.minutes * 60:
        command = round_command(number, seed + number, options.processes, arguments)
        print(f"round {number + 1}, seed {seed + number}, {time.monotonic() - began:.0f} s", flush=True)
        status = subprocess.run(command, env=environment, check=False).returncode
        if status not in (0, NO_TESTS):
            repeat = f"FRAZIL_EXPLORE=1 FRAZIL_EXAMPLES={options.examples} {shlex.join(command)}"
            failed.append(repeat)
            print(f"found in round {number + 1}; the same again: {repeat}", flush=True)
        number += 1
    print(f"{number} rounds in {(time.monotonic() - began) / 60:.0f} minutes, {len(failed)} with failures")
    for repeat in failed:
        print(f"  {repeat}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
