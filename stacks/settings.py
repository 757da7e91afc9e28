"""A stack file as a checked model: the only reader of Pulumi's configuration.

Defaults that follow from other sections are filled in first. Then each section is checked as the
arguments of its component. All errors are reported at once, each with its path in the stack file,
the value and the allowed values. Keys are in camelCase, as elsewhere in Pulumi's YAML.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cached_property, partial
from itertools import chain
from typing import Annotated, Any

import cross_checks
import defaults
import pulumi
from existing_cluster import ExistingCluster
from ml_foundations.catalog.machine_types import GPUS
from ml_foundations.component.errors import STACK_FILE_PAGE, explain, unknown
from ml_foundations.component.partial import InvalidArgumentError, errors_in, validated, while_valid
from ml_foundations.component.spec import ComponentSpec, Spec
from ml_foundations.component.types import Name
from ml_foundations.gke.cluster import GkeClusterSpec
from ml_foundations.gke.compute_class import ComputeClassSpec
from ml_foundations.gke.cpu_node_pool import CpuNodePoolSpec
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSpec
from ml_foundations.gke.metrics_adapter import MetricsAdapterSpec
from ml_foundations.gpu.device_classes import DeviceClassesSpec
from ml_foundations.gpu.monitor import GpuMonitorSpec
from ml_foundations.gpu.operator import GpuOperatorSpec
from ml_foundations.kubernetes import labels, printable
from ml_foundations.kubernetes.objects import name_of, namespace_of
from ml_foundations.kubernetes.trees import leaves
from ml_foundations.kubernetes.words import number
from ml_foundations.planning.rules.added import known_rules, unknown_rule
from ml_foundations.planning.rules.built_in import RULES
from ml_foundations.planning.rules.objects import placeholder
from ml_foundations.storage.checkpoints import CheckpointConfigurationSpec
from ml_foundations.storage.classes import StorageClassesSpec
from ml_foundations.tenancy.controllers import (
    JobSetControllerSpec,
    LeaderWorkerSetControllerSpec,
    RayOperatorSpec,
    TrainerControllerSpec,
)
from ml_foundations.tenancy.team_namespace import TeamNamespaceSpec
from ml_foundations.tenancy.training_queue import FlavorSettings, Queues, TrainingQueueSpec
from ml_foundations.workloads.distributed_training import DistributedTrainingSpec
from pydantic import Discriminator, Field, Tag, ValidationError
from pydantic.alias_generators import to_camel
from team import Team
from typing_extensions import override

PROJECT = "ml-foundations"
QUEUES = "training-queue"
"""The component of the queues, and their cohort."""

NodePool = Annotated[
    Annotated[GpuNodePoolSpec, Tag(GpuNodePoolSpec.__name__)]
    | Annotated[CpuNodePoolSpec, Tag(CpuNodePoolSpec.__name__)],
    Discriminator(
        lambda given: (GpuNodePoolSpec if defaults.has_gpus(given) else CpuNodePoolSpec).__name__
    ),
]
"""A node pool; with a GPU machine type, a GPU pool."""


Cluster = Annotated[
    Annotated[GkeClusterSpec, Tag(GkeClusterSpec.__name__)]
    | Annotated[ExistingCluster, Tag(ExistingCluster.__name__)],
    Discriminator(
        lambda given: (ExistingCluster if defaults.is_existing(given) else GkeClusterSpec).__name__
    ),
]
"""A cluster to be made; with a kubeconfig or context, one that exists already."""


class ProofSettings(Spec):
    """Settings of the proof before spend."""

    accept: dict[str, Annotated[str, Field(min_length=1)]] = Field(
        default={},
        json_schema_extra={
            "propertyNames": {
                "anyOf": [{"enum": list(RULES)}, {"pattern": f"^({'|'.join(RULES)})/.+$"}]
            }
        },
    )
    """Accepted rules, each with the reason. ``RULE/NAME`` is the rule for one object."""
    monthly_budget: Decimal | None = Field(default=None, ge=0)
    """The most US dollars per month, at list prices."""
    require_digests: bool = False
    """Warn of images without a digest. The default is false."""

    @override
    def errors(self) -> Iterator[tuple[str, str]]:
        for accepted in self.accept:
            if rule := unknown_rule(accepted):
                yield f"accept.{accepted}", unknown(rule, known_rules(), "See docs/planning.md")


class TrainingQueueSettings(Queues):
    """The sharing of GPUs between teams by Kueue."""

    flavors: dict[Name, FlavorSettings] = {}
    """What is different on the nodes of a GPU pool or ComputeClass, by its name."""


class Settings(Spec):
    """A whole stack file."""

    project: str = Field(min_length=6)
    """The Google Cloud project."""
    cluster: Cluster
    """The cluster to create. With `kubeconfig` or `context`, an existing cluster."""
    node_pools: dict[str, NodePool] = {}
    """Node pools, by name. The machine type or the keys decide whether they have GPUs."""
    compute_classes: dict[str, ComputeClassSpec] = {}
    """Ways to buy nodes, in order, by name. The node pools that a class names get the class."""
    gpu_operator: GpuOperatorSpec | None = None
    """The NVIDIA GPU Operator. Pools with the driver `operator` or `installer` need it."""
    device_classes: DeviceClassesSpec | None = None
    """Claims for GPUs (DRA). Workloads with a `gpuClaim` need it."""
    metrics_adapter: MetricsAdapterSpec | None = None
    """Google's adapter. Servers that scale by a metric need it, or another adapter."""
    gpu_monitors: dict[str, GpuMonitorSpec] = {}
    """DaemonSets that watch GPU nodes, by name."""
    storage: StorageClassesSpec = StorageClassesSpec()
    """The storage classes."""
    checkpoint_configurations: dict[str, CheckpointConfigurationSpec] = {}
    """Checkpoints in the memory of nodes, by name. They switch on the cluster's."""
    training_queue: TrainingQueueSettings = TrainingQueueSettings()
    """Kueue. It is installed if a team has a `queue`."""
    job_set_controller: JobSetControllerSpec = JobSetControllerSpec()
    """The JobSet controller. It is installed if a training has `jobset: true`, and for Trainer."""
    leader_worker_set_controller: LeaderWorkerSetControllerSpec = LeaderWorkerSetControllerSpec()
    """The LeaderWorkerSet controller. It is installed if a server has several `nodes`."""
    ray_operator: RayOperatorSpec = RayOperatorSpec()
    """The operator of Ray. It is installed if a team has `rayJobs` or `rayClusters`."""
    trainer_controller: TrainerControllerSpec = TrainerControllerSpec()
    """Kubeflow Trainer. It is installed if a team has `trainingRuntimes` or `trainJobs`."""
    teams: dict[Name, Team] = {}
    """Teams with their volumes and workloads, by namespace."""
    proof: ProofSettings = ProofSettings()
    """The proof before spend."""

    @property
    def gpu_pools(self) -> dict[str, GpuNodePoolSpec]:
        """The pools of GPU nodes, by name."""
        return {
            name: pool
            for name, pool in self.node_pools.items()
            if isinstance(pool, GpuNodePoolSpec)
        }

    @property
    def job_sets(self) -> JobSetControllerSpec | None:
        """The arguments of the controller of JobSets; None if no training uses it."""
        workloads = (workload for team in self.teams.values() for _, _, workload in team.workloads)
        has_some = any(
            isinstance(workload, DistributedTrainingSpec) and workload.jobset
            for workload in workloads
        )
        return self.job_set_controller if has_some or self.trainer else None

    @property
    def ray(self) -> RayOperatorSpec | None:
        """The arguments of the operator of Ray; None if no team uses it."""
        has_some = any(team.ray_jobs or team.ray_clusters for team in self.teams.values())
        return self.ray_operator if has_some else None

    @property
    def trainer(self) -> TrainerControllerSpec | None:
        """The arguments of Kubeflow Trainer; None if no team uses it."""
        has_some = any(team.training_runtimes or team.train_jobs for team in self.teams.values())
        return self.trainer_controller if has_some else None

    @property
    def leader_worker_sets(self) -> LeaderWorkerSetControllerSpec | None:
        """The arguments of the controller of LeaderWorkerSets; None if no server uses it."""
        servers = (team.inference_services.values() for team in self.teams.values())
        has_some = any(server.is_grouped for server in chain.from_iterable(servers))
        return self.leader_worker_set_controller if has_some else None

    @cached_property
    def namespaces(self) -> dict[str, TeamNamespaceSpec]:
        """The arguments of each team's namespace."""
        return {name: team.tenancy(name) for name, team in self.teams.items()}

    @property
    def flavors(self) -> dict[str, dict[str, Any]]:
        """The flavor of each GPU pool, or of its ComputeClass, by the path in the file."""
        flavors: dict[str, dict[str, Any]] = {}
        for name, pool in self.gpu_pools.items():
            # Pods that request GPUs tolerate the GPU taint anyway.
            taints = [taint for taint in pool.tolerations if taint["key"] != labels.GPU_TAINT_KEY]
            flavor: dict[str, Any] = {
                "name": name,
                "node_selector": pool.node_selector,
                "tolerations": taints,
                "queued_provisioning": pool.queued_provisioning,
            }
            if pool.model.accelerator_type in GPUS:
                flavor["gpu"] = pool.accelerator.name
            of_class = pool.compute_class
            if of_class is None:
                flavors[f"nodePools.{name}"] = flavor
                continue
            class_flavor = {"name": of_class, "compute_class": of_class, "gpu": flavor.get("gpu")}
            # The pools of a class may have several models.
            if (
                flavors.setdefault(f"computeClasses.{of_class}", class_flavor)["gpu"]
                != class_flavor["gpu"]
            ):
                flavors[f"computeClasses.{of_class}"]["gpu"] = None
        given = self.training_queue.flavors
        return {
            path: flavor | (given[flavor["name"]].given() if flavor["name"] in given else {})
            for path, flavor in flavors.items()
        }

    @cached_property
    def queues(self) -> TrainingQueueSpec | None:
        """The arguments of the TrainingQueue, with a flavor for each GPU pool or ComputeClass.

        None if no team has a queue.
        """
        teams = [team.queue for team in self.teams.values() if team.queue]
        if not teams:
            return None
        derived = {"flavors": list(self.flavors.values()), "teams": teams, "cohort": QUEUES}
        return TrainingQueueSpec.model_validate(self.training_queue.given() | derived)

    def sections(self) -> Iterator[tuple[str, ComponentSpec]]:
        """Yield every section in the cluster with its path in the file."""
        one = {
            "storage": self.storage,
            "gpuOperator": self.gpu_operator,
            "deviceClasses": self.device_classes,
            "metricsAdapter": self.metrics_adapter,
        }
        one |= {"jobSetController": self.job_sets, "trainingQueue": self.queues}
        one |= {"leaderWorkerSetController": self.leader_worker_sets}
        one |= {"rayOperator": self.ray, "trainerController": self.trainer}
        yield from ((path, spec) for path, spec in one.items() if spec is not None)
        yield from ((f"computeClasses.{name}", item) for name, item in self.compute_classes.items())
        checkpoints = self.checkpoint_configurations
        yield from ((f"checkpointConfigurations.{name}", of) for name, of in checkpoints.items())
        yield from ((f"gpuMonitors.{name}", monitor) for name, monitor in self.gpu_monitors.items())
        for team_name, team in self.teams.items():
            yield f"teams.{team_name}", self.namespaces[team_name]
            yield from (
                (f"teams.{team_name}.{section}.{name}", spec)
                for section, name, spec in team.components
            )

    @property
    def locations(self) -> Mapping[str, str]:
        """The path in the file of each object by its name in findings, and of each placeholder."""
        namespaced = {
            f"{manifest['kind']} {namespace_of(manifest)}/{name_of(manifest)}": _in_file(path)
            for path, spec in self.sections()
            for manifest in spec.manifests()
        }
        flavors = {
            f"ResourceFlavor {flavor['name']}": _in_file(path)
            for path, flavor in self.flavors.items()
        }
        classes = {
            f"ComputeClass {name}": _in_file(f"computeClasses.{name}")
            for name in self.compute_classes
        }
        queues = {f"ClusterQueue {name}": _in_file(f"teams.{name}.queue") for name in self.teams}
        given = self.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
        places = [(value, _in_file(path)) for path, value in leaves(given) if placeholder(value)]
        placeholders = dict(reversed(places))  # the first place of a value counts
        return namespaced | flavors | classes | queues | placeholders


KEYS = [to_camel(name) for name in Settings.model_fields if name != "project"]
"""The keys of a stack file, without their namespace."""


def load() -> Settings:
    """Return the settings of the current stack.

    Raises:
        pulumi.RunError: The stack file is invalid. The message lists every error.
    """
    config = pulumi.Config(PROJECT)
    given = {key: value for key in KEYS if (value := config.get_object(key)) is not None}
    if project := pulumi.Config("gcp").get("project"):
        given["project"] = project
    prefix = f"{PROJECT}:"
    keys = [
        key.removeprefix(prefix)
        for key in pulumi.runtime.get_config_env()
        if key.startswith(prefix)
    ]
    errors = [
        (key, unknown(key, KEYS, f"See {STACK_FILE_PAGE}")) for key in keys if key not in KEYS
    ]
    try:
        return parse(given, errors)
    except ValueError as error:
        text = f"stacks/Pulumi.{pulumi.get_stack()}.yaml: {error}"
        raise pulumi.RunError(printable.text(text)) from None


_MOST_ERRORS = 100
"""Errors that are explained: each unknown key is compared with all that exist."""


def parse(sections: dict[str, Any], errors: list[tuple[str, str]] | None = None) -> Settings:
    """Return the settings in a stack file's sections.

    Raises:
        ValueError: A value is invalid. The message has a line for each error: its path, the
            value and the allowed values.
    """
    problems = list(errors or [])
    filled = defaults.with_defaults(sections)
    for arguments in filled.derived:
        problems += [(f"{arguments.path}.{path}", reason) for path, reason in arguments.errors]
        for key, value in arguments.values.items():
            written = arguments.section.get(key)
            if written not in (None, value):
                here = f", here {value}" if value else ""
                reason = f"is {written}, but follows from its place in the file{here}; leave it out"
                problems.append((f"{arguments.path}.{key}", reason))
        arguments.section.update(arguments.values)
    settings, invalid = validated(Settings, filled.sections, by_alias=True, by_name=False)
    shown = invalid[:_MOST_ERRORS]
    hidden = invalid[_MOST_ERRORS:]
    problems += _relocated(explain(shown, Settings, to_camel), filled.derived)
    if settings is not None:
        problems += while_valid(_built_errors(settings))
        problems += cross_checks.errors(settings)
    if settings is None or problems:
        lines = [f"{number(len(problems) + len(hidden), 'invalid value')}:"]
        lines += [f"  {_in_file(path)}: {reason}" for path, reason in problems]
        if hidden:
            lines.append(f"  ml-foundations: and {len(hidden)} more, after these")
        raise ValueError(printable.lines(lines))
    return settings


_FROM_ELSEWHERE = ("project", "location")
"""Derived arguments whose errors are reported where they follow from."""


def _relocated(
    errors: Iterator[tuple[str, str]], derived: list[defaults.DerivedArguments]
) -> Iterator[tuple[str, str]]:
    """Yield errors, with those of derived arguments at the section that they are in."""
    section_of: dict[str, str] = {}
    for arguments in derived:
        for key, value in arguments.values.items():
            # What is empty is missing elsewhere, or only the program will know it.
            is_here = key not in _FROM_ELSEWHERE and value not in (None, "")
            section_of[f"{arguments.path}.{key}"] = arguments.path if is_here else ""
    for path, reason in errors:
        if section := section_of.get(path, path):
            yield section, reason


def _built_errors(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the errors that components find in arguments from several sections."""
    for name, team in settings.teams.items():
        for path, reason in _errors_of(partial(team.tenancy, name), TeamNamespaceSpec):
            yield f"teams.{name}.{path}", reason
    with_queue = [f"teams.{name}.queue" for name, team in settings.teams.items() if team.queue]
    flavors = settings.flavors
    names = [f"trainingQueue.flavors.{flavor['name']}" for flavor in flavors.values()]
    for path, reason in _errors_of(lambda: settings.queues, TrainingQueueSpec):
        path = re.sub(r"teams\[(\d+)\]", lambda index: with_queue[int(index[1])], path)
        path = re.sub(r"flavors\[(\d+)\]\.name", lambda index: [*flavors][int(index[1])], path)
        path = re.sub(r"^flavors\[(\d+)\]", lambda index: names[int(index[1])], path)
        yield path, reason


def _errors_of(build: Callable[[], object], spec: type[Spec]) -> Iterator[tuple[str, str]]:
    """Yield why arguments are invalid. Yield nothing if they follow from invalid ones."""
    try:
        build()
    except ValidationError as error:
        yield from explain(errors_in(error), spec, to_camel)
    except InvalidArgumentError:
        return


def _in_file(path: str) -> str:
    return "gcp:project" if path == "project" else f"{PROJECT}:{path.removesuffix('.[key]')}"
