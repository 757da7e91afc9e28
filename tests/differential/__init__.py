"""The differential proof: random cases, judged by planning and tried on the real API server and scheduler."""
