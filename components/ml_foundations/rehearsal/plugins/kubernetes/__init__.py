"""The embedded kubernetes plugin: every kind through server-side apply, Helm releases through the real Helm.

Why it exists: Pulumi publishes its own plugin as a binary, outside the registries that a rehearsal's tools come from
(Go modules and Python packages), and a build from its Go module lacks the schema that the release generates. It would
also follow whichever kubeconfig a program names, where this one goes to the replica, and fail for a chart that cannot
be fetched, where this one records the release. It can go when Pulumi's plugin can be installed like the other tools,
and the environment alone keeps programs to the replica. Until then `up --official-kubernetes-plugin` runs Pulumi's own.
"""
