"""The input of planning, as steps from one value to the next, in this order.

1. ``streams`` parses YAML or JSON into objects, and ``documents`` checks the fields that planning
   reads; ``program`` returns the objects and nodes of a Pulumi program instead, by ``node_pools``
   and ``networks``.
2. ``drain`` removes nodes from a cluster, if the user asks for that.
3. ``closed_world`` classifies the documents: judged, harmless, unknown or malformed.

``field_catalog`` knows the kinds and fields of Kubernetes, and ``admission_objects`` what webhooks
and policies match.
"""
