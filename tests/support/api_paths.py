"""Where the API server has an object."""

from typing import Any

from ml_foundations.kubernetes.objects import plural


def path_of(manifest: dict[str, Any], name: str = "") -> str:
    """Return the path of an object by its name, or of the collection of its kind in its namespace."""
    version, namespace = manifest["apiVersion"], manifest["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{place}/{plural(manifest['kind'])}/{name}".rstrip("/")
