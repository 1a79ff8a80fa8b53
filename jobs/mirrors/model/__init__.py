"""Plan, stamp and errors of a merge, and the new changes of a changelog."""
