"""Generators of what follows from the components' specs; ``make generate`` runs them all."""
