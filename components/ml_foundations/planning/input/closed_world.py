"""A closed world: what planning does not know of the documents makes verdicts undetermined."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from ml_foundations.catalog.kueue import mounted_configuration
from ml_foundations.kubernetes.labels import NAMESPACE_NAME
from ml_foundations.kubernetes.objects import (
    Manifest,
    items,
    labels_of,
    name_of,
    namespace_of,
    plural,
    section,
)
from ml_foundations.kubernetes.selectors import required_node_affinity, selects
from ml_foundations.kubernetes.trees import UNKNOWN, is_mapping, unknown_paths
from ml_foundations.planning.input import field_catalog
from ml_foundations.planning.model.refusals import Refusal, invalid
from ml_foundations.planning.model.workloads import (
    WORKLOAD_KINDS,
    PodSet,
    Workload,
    is_running,
    is_stored,
    read_fields,
)

_REMEDY = "Leave it out to have the rest judged, or check it by a rehearsal."
_PODS = ("/pods", "/pods/binding", "/serviceaccounts")
"""What must be created before any pod is on its node: group and resource."""
_ASK = ("AdmissionCheck", "ProvisioningRequestConfig", "Cohort")
_READ = (
    *(
        "APIService",
        "AutoscalingMetric",
        "Configuration",
        "NetworkPolicy",
        "ResourceSlice",
        "ServiceAccount",
    ),
    *("WorkloadPriorityClass", *_ASK),
)
"""Harmless kinds that decide by their names, ask for nodes, publish devices, or are advised by."""
_MAKES: Mapping[str, Sequence[str]] = {
    "Deployment": ("apps/replicasets",),
    **dict.fromkeys(("StatefulSet", "DaemonSet"), ("apps/controllerrevisions",)),
    "CronJob": ("batch/jobs",),
    "JobSet": ("batch/jobs", "/services"),
}
"""What a workload's controller makes besides pods."""
_GPU_MODELS_RULE = (
    "!(variables.priority in variables.models) || "
    "variables.models[variables.priority].exists(model, model.all(wanted, "
    "variables.selector.exists(key, [string(key), 'In', string(variables.selector[key])] == wanted) || "
    "(variables.terms.size() > 0 && variables.terms.all(term, term.?matchExpressions.orValue([]).exists(each, "
    "[string(each.key), string(each.operator)] + each.?values.orValue([]) == wanted)))))"
)
"""The rule of our components that the pods of a PriorityClass run on one model of GPUs."""


class ClassifiedDocuments:
    """Documents by what planning knows of them.

    Attributes:
        judged: Those of the kinds that planning judges, or judges by, without what is not known.
        sent: As they are declared those of them that hold what is not known, by the id of the judged one.
        harmless: Those of the kinds that decide nothing about pods.
        admission: Webhooks, policies and definitions, which may refuse or change what they match.
        foreign: Workloads of other kinds: what holds a pod template. One pod of each stands for them.
        unknown: Other objects of kinds that planning does not know.
        malformed: Workloads with values that Kubernetes does not read, such as a word for a number, and what they are.
        refused: Other objects of that sort.
    """

    def __init__(self, documents: Iterable[Manifest]) -> None:
        self.judged: list[Manifest] = []
        self.sent: dict[int, Manifest] = {}
        self.harmless: list[Manifest] = []
        self.admission: list[Manifest] = []
        self.foreign: list[Workload] = []
        self.unknown: list[Refusal] = []
        self.malformed: list[tuple[Workload, list[Refusal]]] = []
        self.refused: list[Refusal] = []
        self._notes: dict[int, list[field_catalog.Note]] = {}
        self._everywhere: list[Refusal] = []
        self._where_claims_are: list[Refusal] = []
        self._in_namespaces = False
        self._in_namespace: defaultdict[str, list[Refusal]] = defaultdict(list)
        for document in self._each_once(documents):
            section_name, reason = field_catalog.kind_of(
                str(document.get("apiVersion")), document["kind"]
            )
            match section_name:
                case field_catalog.HARMLESS | field_catalog.UNKNOWN_KIND if (
                    wrong := field_catalog.wrong_metadata(document)
                ):
                    self._add_malformed(document, wrong, section_name)
                case field_catalog.ADMISSION if wrong := [
                    note for note in field_catalog.notes(document) if note.is_error
                ]:
                    self._add_malformed(document, wrong, section_name)
                case field_catalog.HARMLESS:
                    (self.judged if document["kind"] in _READ else self.harmless).append(document)
                    if configuration := mounted_configuration(document):
                        self.judged.append(configuration)
                case field_catalog.ADMISSION:
                    self.admission.append(document)
                case field_catalog.UNKNOWN_KIND:
                    self._add_unknown(document, reason)
                case _:
                    self._add_judged(document, section_name)
        self._namespaces = {
            name_of(d): labels_of(d) for d in self.judged if d["kind"] == "Namespace"
        }
        others = (d for d in self.judged if d["kind"] not in WORKLOAD_KINDS and not is_stored(d))
        self._beside = frozenset(map(_resource, others))
        self._partly_known = {id(d) for d in self.admission if any(unknown_paths(d))}
        self._policies = {name_of(d) for d in self.admission if d["kind"].endswith("Policy")}
        self._bindings: defaultdict[str, list[Manifest]] = defaultdict(list)
        for binding in self.admission:
            self._bindings[str(section(binding, "spec").get("policyName"))].append(
                section(binding, "spec")
            )
        for document in self.harmless if self.admission else ():
            if not is_stored(document):
                alone = Workload(
                    document["kind"], namespace_of(document), name_of(document), document, ()
                )
                what = f"may refuse {document['kind']} {name_of(document)}"
                self.unknown += self._matching(alone, what)

    def _each_once(self, documents: Iterable[Manifest]) -> Iterable[Manifest]:
        """The objects, each once: what is declared takes the place of what is stored under its name."""
        found: dict[Any, Manifest] = {}
        for document in _all_named(documents):
            group = str(document.get("apiVersion")).rpartition("/")[0]
            key: tuple[Any, ...] = (
                group,
                document["kind"],
                namespace_of(document),
                name_of(document),
            )
            key = (
                key
                if key[3] and isinstance(key[2], str) and isinstance(key[3], str)
                else (id(document),)
            )
            if key in found and is_stored(document):
                continue
            if key in found and found[key] != document and not is_stored(found[key]):
                message = f"{document['kind']} {name_of(document)} is declared twice, and differs"
                self._everywhere.append(
                    Refusal("beyond-planning", "metadata.name", message, _REMEDY, certain=False)
                )
            found[key] = document
        return found.values()

    def gaps(self, workload: Workload) -> list[Refusal]:
        """What planning does not know of a workload, or of what decides about it: with it, all may be otherwise."""
        if workload in self.foreign:
            own = [_unknown_kind(workload.manifest)]
        else:
            notes = self._notes.get(id(workload.manifest), ())
            own = [
                as_refusal(note) for note in notes if note.reason != field_catalog.NOT_YET
            ]  # of those, admission tells
            metadata, labels = (
                workload.manifest["metadata"],
                section(workload.manifest, "metadata").get("labels"),
            )
            unknown = {"metadata": metadata, "metadata.labels": labels}
            if self._in_namespaces:
                unknown["metadata.namespace"] = workload.namespace
            missing = [path for path, value in unknown.items() if value is UNKNOWN]
            own += [
                as_refusal(field_catalog.Note(path, field_catalog.NOT_YET, is_error=False))
                for path in missing
            ]
        changing = self._matching(workload, "may refuse or change it", "Mutating", "CustomResource")
        of_claims = [each for each in self._where_claims_are if _has_claims(workload)]
        return [
            *own,
            *self._in_namespace[workload.namespace],
            *self._everywhere,
            *of_claims,
            *changing,
        ]

    def doubts(self, workload: Workload) -> list[Refusal]:
        """What may refuse a workload, and changes nothing."""
        return self._matching(workload, "may refuse it", "Validating")

    def _matching(self, workload: Workload, what: str, *kinds: str) -> list[Refusal]:
        """What may refuse or change a workload, of kinds that begin with some words."""
        return [
            Refusal(
                "unknown-admission",
                "kind",
                f"{each['kind']} {name_of(each)} {what}",
                _REMEDY,
                certain=False,
            )
            for each in self.admission
            if each["kind"].startswith(kinds or "") and self._matches(each, workload)
        ]

    def _add_unknown(self, document: Manifest, reason: str) -> None:
        pods = tuple(_templates(document, ""))
        if not pods:
            self.unknown.append(_unknown_kind(document, reason))
            return
        group = str(document.get("apiVersion")).rpartition("/")[0]
        kind = f"{document['kind']}.{group}".rstrip(".")
        self.foreign.append(
            Workload(kind, namespace_of(document), name_of(document), document, pods)
        )

    def _add_judged(self, document: Manifest, section_name: str) -> None:
        notes, metadata = field_catalog.notes(document), document.get("metadata")
        if not notes and section_name == field_catalog.CLUSTER:
            self.judged.append(document)
            return
        if any(note.is_error for note in notes):
            self._add_malformed(document, notes, section_name)
            return
        if section_name == field_catalog.WORKLOADS and not is_running(document):
            self.judged.append(document)
            self._notes[id(document)] = notes  # what is not known of it is its own
            return
        if any(note.reason == field_catalog.NOT_YET for note in notes):
            without: Manifest = {
                **_known(document),
                "metadata": {} if metadata is UNKNOWN else metadata,
            }
            self.sent[id(without)], document = document, without
        about = f"{document['kind']} {name_of(document)}"
        is_somewhere = UNKNOWN in (metadata, namespace_of(document))
        if namespace_of(document) is UNKNOWN:
            notes.append(
                field_catalog.Note("metadata.namespace", field_catalog.NOT_YET, is_error=False)
            )
        self.judged.append(document)
        found = [as_refusal(note, about) for note in notes]
        if not is_stored(document):
            self.unknown += [
                each
                for each, note in zip(found, notes, strict=True)
                if note.reason == field_catalog.NO_FIELD
            ]
        if section_name == field_catalog.NAMESPACED and not is_somewhere:
            self._in_namespaces = True
            self._in_namespace[namespace_of(document)] += found
        elif document["kind"] == "Namespace":
            self._in_namespace[name_of(document)] += found
        elif document["kind"] in ("PersistentVolume", "PersistentVolumeClaim"):
            self._where_claims_are += found
        else:
            self._everywhere += found

    def _add_malformed(
        self, document: Manifest, notes: Iterable[field_catalog.Note], section_name: str
    ) -> None:
        metadata = {
            key: value
            for key, value in section(document, "metadata").items()
            if isinstance(value, str)
        }
        bare = {
            "apiVersion": document["apiVersion"],
            "kind": document["kind"],
            "metadata": metadata,
        }
        kind, namespace, name = document["kind"], namespace_of(bare), name_of(bare)
        about = "" if section_name == field_catalog.WORKLOADS else f"{kind} {name}"
        found = [invalid(note.path, note.reason, about) for note in notes if note.is_error]
        if section_name == field_catalog.WORKLOADS:
            self.malformed.append((Workload(kind, namespace, name, bare, ()), found))
        else:
            self.refused += found

    def _matches(self, document: Manifest, workload: Workload) -> bool:
        """Whether a webhook, a policy or a definition may refuse or change a workload or its pods."""
        spec = section(document, "spec")
        match document["kind"]:
            case "CustomResourceDefinition":
                group = str(workload.manifest.get("apiVersion")).rpartition("/")[0]
                return (
                    section(spec, "names").get("kind") == workload.kind
                    and spec.get("group") == group
                )
            case "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration":
                hooks = [*filter(is_mapping, items(document, "webhooks"))]
                is_unknown = UNKNOWN in (document.get("webhooks"), *hooks)
                return is_unknown or any(self._is_about(hook, "rules", workload) for hook in hooks)
            case "MutatingAdmissionPolicy" | "ValidatingAdmissionPolicy":
                is_known = id(document) not in self._partly_known
                if (
                    is_known
                    and workload.pods
                    and all(_is_of_our_gpu_models(document, p.spec) for p in workload.pods)
                ):
                    return False
                is_about = self._is_about(
                    section(spec, "matchConstraints"), "resourceRules", workload
                )
                return is_about and self._is_bound(name_of(document), workload)
            case _:
                return spec.get("policyName") not in self._policies

    def _is_bound(self, policy: str, workload: Workload) -> bool:
        """Whether a policy holds for a workload; one without a binding here may have one elsewhere."""
        bindings = self._bindings[policy]
        return not bindings or any(
            {"Deny", UNKNOWN}.intersection(items(binding, "validationActions") or ["Deny"])
            and self._is_in(section(binding, "matchResources"), workload.namespace)
            for binding in bindings
        )

    def _is_about(self, holder: Manifest, rules: str, workload: Workload) -> bool:
        """Whether it covers a workload, or what must be created for it; of what has no pods, the object itself."""
        of_pods, beside = (_PODS, self._beside) if workload.pods else ((), ())
        made = {_resource(workload.manifest), *of_pods, *_MAKES.get(workload.kind, ())}
        volumes = (volume for pods in workload.pods for volume in items(pods.spec, "volumes"))
        if workload.claims or any(section(volume, "ephemeral") for volume in volumes):
            made.add("/persistentvolumeclaims")
        covered = [*filter(is_mapping, items(holder, rules))]
        is_known = not any(unknown_paths(holder.get(rules)))
        if not is_known or any(_covers(rule, resource) for rule in covered for resource in beside):
            return True
        if not any(_covers(rule, resource) for rule in covered for resource in made):
            return False
        labels = [labels_of(workload.manifest), *(pods.labels for pods in workload.pods)]
        selector = section(holder, "objectSelector")
        is_selected = any(unknown_paths(selector)) or any(
            selects(selector, each) for each in labels
        )
        return is_selected and self._is_in(holder, workload.namespace)

    def _is_in(self, holder: Manifest, namespace: str) -> bool:
        """Whether a namespace selector may select a namespace; labels of one that is not declared are not known."""
        selector, name = section(holder, "namespaceSelector"), {NAMESPACE_NAME: namespace}
        if any(unknown_paths(selector)):
            return True
        if namespace in self._namespaces:
            return selects(selector, {**name, **self._namespaces[namespace]})
        by_name = [
            each
            for each in items(selector, "matchExpressions")
            if each.get("key") == NAMESPACE_NAME
        ]
        wanted = section(selector, "matchLabels").get(NAMESPACE_NAME, namespace)
        return wanted == namespace and selects({"matchExpressions": by_name}, name)


def as_refusal(note: field_catalog.Note, about: str = "") -> Refusal:
    """What planning does not know of a field."""
    path = f"{about}.{note.path}".lstrip(".")
    return Refusal("unknown-field", path, f"{path}: {note.reason}", _REMEDY, certain=False)


def _unknown_kind(document: Manifest, reason: str = "planning does not know this kind") -> Refusal:
    kind = f"{document['kind']} ({document.get('apiVersion')})"
    name = "/".join(
        map(str, filter(None, (section(document, "metadata").get("namespace"), name_of(document))))
    )
    remedy = "Its pods, if it makes any, are not counted: check it by a rehearsal."
    return Refusal("unknown-kind", "kind", f"{kind} {name}: {reason}", remedy, certain=False)


def _known(tree: Any) -> Any:
    """A tree without what is not known yet."""
    if isinstance(tree, Mapping):
        return {
            key: _known(item) for key, item in cast("Manifest", tree).items() if item is not UNKNOWN
        }
    if isinstance(tree, list):
        return [_known(item) for item in cast("list[Any]", tree) if item is not UNKNOWN]
    return tree


def _has_claims(workload: Workload) -> bool:
    """Whether its pods mount claims, as far as their volumes are known."""
    volumes: list[Any] = [each for pods in workload.pods for each in items(pods.spec, "volumes")]
    mounted = (
        is_mapping(each) and each.keys() & {"persistentVolumeClaim", "ephemeral"}
        for each in volumes
    )
    return bool(workload.claims) or any(mounted)


def _resource(document: Manifest) -> str:
    """The group and the resource of an object, such as "apps/deployments"."""
    return f"{str(document.get('apiVersion')).rpartition('/')[0]}/{plural(document['kind'])}"


def _covers(rule: Manifest, resource: str) -> bool:
    """Whether a rule of a webhook or policy is about the creation of a resource, such as "apps/deployments"."""
    group, _, path = resource.partition("/")
    name, _, part = path.partition("/")
    resources = {
        f"{of}{below}" for of in ("*", name) for below in ("/*", f"/{part}" if part else "")
    }
    return (
        bool({"*", "CREATE"}.intersection(items(rule, "operations")))
        and bool({"*", group}.intersection(items(rule, "apiGroups")))
        and not resources.isdisjoint(items(rule, "resources"))
    )


def _all_named(documents: Iterable[Manifest]) -> Iterator[Manifest]:
    """The objects, those that leave their name to the API server with one like it, each with another one."""
    made = Counter[str]()
    for document in map(field_catalog.as_stored, documents):
        metadata = section(document, "metadata")
        base = metadata.get("generateName")
        if isinstance(base, str) and base and not metadata.get("name"):
            made[base] += 1
            # Five characters, after at most 58 (apiserver, pkg/storage/names).
            document = {
                **document,
                "metadata": {**metadata, "name": f"{base[:58]}{made[base]:x>5}"},
            }
        yield document


def _templates(tree: Any, path: str) -> Iterator[PodSet]:
    """The pod templates in an object of a kind that planning does not know, each as one pod."""
    if isinstance(tree, list):
        for index, item in enumerate(cast("list[Any]", tree)):
            yield from _templates(item, f"{path}[{index}]")
    elif isinstance(tree, Mapping):
        held = cast("Manifest", tree)
        spec = held.get("spec")
        notes = field_catalog.notes_of("core.v1.PodSpec", spec)
        if not any(note.is_error or note.reason == field_catalog.NOT_YET for note in notes):
            fields = read_fields(cast("Manifest", spec))
            if not any(unknown_paths(fields)):
                yield PodSet(held, fields, labels_of(held), 1, f"{path}.spec".lstrip("."), path)
            return
        for key, item in held.items():
            yield from _templates(item, f"{path}.{key}".lstrip("."))


def _is_of_our_gpu_models(policy: Manifest, spec: Manifest) -> bool:
    """Whether a ValidatingAdmissionPolicy is our rule of GPU models, and no more, and allows pods of a spec."""
    own = section(policy, "spec")
    validations, variables = (
        filter(is_mapping, items(own, key)) for key in ("validations", "variables")
    )
    if [each.get("expression") for each in validations] != [_GPU_MODELS_RULE]:
        return False
    models = next(
        (str(each.get("expression")) for each in variables if each.get("name") == "models"), ""
    )
    try:
        wanted: list[list[list[str]]] | None = json.loads(models).get(
            spec.get("priorityClassName", "")
        )
    except ValueError:  # another hand has written them
        return False
    terms = [
        items(each, "matchExpressions")
        for each in items(required_node_affinity(spec) or {}, "nodeSelectorTerms")
    ]
    selected = [[key, "In", value] for key, value in section(spec, "nodeSelector").items()]
    given = [[*selected, *map(_as_text, term)] for term in terms or [[]]]
    return wanted is None or any(
        all(each in term for term in given for each in model) for model in wanted
    )


def _as_text(expression: Manifest) -> list[Any]:
    """Return an expression of node affinity as the policy compares it."""
    return [expression.get("key"), expression.get("operator"), *(expression.get("values") or ())]
