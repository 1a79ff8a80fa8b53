"""Merge of collapsed changes into the mirror, in process or by Spark."""
