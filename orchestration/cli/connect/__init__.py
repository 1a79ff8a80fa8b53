"""Commands for coming from Kafka Connect, and for going back."""
