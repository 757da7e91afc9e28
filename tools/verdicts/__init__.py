"""Compare the verdicts of two commits on the same cases."""
