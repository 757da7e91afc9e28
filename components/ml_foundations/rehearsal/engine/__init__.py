"""Pulumi in a rehearsal: its environment, its stack, its language host and its output."""
