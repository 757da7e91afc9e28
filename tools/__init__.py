"""Tools of the repository: they change or measure it, and users do not need them."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
