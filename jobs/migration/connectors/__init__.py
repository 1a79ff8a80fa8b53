"""Readers of Kafka Connect's configurations, in every form in which they are written down."""
