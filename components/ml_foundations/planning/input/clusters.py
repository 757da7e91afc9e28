"""The clusters that the resources of a program are in, by their Kubernetes providers."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ml_foundations.catalog.pools import CLUSTER, NODE_POOL
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning.input.networks import last_part
from ml_foundations.planning.input.program import Resource

PROVIDER = "pulumi:providers:kubernetes"
_ACCESS = ("kubeconfig", "context", "cluster")
TIES: Mapping[str, Sequence[str]] = {PROVIDER: _ACCESS, NODE_POOL: ("cluster",)}
"""The inputs that choose the cluster of a provider or a pool, by type."""
_UNCLEAR = object()


@dataclass(frozen=True)
class Declared:
    """A declared resource, or a Kubernetes provider, with what shows the cluster that it is in."""

    resource: Resource
    key: Hashable
    """Its urn, or the resource itself."""
    name: str
    """Its name in the program."""
    provider: Hashable = ""
    """The key of its provider; empty for Pulumi's default provider."""
    sources: Collection[Hashable] | None = ()
    """Of a provider or a pool: the keys of what its cluster comes from; None if not known."""
    parent: Hashable = ""
    """The key of its component; empty for the stack."""
    is_kept: bool = False
    """Whether Pulumi does not delete it with the stack."""
    is_created: bool = True
    """Whether Pulumi creates it: the program neither reads nor imports it."""


def sources_of(type_: str, sources: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the urns that the cluster of a provider or a pool comes from, of those by input."""
    return {urn for field in TIES.get(type_, ()) for urn in sources.get(field, ())}


def provider_of(reference: str) -> str:
    """Return the urn in the engine's reference to a provider; empty for a default provider."""
    urn = reference.rpartition("::")[0]
    name = urn.rpartition("::")[2]
    return "" if name == "default" or name.startswith("default_") else urn


def clusters_of(declared: Sequence[Declared]) -> dict[Hashable, str] | None:
    """Return the cluster of each resource in words, by key; nothing if there is only one cluster.

    Resources of no cluster, such as buckets, are not in it. It is None if it is not known yet
    which cluster a provider or a pool is of.
    """
    clusters = _Clusters(declared)
    homes: dict[Hashable, Hashable] = {}
    for item in declared:
        home = clusters.home(item)
        if home is _UNCLEAR:
            return None
        if home is not None:
            homes[item.key] = home
    titles = clusters.titles(homes.values())
    return {key: titles[home] for key, home in homes.items()} if len(titles) > 1 else {}


class _Clusters:
    """The clusters and providers of a program."""

    def __init__(self, declared: Sequence[Declared]) -> None:
        def of_type(type_: str) -> dict[Hashable, Declared]:
            return {item.key: item for item in declared if item.resource[0] == type_}

        self._clusters = of_type(CLUSTER)
        self._providers = of_type(PROVIDER)
        objects = [item for item in declared if item.resource[0].startswith("kubernetes:")]
        self._used = {item.provider for item in objects}
        self._existing = {self._of_provider(key) for key in self._used} - {*self._clusters}

    def home(self, item: Declared) -> Hashable | None:
        """Return the key of the cluster that a resource is in; None if it is in none."""
        type_, _ = item.resource
        if type_ == CLUSTER:
            return item.key
        if type_ == NODE_POOL:
            return self._of_pool(item)
        if type_.startswith("kubernetes:"):
            return self._of_provider(item.provider)
        return None if type_ == PROVIDER else self._of_component(item)

    def titles(self, homes: Collection[Hashable]) -> dict[Hashable, str]:
        """Return the clusters in words; a report of a rehearsal names them in the same way."""
        titles: dict[Hashable, str] = {}
        for home in homes:
            if home not in titles:
                title = self._title(home)
                is_taken = title in titles.values()
                titles[home] = f"{title} ({self._clusters[home].name})" if is_taken else title
        return titles

    def _title(self, home: Hashable) -> str:
        if cluster := self._clusters.get(home):
            _, inputs = cluster.resource
            parts = (inputs.get("location"), inputs.get("name") or cluster.name)
            return f"cluster {'/'.join(part for part in parts if isinstance(part, str))}"
        provider = self._providers.get(home)
        name = provider.name if provider else str(home).rpartition("::")[2]
        return f"the cluster of provider {name}" if name else "the cluster of the default provider"

    @property
    def _only(self) -> Hashable | None:
        """The program's cluster, if it declares only one."""
        return next(iter(self._clusters)) if len(self._clusters) == 1 else None

    def _of_component(self, item: Declared) -> Hashable | None:
        """Return the cluster of the same component, if it has one."""
        keys = [key for key, cluster in self._clusters.items() if cluster.parent == item.parent]
        return keys[0] if item.parent and len(keys) == 1 else None

    def _of_provider(self, key: Hashable) -> Hashable:
        provider = self._providers.get(key)
        access = [provider.resource[1].get(field) for field in _ACCESS] if provider else []
        if not key or (provider and not any(access)):
            return self._only or ""
        if provider is None:
            return key
        if tied := self._tied(provider) or self._of_component(provider):
            return tied
        if provider.sources is None and self._clusters:
            # Usually it is that of the cluster. This is not certain if there are several.
            is_alone = len(self._used) == 1
            return self._only if self._only and is_alone else _UNCLEAR
        for known in self._providers.values():  # the first one with the same access
            inputs = known.resource[1]
            if UNKNOWN not in access and access == [inputs.get(field) for field in _ACCESS]:
                return known.key
        return key

    def _of_pool(self, pool: Declared) -> Hashable:
        if tied := self._tied(pool):
            return tied
        name = pool.resource[1].get("cluster")
        if not isinstance(name, str):
            return self._only or (_UNCLEAR if self._clusters else self._elsewhere(""))
        named: list[Declared] = []
        for cluster in self._clusters.values():
            known = cluster.resource[1].get("name")
            if not isinstance(known, str) or known == last_part(name):
                named.append(cluster)
        place = pool.resource[1].get("location")
        there = [cluster for cluster in named if cluster.resource[1].get("location") == place]
        matching = named if len(named) < 2 else there
        if len(matching) == 1:
            return matching[0].key
        return _UNCLEAR if named else self._elsewhere(last_part(name))

    def _elsewhere(self, name: str) -> Hashable:
        """Return a cluster that exists: that of the only provider of one, if there is one."""
        return next(iter(self._existing)) if len(self._existing) == 1 else f"::{name}"

    def _tied(self, item: Declared) -> Hashable | None:
        """Return the declared cluster that a provider or a pool gets its cluster from."""
        tied = self._clusters.keys() & set(item.sources or ())
        return next(iter(tied)) if len(tied) == 1 else None
