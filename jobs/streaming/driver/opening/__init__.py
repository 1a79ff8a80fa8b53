"""Lease, claims, recovery, first offsets."""
