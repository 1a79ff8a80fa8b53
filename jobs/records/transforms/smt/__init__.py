"""Kafka Connect's transforms (SMT) by their own names."""
