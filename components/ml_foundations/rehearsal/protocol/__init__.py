"""Pulumi's gRPC protocol: stubs, a server, and property values as Python values."""
