"""Verdicts, their cost and their words."""
