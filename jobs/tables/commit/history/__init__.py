"""Stamps along a table's branch: lineage, branches, publications."""
