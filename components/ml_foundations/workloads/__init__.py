"""Training and serving."""
