"""Embedded Pulumi provider plugins that serve a rehearsal."""
