"""Avro: writer schemas, reference decoder, block decoder."""
