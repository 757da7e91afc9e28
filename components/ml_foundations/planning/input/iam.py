"""The roles that a program grants on buckets, Google service accounts and whole projects."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from ml_foundations.kubernetes.objects import Manifest
from ml_foundations.kubernetes.trees import UNKNOWN

_ON = {
    "gcp:storage/": "bucket",
    "gcp:serviceaccount/": "serviceAccountId",
    "gcp:projects/": "",
    "gcp:folder/": "",
    "gcp:organizations/": "",
}
"""The modules with resources that grant roles, and the input with the one resource that they are
about; empty if it is all resources."""
_GRANTING = ("iammember", "iambinding", "iampolicy", "acl", "accesscontrol")
"""Parts of the names of their types."""
GOOGLE_ACCOUNT = "gcp:serviceaccount/account:Account"


class Grant(NamedTuple):
    """A role that somebody has; a value is UNKNOWN if it is not known, or not read."""

    on: Any
    """The name of the bucket, or the e-mail address of the account; None for all resources."""
    role: Any
    members: Sequence[Any]


def is_of_iam(type_: str) -> bool:
    """Return whether resources of a type are Google service accounts, or grant roles."""
    is_grant = type_.startswith(tuple(_ON)) and any(word in type_.lower() for word in _GRANTING)
    return is_grant or type_ == GOOGLE_ACCOUNT


def grants(resources: Iterable[tuple[str, Manifest]]) -> Iterator[Grant]:
    """Yield what the resources of a program grant; policies and lists (ACLs) are not read."""
    for type_, inputs in resources:
        if not is_of_iam(type_) or type_ == GOOGLE_ACCOUNT:
            continue
        key = next(key for module, key in _ON.items() if type_.startswith(module))
        on = inputs.get(key) if key else None
        if isinstance(on, str):
            on = on.rpartition("/")[2]
        members: Any = inputs.get("members")
        if "member" in inputs:
            yield Grant(on, inputs.get("role"), [inputs["member"]])
        elif isinstance(members, list):
            yield Grant(on, inputs.get("role"), cast("list[Any]", members))
        else:
            yield Grant(on, UNKNOWN, [UNKNOWN])
