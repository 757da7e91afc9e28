"""The embedded tls plugin: Pulumi's own is in no registry of the rehearsal's tools."""
