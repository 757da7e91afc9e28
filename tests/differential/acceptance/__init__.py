"""What the API server accepts: good objects with a few random edits, each asked by a dry run and judged by planning."""
