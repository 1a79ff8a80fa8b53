"""Desired and actual state of streams; drivers are started, watched and ended."""
