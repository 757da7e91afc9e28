"""The proof in a Pulumi program: declared resources that can never run are rejected."""

import inspect
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import pulumi

import ml_foundations
from ml_foundations.catalog.pools import CLUSTER
from ml_foundations.component import _pulumi_internals as internals
from ml_foundations.component import refused
from ml_foundations.component.base import Component
from ml_foundations.component.outputs import KnownOutput, as_plain, inputs_as_sent, resolve_known
from ml_foundations.kinds import kind_files
from ml_foundations.kubernetes import printable
from ml_foundations.kubernetes.trees import map_leaves, unknown_paths
from ml_foundations.planning.input.clusters import PROVIDER, TIES, Declared, clusters_of
from ml_foundations.planning.input.program import NAMED, Resource, is_judged, is_kept, named
from ml_foundations.planning.input.repeated import OVERWRITING
from ml_foundations.planning.rules.added import checked
from ml_foundations.planning.rules.built_in import IF_ASKED
from ml_foundations.planning.rules.findings import Finding, Severity, reason_of, unmatched
from ml_foundations.planning.rules.rule import Rule
from ml_foundations.planning.verdict import report
from ml_foundations.planning.verdict.clusters import judge_clusters
from ml_foundations.planning.verdict.cost import over_budget
from ml_foundations.planning.verdict.verdicts import Verdicts


def is_rehearsed() -> bool:
    """Return whether this program is rehearsed, so that placeholders may stay."""
    return "ML_FOUNDATIONS_REHEARSAL" in os.environ


class _Registered(NamedTuple):
    """A registered resource: its type, name and inputs, and the urns of what it belongs to."""

    type_: str
    name: str
    inputs: dict[str, Any]
    parent: str
    provider: str
    is_kept: bool


class Proof:
    """A judge of the node pools and Kubernetes objects of a program, before any is created.

    Make every resource inside of it:

        with Proof():
            ...

    All constructors of a program run before the engine gets its first registration. The end of
    the block judges the declared resources. If the block fails, or the proof rejects the program,
    only the stack itself is registered, also with ``pulumi up --skip-preview``.

    Outputs that are unknown at the end of the block are judged again when everything is
    registered. This ends a preview, but comes too late for ``--skip-preview``. Resources that are
    declared or may change after the block are judged only then; docs/planning.md lists them.

    If you cannot use a block, call ``finish`` after the last resource. If the program fails before
    that, its resources are registered, as without a proof.
    """

    judges = True
    """Whether it judges; another process may, which only asks what the program declares."""

    def __init__(
        self,
        accepted_rules: Mapping[str, str] | None = None,
        monthly_budget: Decimal | int | float | str | None = None,
        locations: Mapping[str, str] | None = None,
        existing_node_pools: Sequence[Resource] = (),
        require_digests: bool = False,
        kinds: str | None = None,
        rules: Sequence[Rule] = (),
    ) -> None:
        """Start to collect the declared resources.

        Args:
            accepted_rules: Rules whose errors become warnings: the name of each rule, or
                ``RULE/NAME`` for one object, and the reason, which is shown.
            monthly_budget: US dollars that the stack may cost per month, at most; an excess is an
                error.
            locations: The path in a configuration of each object, by its name in findings, such as
                "Job research/align", which findings then show. Also the path of each
                placeholder, by its value.
            existing_node_pools: Node pools of an existing cluster: the type and the inputs of each,
                as the engine would get them. The proof then assumes that no other nodes of the
                cluster have GPUs.
            require_digests: Whether to warn about images without a digest.
            kinds: The folder with files that describe your kinds, from the folder in which the
                program runs. The default is that of the variable ML_FOUNDATIONS_KINDS.
            rules: Your own rules (docs/your-own-rules.md).

        Raises:
            TypeError: Something in ``rules`` is not a rule.
            ValueError: The budget is not a number, or a rule has the name of another.
            SystemExit: A file in ``kinds`` is invalid, or there is no such folder.
        """
        if kinds is not None:
            self._note("kinds.json", str(Path(kinds).absolute()))
        if self.judges:
            kind_files.user_kinds() if kinds is None else kind_files.use(kinds)
        self._accepted = dict(accepted_rules or {})
        self._monthly_budget = None if monthly_budget is None else _amount(monthly_budget)
        self._locations: Mapping[str, str] = locations or {}
        self._existing: Sequence[Resource] = existing_node_pools
        self._rules = [*checked(rules), *(IF_ASKED if require_digests else ())]
        self._declared: list[pulumi.ResourceTransformationArgs] = []
        self._lines: list[str] = []
        self._registered: list[_Registered] = []
        self._clusters: Mapping[Any, str] = {}
        self._refusal: BaseException | None = None
        pulumi.runtime.register_resource_transform(self._collect)
        pulumi.runtime.register_stack_transformation(self._hold)

    def __enter__(self) -> Self:
        """Begin the block in which the program declares its resources."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        """Finish, or register nothing if the block has failed."""
        if error is None:
            self.finish()
        else:
            self._refuse(error)

    def _refuse(self, error: BaseException) -> None:
        """Register nothing. Raise the errors of components with invalid arguments, if there are."""
        invalid = refused.refusal()
        self._refusal = invalid or error
        # Pulumi would report the registrations that now fail instead of the program's error.
        internals.forget_pending_work()
        if invalid:
            raise invalid from error

    def finish(self) -> None:
        """Judge the declared resources, and again when all are registered.

        Raises:
            pulumi.RunError: Something can never run; the message names every error, and all else
            that was found is in Pulumi's diagnostics.
        """
        if not self.judges:
            return
        self._note("accepted.json", sorted(self._accepted))
        if invalid := refused.refusal():
            self._refuse(invalid)
        try:
            declared = self._as_declared()
            verdicts = self._judge(declared)
            if any(map(self._is_error, self._findings(verdicts))):
                # What is not known before the registration may be all that is undetermined.
                inputs = [item.resource for item in declared if item.resource[0] != PROVIDER]
                hidden = _OPEN_RULES if any(unknown_paths(inputs)) else ()
                self._report(verdicts, hidden)
        except pulumi.RunError as refusal:
            self._refusal = refusal
            raise
        except Exception as error:
            # What cannot be judged is not registered either.
            text = f"the proof could not judge the program: {type(error).__name__}: {error}"
            self._refusal = pulumi.RunError(printable.line(text))
            raise self._refusal from error
        # An Output is awaited at the end of the program, and what it raises ends the program.
        pulumi.Output.from_input(self._judge_registered())

    @staticmethod
    def _note(file: str, value: Any) -> None:
        """Let the report of a rehearsal know what the program judges by."""
        folder = Path(os.environ.get("ML_FOUNDATIONS_REHEARSAL") or "/nowhere")
        if folder.is_dir():
            (folder / file).write_text(json.dumps(value))

    def _hold(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult:
        """Record a resource, and delay its registration until the proof is done."""
        self._declared.append(args)
        self._lines.append(_line_of_program())
        leave = cast("pulumi.Output[pulumi.Resource]", pulumi.Output.from_input(self._leave()))
        opts = pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(depends_on=[leave]))
        return pulumi.ResourceTransformationResult(args.props, opts)

    async def _leave(self) -> None:
        # This runs when the program has ended, or waits for something in its middle.
        if self._refusal is not None:
            raise self._refusal

    def _as_declared(self) -> list[Declared]:
        """Return the judged resources and the providers as they will be registered.

        Return none if more will be declared, if some may be changed, or if their cluster is not
        known yet.
        """
        if (
            internals.resource_transforms() != {self._collect}
            # A later stack transformation may change the recorded resources.
            or internals.last_stack_transformation() != self._hold
            or any(map(_is_open, self._declared))
        ):
            return []
        names: dict[int, str] = {}
        for args in self._declared:
            name = args.props.get("name")
            output = vars(args.resource).get("name")
            # The name of a resource is the one that the program sets.
            if is_judged(args.type_) and isinstance(name, str) and output is not None:
                names[id(output)] = name
        resources: list[Declared] = []
        try:
            for args in self._declared:
                if is_judged(args.type_):
                    props = map_leaves(args.props, lambda leaf: names.get(id(leaf), leaf))
                    inputs = inputs_as_sent(type(args.resource), props)
                    provider = args.resource.get_provider(args.type_) or ""
                    resource = named((args.type_, inputs), args.name)
                    resources.append(self._in_cluster(args, resource, provider))
        except (AssertionError, ValueError):
            return []  # the registration fails, with the reason
        resources += self._providers()
        return [] if clusters_of(resources) is None else resources

    def _providers(self) -> list[Declared]:
        config = pulumi.Config("kubernetes")
        by_default: dict[str, Any] = {field: config.get(field) for field in OVERWRITING}
        providers = [Declared((PROVIDER, by_default), "", "")]
        for args in self._declared:
            if args.type_ == PROVIDER:
                given = {field: args.props.get(field) for field in TIES[PROVIDER]}
                given |= {field: args.props.get(OVERWRITING[field]) for field in OVERWRITING}
                inputs = map_leaves(resolve_known(given, secrets=True), as_plain)
                providers.append(self._in_cluster(args, (PROVIDER, inputs), ""))
        return providers

    def _in_cluster(
        self, args: pulumi.ResourceTransformationArgs, resource: Resource, provider: Any
    ) -> Declared:
        """Return a declared resource with what shows its cluster."""
        sources: set[pulumi.Resource] | None = set()
        for value in map(args.props.get, TIES.get(args.type_, ())):
            if isinstance(value, pulumi.Output) and sources is not None:
                of_value = self._sources(cast("pulumi.Output[Any]", value))
                sources = None if of_value is None else sources | of_value
        opts = args.opts
        is_created = opts.id is None and opts.import_ is None
        places = provider, sources, opts.parent or ""
        return Declared(resource, args.resource, args.name, *places, is_created=is_created)

    def _sources(self, output: pulumi.Output[Any]) -> set[pulumi.Resource] | None:
        """Return the resources that an Output comes from; None if they are not known yet."""
        if isinstance(output, KnownOutput):
            return set(output.sources)
        for args in self._declared:
            # Its own Output, or that of its component.
            owners = (args.resource, args.opts.parent) if args.type_ == CLUSTER else ()
            for owner in filter(None, owners):
                if any(value is output for value in vars(owner).values()):
                    return {args.resource}
        return internals.result_if_ready(output.resources())

    async def _collect(self, args: pulumi.ResourceTransformArgs) -> None:
        if not is_judged(args.type_):
            return
        inputs = map_leaves(resolve_known(dict(args.props), secrets=True), as_plain)
        opts = args.opts
        kept = is_kept(args.type_, retained=opts.retain_on_delete, protected=opts.protect)
        places = await _urn(opts.parent), await _urn(opts.provider)
        self._registered.append(_Registered(args.type_, args.name, inputs, *places, kept))

    async def _judge_registered(self) -> str:
        finals: dict[tuple[str, str, str], tuple[pulumi.ResourceTransformationArgs, Any]] = {}
        urns: dict[str, pulumi.Resource] = {}
        for args in self._declared:  # the list may grow meanwhile
            urns[await _urn(args.resource)] = args.resource
            name = await _final_name(args) if is_judged(args.type_) else None
            finals[await _urn(args.opts.parent), args.type_, args.name] = args, name
        resources = self._providers()
        for item in self._registered:
            args, name = finals.get((item.parent, item.type_, item.name), (None, None))
            resource = named((item.type_, item.inputs), item.name, name)
            provider = urns.get(item.provider, item.provider)
            if args:
                declared = self._in_cluster(args, resource, provider)
            else:  # another process declares it
                key = item.parent, item.type_, item.name
                declared = Declared(resource, key, item.name, provider)
            resources.append(replace(declared, is_kept=item.is_kept))
        verdicts = self._judge(resources)
        self._report(verdicts)
        return verdicts.stack

    def _judge(self, resources: Sequence[Declared]) -> Verdicts:
        self._clusters = clusters_of(resources) or {}
        return judge_clusters(
            resources,
            self._existing,
            rehearsed=is_rehearsed(),
            accepted=self._accepted,
            rules=self._rules,
        )

    def _report(self, verdicts: Verdicts, hidden: Collection[str] = ()) -> None:
        """Show every finding, except warnings of hidden rules. Errors end the program."""
        findings: list[Finding] = []
        for finding in self._findings(verdicts):
            if finding.severity is Severity.ERROR or finding.rule not in hidden:
                findings.append(finding)
        errors = [self._sentence(finding) for finding in findings if self._is_error(finding)]
        accepted = 0
        for finding in findings:
            if finding.severity is Severity.ERROR and not self._is_error(finding):
                accepted += 1
                reason = f"accepted, because {reason_of(finding, self._accepted)}"
                pulumi.log.warn(printable.line(f"{reason}: {self._sentence(finding)}"))
            elif finding.severity is not Severity.ERROR:
                log = pulumi.log.warn if finding.severity is Severity.WARNING else pulumi.log.info
                log(printable.line(self._sentence(finding)))
        for text in unmatched(self._accepted, self._unmerged(verdicts)):
            pulumi.log.warn(printable.line(text))
        summary = report.as_summary(verdicts, accepted)
        if errors:
            # Quotas and costs explain errors, so they come after them.
            _, *details = summary.splitlines()
            lines = ["the stack cannot run as it is declared", *(f"  {text}" for text in errors)]
            raise pulumi.RunError(printable.lines([*lines, "", *details] if details else lines))
        pulumi.log.info(printable.text(f"proof: {summary}"))

    def _findings(self, verdicts: Verdicts) -> list[Finding]:
        findings = self._unmerged(verdicts)
        errors = filter(self._is_error, findings)
        return [*_merged(errors), *_merged(item for item in findings if not self._is_error(item))]

    def _unmerged(self, verdicts: Verdicts) -> list[Finding]:
        findings = verdicts.findings
        if self._monthly_budget is not None and (
            excess := over_budget(verdicts.cost, self._monthly_budget)
        ):
            findings.append(excess)
        return findings

    def _sentence(self, finding: Finding) -> str:
        name = finding.value or finding.object.partition(" and ")[0]
        place = self._locations.get(name) or self._place_in_program(name, finding.cluster)
        written = f" Written at {place}." if place else ""
        where = f"{finding.rule}, {finding.path}" if finding.path else finding.rule
        return f"{finding.place}: {finding.text}{written} [{where}]"

    def _place_in_program(self, name: str, cluster: str) -> str:
        """Return the line and the component that declare an object, such as "__main__.py:31"."""
        for args, line in zip(self._declared, self._lines, strict=True):
            written = _object_name(args)
            # Findings name an object without a namespace by its kind and name.
            is_named = name in (written, written.replace(" default/", " "))
            if line and is_named and self._clusters.get(args.resource, "") == cluster:
                parent = args.opts.parent
                is_of_component = isinstance(parent, Component)
                kind = cast("Any", type(parent)).__name__
                of = f" ({kind} {parent.pulumi_resource_name})" if is_of_component else ""
                return line + of
        return ""

    def _is_error(self, finding: Finding) -> bool:
        return finding.is_error and not finding.is_accepted(self._accepted)


_OPEN_RULES = ("beyond-planning", "unknown-value")
"""The rules of findings that a value may decide which is known only after its registration."""


def _amount(dollars: Decimal | int | float | str) -> Decimal:
    try:
        return Decimal(str(dollars))
    except InvalidOperation:
        raise ValueError(
            f"Proof: monthly_budget is {dollars!r}; it must be a number of US dollars"
        ) from None


async def _urn(resource: pulumi.Resource | None) -> str:
    """Return the urn of a resource; empty for none and for the stack."""
    urn = await resource.urn.future() if resource else None
    return "" if urn is None or "::pulumi:pulumi:Stack::" in urn else urn


def _line_of_program() -> str:
    """Return the file and line of the program's call that declares a resource, or nothing."""
    packages = tuple(f"{Path(str(module.__file__)).parent}/" for module in (pulumi, ml_foundations))
    frame = inspect.currentframe()
    while frame is not None:
        file = frame.f_code.co_filename
        # Other SDKs of Pulumi are next to it: pulumi_kubernetes, pulumi_gcp.
        if not file.startswith(packages) and "/pulumi_" not in file:
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _object_name(args: pulumi.ResourceTransformationArgs) -> str:
    """Return the name of a Kubernetes object as findings write it, or nothing."""
    if not args.type_.startswith("kubernetes:") or not is_judged(args.type_):
        return ""
    try:
        sent = inputs_as_sent(type(args.resource), {"metadata": args.props.get("metadata")})
    except (AssertionError, ValueError):
        return ""  # the registration fails, with the reason
    metadata: dict[str, Any] = sent.get("metadata") or {}
    kind = args.type_.rpartition(":")[2]
    return f"{kind} {metadata.get('namespace', 'default')}/{metadata.get('name')}"


async def _final_name(args: pulumi.ResourceTransformationArgs) -> Any:
    """Return the name of a registered resource, which Pulumi or the provider may have chosen."""
    has_name = args.type_ in NAMED
    output: Any = getattr(args.resource, "name" if has_name else "metadata", None)
    value: Any = None if output is None else await output.future()
    metadata: dict[str, Any] = value or {}
    return value if has_name else metadata.get("name")


def _is_open(args: pulumi.ResourceTransformationArgs) -> bool:
    """Return whether a resource may differ from what the engine will receive."""
    is_component = isinstance(args.resource, pulumi.ComponentResource)
    brings_more = is_component and (
        internals.is_remote(args.resource) or args.type_.startswith("kubernetes:")
    )
    return brings_more or bool(args.opts.transforms)


def _merged(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Yield findings, with those of several objects and the same text merged into one."""
    alike: dict[Finding, list[Finding]] = {}
    for finding in findings:
        key = replace(finding, object="", path="")
        alike.setdefault(key, []).append(finding)
    for first, *rest in alike.values():
        more = len({finding.object for finding in rest} - {first.object})
        yield replace(first, object=f"{first.object} and {more} more") if more else first
