"""Rehearsal: deploy a stack to a replica of GKE on this machine.

The replica is the real Kubernetes control plane with simulated nodes. Nothing in ``components/`` or
``stacks/`` imports this package: a rehearsal runs the same program that goes to the cloud.
"""

from ml_foundations.rehearsal import startup

startup.collect_rarely()
