"""Dead letters come back: replays, queues of Kafka Connect, expiry."""
