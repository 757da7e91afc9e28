"""Rehearsal: deploy a stack to a replica of GKE on this machine.

The replica is the real Kubernetes control plane with simulated nodes. Nothing in ``components/`` or ``stacks/``
imports this package: the program that is rehearsed is the program that goes to the cloud.
"""

import atexit
import gc

# Its processes live for seconds, and a fifth of their work was to look for garbage among what they had imported.
gc.set_threshold(100_000)
atexit.register(gc.freeze)
