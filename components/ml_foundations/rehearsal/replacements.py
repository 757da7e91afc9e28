"""The resources that an update replaces, by the rules of Pulumi's engine.

Source: pulumi/pulumi, pkg/resource/deploy/step_generator.go.
"""

from collections.abc import Collection, Iterable, Iterator

from ml_foundations.kubernetes.objects import RELEASE, Manifest, section
from ml_foundations.kubernetes.trees import UNKNOWN, map_leaves
from ml_foundations.planning.input.clusters import PROVIDER
from ml_foundations.rehearsal.engine.dry_run import DryRun, Options
from ml_foundations.rehearsal.plugins.gcp import provider as gcp
from ml_foundations.rehearsal.plugins.kubernetes import diff, settings
from ml_foundations.rehearsal.plugins.kubernetes.objects import as_stored
from ml_foundations.rehearsal.plugins.property_paths import changed_paths, is_below, steps
from ml_foundations.rehearsal.plugins.tls.provider import TlsProvider

_ANEW = object()
"""A value that the provider computes again; it differs from each earlier one."""


def replacements(old: DryRun, new: DryRun) -> dict[str, list[str]]:
    """Return the replaced resources by urn, in order, with the changed paths that replace each."""
    replaced: dict[str, list[str]] = {}
    renewed: set[str] = set()
    for urn, (type_, inputs) in new.resources.items():
        if urn not in old.resources:
            renewed.add(urn)
        elif urn not in replaced:
            before = old.resources[urn][1]
            options = new.options[urn]
            paths = [*_by_options(urn, old, new, replaced)]
            paths += _replaced(type_, before, _anew(inputs, options, renewed), options)
            if paths:
                replaced[urn] = paths
                if _is_deleted_first(type_, before, inputs, options):
                    dependents = _dependents(urn, old)
                    replaced |= {name: why for name, why in dependents if name in new.resources}
        if urn in replaced:
            renewed.add(urn)
    return replaced


def _by_options(urn: str, old: DryRun, new: DryRun, replaced: Collection[str]) -> Iterator[str]:
    """Yield the options for which a resource is replaced, whatever its inputs are."""
    before = old.options[urn]
    after = new.options[urn]
    if any(name in replaced for name in after.replace_with):
        yield "replace_with"
    if before.replacement_trigger != after.replacement_trigger:
        yield "replacement_trigger"
    names = (before.provider, after.provider)
    if names[0] != names[1] or names[1] in replaced:
        _, was = old.resources.get(names[0], ("", {}))
        _, now = new.resources.get(names[1], ("", {}))
        if settings.diff(dict(was), dict(now)).replaces:
            yield "provider"


def _anew(inputs: Manifest, options: Options, renewed: Collection[str]) -> Manifest:
    """Return inputs in which what renewed resources compute differs from what it was."""
    values = dict(inputs)
    for key, urns in options.sources.items():
        if key in values and any(name in renewed for name in urns):
            values[key] = map_leaves(values[key], lambda leaf: _ANEW if leaf is UNKNOWN else leaf)
    return values


def _replaced(type_: str, before: Manifest, after: Manifest, options: Options) -> list[str]:
    """Return the changed paths for which the provider or an option replaces a resource."""
    if type_.startswith("gcp:"):
        paths = gcp.changed(before, after)
    elif type_.startswith("kubernetes:"):
        paths = changed_paths(as_stored(before), as_stored(after), same=diff.same)
    else:
        paths = changed_paths(before, after)
    changed = [path for path in paths if not _is_in(path, options.ignored)]
    forced = [path for path in changed if _is_in(path, options.replaced)]
    by_provider = _by_provider(type_, changed, before, after)
    return list(dict.fromkeys((*by_provider, *forced)))


def _by_provider(
    type_: str, changed: list[str], before: Manifest, after: Manifest
) -> Iterable[str]:
    """Return the changed paths for which the provider replaces a resource."""
    if type_ == PROVIDER:
        # A kubeconfig that is not known yet stays the same unless its cluster is renewed.
        known = {key: value for key, value in after.items() if value is not UNKNOWN}
        known = {key: UNKNOWN if value is _ANEW else value for key, value in known.items()}
        return settings.diff(dict(before), known).replaces if changed else ()
    if type_.startswith("gcp:"):
        return gcp.replaced(type_, changed, before, after)
    if type_.startswith(("random:", "tls:")):
        return (path for path in changed if not is_below(path, TlsProvider.changes_in_place))
    if type_ == RELEASE:
        return (path for path in changed if path in ("name", "namespace"))
    if type_.startswith("kubernetes:") and type_.endswith("Patch"):
        return (path for path in changed if path in diff.IDENTITY)
    return diff.replaced_paths(changed, after) if "kind" in after else ()


def _is_in(path: str, roots: Iterable[str]) -> bool:
    """Return whether one of the roots contains a path; ``*`` is any key or index."""
    parts = steps(path)
    for root in map(steps, roots):
        pairs = zip(root, parts, strict=False)
        if len(root) <= len(parts) and all(key in ("*", part) for key, part in pairs):
            return True
    return False


def _is_deleted_first(type_: str, before: Manifest, after: Manifest, options: Options) -> bool:
    """Return whether the old resource goes first: by its option, or as both have one name."""
    if options.deletes_first is not None:
        return options.deletes_first
    if type_.startswith("kubernetes:") and type_ != RELEASE:
        before = section(before, "metadata")
        after = section(after, "metadata")
    is_same = all(before.get(key) == after.get(key) for key in ("name", "namespace"))
    return is_same and isinstance(after.get("name"), str)


def _dependents(root: str, old: DryRun) -> Iterator[tuple[str, list[str]]]:
    """Yield the resources that are deleted before ``root`` is, with the paths that need it.

    Any value of a property that depends on a deleted resource may change.
    """
    deleted = {root}
    for urn, (type_, inputs) in old.resources.items():
        options = old.options[urn]
        keys = [key for key, urns in options.sources.items() if deleted.intersection(urns)]
        values = {**inputs, **dict.fromkeys(keys, _ANEW)}
        paths = ["provider"] if options.provider in deleted else []
        if paths := paths or _replaced(type_, inputs, values, options):
            deleted.add(urn)
            yield urn, paths
