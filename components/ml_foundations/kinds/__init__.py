"""Kinds of workloads, one file per kind: what planning and rehearsals know of it."""
