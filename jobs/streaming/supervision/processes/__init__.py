"""Drivers as processes: actual state, start, end, groups."""
