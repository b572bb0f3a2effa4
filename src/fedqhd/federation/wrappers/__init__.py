"""What wraps any federation or engine: privacy, the precision of replies, attacks."""
