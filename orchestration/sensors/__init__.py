"""Sensors: desired state, replays, publications, contracts, mirrors."""
