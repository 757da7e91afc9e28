"""Team namespaces with quotas, and queues for training."""
