"""The embedded kubernetes plugin: every kind through server-side apply, Helm releases through Helm."""
