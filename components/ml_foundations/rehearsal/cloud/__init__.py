"""Simulated GKE: a daemon per replica keeps nodes as their pools declare them, and scales pools."""
