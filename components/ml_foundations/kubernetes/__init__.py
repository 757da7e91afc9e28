"""Kubernetes' own vocabulary: quantities, manifests, merging, labels, selectors, tolerations."""
