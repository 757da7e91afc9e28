"""What the API server admits."""
