"""What is judged: YAML documents, and the resources of a Pulumi program."""
