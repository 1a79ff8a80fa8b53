"""What a Spark task does with its part of a batch."""
