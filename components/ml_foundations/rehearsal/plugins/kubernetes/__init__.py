"""The embedded kubernetes plugin: objects by server-side apply, releases by the real Helm.

Pulumi publishes its own plugin as a binary, outside the registries of the rehearsal's tools (Go
modules and Python packages). A build from its Go module lacks the schema that the release
generates. It also uses whichever kubeconfig a program names, and fails for a chart that cannot be
fetched. This plugin always uses the replica, and records such a release.

It can be deleted when Pulumi's plugin can be installed like the other tools, and the environment
alone keeps programs to the replica. Until then, `up --official-kubernetes-plugin` runs Pulumi's.
"""
