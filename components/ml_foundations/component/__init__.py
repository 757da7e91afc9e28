"""The contract of every component."""
