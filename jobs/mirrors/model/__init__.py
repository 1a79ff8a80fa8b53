"""Plan, stamp and errors of a merge; what of the changelog is new."""
