"""Commands about dead letters: letters, replay."""
