"""The real webhooks and operators as judges: edited objects of every kind that a controller has, asked and judged."""
