"""The embedded gcp provider plugin of a rehearsal."""

from ml_foundations.rehearsal.plugins.gcp.sdk import unmodelled, unmodelled_outputs

__all__ = ["unmodelled", "unmodelled_outputs"]
