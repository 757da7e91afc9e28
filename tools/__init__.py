"""Tools of the repository: they change or measure it, and users do not need them."""
