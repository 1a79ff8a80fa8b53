"""Dead letters: replays, imports of Kafka Connect's queues, expiry."""
