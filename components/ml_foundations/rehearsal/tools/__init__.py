"""The tools of a rehearsal, and the Go modules that they are built from."""
