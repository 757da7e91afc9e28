"""The cluster as planning sees it: pods, nodes, volumes, places."""
