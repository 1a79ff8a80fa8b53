"""Change events of Debezium, MongoDB and DMS as rows of a changelog."""
