"""Break lines of the product, each in one small way, and see which tests notice."""
