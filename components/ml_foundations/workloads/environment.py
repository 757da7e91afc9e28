"""Environment variables of a workload's container."""

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from ml_foundations.component.spec import Spec
from ml_foundations.component.types import InputText
from ml_foundations.kubernetes.merging import without_none


class Key(Spec):
    """A key of a Secret or of a ConfigMap."""

    name: InputText
    """The name of the Secret or the ConfigMap."""
    key: InputText
    """The key in the Secret or the ConfigMap."""
    optional: bool | None = None
    """Start pods without it if it does not exist. The default is false."""


class EnvironmentSource(Spec):
    """A Secret or a ConfigMap. Each of its keys becomes an environment variable."""

    secret: InputText | None = None
    """The name of a Secret."""
    config_map: InputText | None = None
    """The name of a ConfigMap."""
    prefix: str | None = None
    """The prefix of the variables' names."""
    optional: bool | None = None
    """Start pods without it if it does not exist. The default is false."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        if (self.secret is None) == (self.config_map is None):
            yield "secret", "set either secret or config_map"


def environment(
    defaults: Mapping[str, Mapping[str, Any]],
    fields: Mapping[str, str],
    secrets: Mapping[str, Key],
    config_maps: Mapping[str, Key],
    plain: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return the variables of a container: the component's ``defaults``, and the user's.

    The user's replace the component's. A value may refer to an earlier variable, as $(NAME).
    """
    variables = dict(defaults)
    for name, path in fields.items():
        variables[name] = {"valueFrom": {"fieldRef": {"fieldPath": path}}}
    for name, key in secrets.items():
        variables[name] = {"valueFrom": {"secretKeyRef": key.given()}}
    for name, key in config_maps.items():
        variables[name] = {"valueFrom": {"configMapKeyRef": key.given()}}
    for name, value in plain.items():
        variables[name] = {"value": value}
    return [{"name": name, **variable} for name, variable in variables.items()]


def env_rendezvous(
    rank_path: str, world_size: int, address: str, port: int
) -> dict[str, dict[str, Any]]:
    """Return the variables that torch.distributed reads with env://, with the rank of a field."""
    return {
        "RANK": {"valueFrom": {"fieldRef": {"fieldPath": rank_path}}},
        "WORLD_SIZE": {"value": str(world_size)},
        "MASTER_ADDR": {"value": address},
        "MASTER_PORT": {"value": str(port)},
    }


def environment_sources(sources: list[EnvironmentSource]) -> list[dict[str, Any]]:
    """Return the Secrets and ConfigMaps whose keys all become variables."""
    manifests: list[dict[str, Any]] = []
    for source in sources:
        kind = "secretRef"
        name = source.secret
        if name is None:
            kind = "configMapRef"
            name = source.config_map
        reference = without_none({"name": name, "optional": source.optional})
        manifests.append(without_none({"prefix": source.prefix, kind: reference}))
    return manifests
