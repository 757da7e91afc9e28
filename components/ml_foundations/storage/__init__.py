"""Storage classes and volumes."""
