"""The second generator: cases typed from the API server's own schema, an oracle of its own, and their comparison."""
