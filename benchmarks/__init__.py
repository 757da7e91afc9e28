"""Benchmarks: measured by hand, never asserted in tests, since a busy machine is a noisy one."""
