"""The embedded kubernetes plugin: objects by server-side apply, releases by the real Helm.

Pulumi publishes its own plugin as a binary, outside the registries of the rehearsal's tools (Go
modules and Python packages). A build from its Go module lacks the schema that the release
generates. It also fails for a chart that cannot be fetched. This plugin records such a release.

It can be deleted when Pulumi's plugin can be installed like the other tools. Until then,
`up --official-kubernetes-plugin` runs Pulumi's behind a gate, which keeps it to the replica.
"""
