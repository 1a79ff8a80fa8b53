"""Claim, propose, compare and swap: the one way to commit."""
