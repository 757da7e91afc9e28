"""What a team gets: a namespace with quotas."""
