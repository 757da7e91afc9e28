"""ML Foundations."""
