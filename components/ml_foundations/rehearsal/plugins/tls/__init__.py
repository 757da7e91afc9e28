"""The embedded tls provider plugin of a rehearsal: Pulumi's own is in no registry of the rehearsal's tools."""
