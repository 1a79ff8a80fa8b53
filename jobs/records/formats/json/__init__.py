"""JSON: reference decoder, block decoder, inference, new fields."""
