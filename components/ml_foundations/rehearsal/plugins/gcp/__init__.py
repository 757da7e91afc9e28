"""The embedded gcp provider plugin of a rehearsal."""
