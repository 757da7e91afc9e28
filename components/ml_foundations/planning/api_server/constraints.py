"""Constraints on the values of fields, by the names that the tables of fields use.

``parse("below a b")`` returns a constraint whose test calls ``below(value, "a", "b")``. A test may
raise an error for a value of another type: such a value does not meet the constraint.
"""

import base64
import inspect
import ipaddress
import re
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from ml_foundations.kubernetes import text_formats
from ml_foundations.kubernetes.cron import is_schedule
from ml_foundations.kubernetes.objects import Manifest, items, section
from ml_foundations.kubernetes.quantities import is_whole, milli, parse_quantity
from ml_foundations.kubernetes.reading import embedded_json, embedded_yaml
from ml_foundations.kubernetes.trees import UNKNOWN, as_key, is_mapping, path_keys, unknown_paths
from ml_foundations.planning.api_server import cel

_Test = Callable[[Any], Any]
_TestWithArguments = Callable[..., Any]
_MAX_BASE64 = 1398104
"""The characters of base64 for 1 MiB."""
_DEFAULTS = {"protocol": "TCP"}
"""Values that the API server sets before it compares the items of a list."""


@dataclass(frozen=True)
class Constraint:
    """A condition that the value of a field meets.

    Attributes:
        requirement: The end of the sentence "The field must …".
        test: Returns a true value if a value meets the condition.
        fields: Paths of the fields below the value that the condition is about.
        is_certain: False if the API server may accept a value that does not meet it.
    """

    requirement: str
    test: _Test
    fields: tuple[str, ...] = ()
    is_certain: bool = True

    def is_met(self, value: Any) -> bool:
        """Return whether a value meets the condition, or may meet it once it is known."""
        if is_mapping(value) and UNKNOWN in value.values():
            return True
        try:
            return bool(self.test(value))
        except (AttributeError, TypeError, ValueError, LookupError, OSError):
            return any(unknown_paths(value))


_CONDITIONS: dict[str, tuple[str, _Test]] = {
    "anything": ("have a value", lambda value: True),
    "empty": ("be left out", lambda value: value in ("", [])),
    "absent": ("be left out", lambda value: False),
    "true": ("be true", lambda value: value is True),
    "false": ("be false", lambda value: not value),
    "mapping": ("be a mapping", is_mapping),
    "zero": ("be 0", lambda value: value == 0),
    "yaml_mapping": (
        "be YAML with a mapping",
        lambda value: isinstance(embedded_yaml(value), dict | None),
    ),
    "quantity": ("be a quantity", lambda value: parse_quantity(value) >= 0),
    "positive_quantity": ("be a quantity above 0", lambda value: parse_quantity(value) > 0),
    "share_of_cohort": (
        "be 0 or more than 1n",
        lambda value: (amount := parse_quantity(value)) == 0 or amount > parse_quantity("1n"),
    ),
    "count_or_percentage": ("be a number or a percentage", lambda value: _share(value) >= 0),
    "cron_schedule": ("be a cron schedule", is_schedule),
    "one_item": ("have one item", lambda value: len(value) == 1),
    "some_items": ("have an item", lambda value: len(value) > 0),
    "no_items": ("have no items", lambda value: len(value) == 0),
    "unique_items": ("have no item twice", lambda value: _are_unique([(item,) for item in value])),
    "ascending_items": (
        "have items in ascending order, none twice",
        lambda value: value == sorted({*value}),
    ),
    # A machine without a database of time zones cannot judge their names.
    "time_zone": ("be a time zone", lambda value: value in (_time_zones() or [value])),
}
_CONSTRUCTORS: dict[str, Callable[..., Constraint]] = {}


@cache
def parse(text: str) -> Constraint:
    """Return the constraint of a table's cell: a name and its arguments, separated by spaces.

    ``uncertain`` in front makes a constraint whose violation does not refuse an object for certain.

    Raises:
        ValueError: No constraint has the name, or its arguments are invalid.
    """
    name, *arguments = text.split() or [""]
    if name == "uncertain":
        return replace(parse(" ".join(arguments)), is_certain=False)
    try:
        return _CONSTRUCTORS[name](*arguments)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is not a constraint: {error}") from None


def names() -> frozenset[str]:
    """Return the names of all constraints."""
    return frozenset(_CONSTRUCTORS)


def _constructor(function: Callable[..., Constraint]) -> Callable[..., Constraint]:
    """Register a function that makes a constraint of arguments."""
    _CONSTRUCTORS[function.__name__] = function
    return function


def _condition(
    requirement: str, *fields: str
) -> Callable[[_TestWithArguments], _TestWithArguments]:
    """Register a function as the test of a constraint; the arguments follow the value.

    In the requirement, ``{0}`` is the first argument, and ``{all}``, ``{both}`` and ``{either}``
    are all of them with commas, "and" or "or". A field with ``{each}`` is one for each argument.
    """

    def register(test: _TestWithArguments) -> _TestWithArguments:
        _CONSTRUCTORS[test.__name__] = partial(_constraint, requirement, fields, test)
        return test

    return register


def _constraint(
    requirement: str, fields: Iterable[str], test: _TestWithArguments, *arguments: str
) -> Constraint:
    inspect.signature(test).bind(None, *arguments)  # an error if there are too many or too few
    paths: list[str] = []
    for field in fields:
        for argument in arguments if "{each}" in field else [""]:
            paths.append(field.format(*arguments, each=argument))
    sentence = requirement.format(
        *arguments,
        all=", ".join(arguments),
        both=" and ".join(arguments),
        either=" or ".join(arguments),
    )
    test_of_value: _Test = (lambda value: test(value, *arguments)) if arguments else test
    return Constraint(sentence, test_of_value, tuple(paths))


for _name, (_requirement, _test) in _CONDITIONS.items():
    _CONSTRUCTORS[_name] = partial(_constraint, _requirement, (), _test)
for _name, _form in text_formats.FORMATS.items():
    _CONSTRUCTORS[_name] = partial(_constraint, f"be {_form.description}", (), _form.matches)


# --- Single values


@_constructor
def one_of(*values: str) -> Constraint:
    listed = ", ".join(values)
    requirement = f"be one of {listed}" if len(values) > 1 else f"be {listed}"
    return Constraint(requirement, lambda value: value in values)


@_constructor
def in_range(minimum: str, maximum: str) -> Constraint:
    least = int(minimum)
    most = int(maximum)
    requirement = f"be from {least} to {most}"
    return Constraint(requirement, lambda value: type(value) is int and least <= value <= most)


@_constructor
def other_than(number: str) -> Constraint:
    excluded = int(number)
    return Constraint(f"be another number than {excluded}", lambda value: value != excluded)


@_constructor
def quantity_of(*amounts: str) -> Constraint:
    accepted = [*map(parse_quantity, amounts)]
    requirement = f"be one of {', '.join(amounts)}"
    return Constraint(requirement, lambda value: parse_quantity(value) in accepted)


@_constructor
def quantity_below(amount: str) -> Constraint:
    limit = parse_quantity(amount)
    return Constraint(f"be below {amount}", lambda value: parse_quantity(value) < limit)


@_constructor
def cel_expression(types: str, *variables: str) -> Constraint:
    """Return a constraint on an expression of CEL: types that it may return, such as bool|list."""
    accepted = {cel.Type(name) for name in types.split("|")} | {cel.Type.ANY}

    def test(value: Any) -> bool:
        expression = cel.parse(value)
        is_known = expression.variables <= {*variables} and not expression.unknown
        return is_known and expression.type in accepted

    described = types.replace("|", " or ")
    requirement = f"be a CEL expression of {', '.join(variables)} that returns {described}"
    return Constraint(requirement, test)


@_condition("be an IP address")
def ip_address(value: str) -> bool:
    return text_formats.ADDRESS.matches(value) and bool(ipaddress.ip_address(value))


@_condition("be the address of a network, with its prefix")
def cidr(value: str) -> bool:
    return text_formats.CIDR_TEXT.matches(value) and bool(_network(value))


@_condition("be a port")
def port(value: Any) -> bool:
    return 1 <= value <= 65535 if type(value) is int else text_formats.PORT_NAME.matches(value)


@_condition("be a port or 0")
def port_or_zero(value: Any) -> bool:
    return value == 0 or port(value)


@_condition("be from 30000 to 32767, or 0")
def node_port_or_zero(value: int) -> bool:
    return value == 0 or (type(value) is int and 30000 <= value <= 32767)


@_condition("be a number, or at most 100%")
def count_or_share(value: str | int) -> bool:
    return 0 <= _share(value) <= (100 if isinstance(value, str) else 2**31)


# --- Lists, texts and maps


@_condition("have one item of each IP family")
def one_per_ip_family(value: list[str]) -> bool:
    return len({":" in address for address in value}) == len(value)


@_condition("have no path twice in its sources")
def unique_projected_paths(sources: list[Manifest]) -> bool:
    paths: list[tuple[Any]] = []
    for source in sources:
        # The files of tokens are not compared.
        for kind in source.keys() - {"serviceAccountToken"}:
            for holder in (section(source, kind), *items(section(source, kind), "items")):
                paths += ((holder[key],) for key in holder if key.lower().endswith("path"))
    return _are_unique(paths)


@_constructor
def max_items(count: str) -> Constraint:
    most = int(count)
    return Constraint(f"have at most {most} items", lambda value: len(value) <= most)


@_constructor
def max_length(count: str) -> Constraint:
    most = int(count)
    return Constraint(f"have at most {most} characters", lambda value: len(value) <= most)


@_condition("have no two items with the same {both}", "[].{each}")
def unique_by(value: list[Manifest], *keys: str) -> bool:
    rows: list[tuple[Any, ...]] = []
    for item in value:
        values = (item.get(key) or _DEFAULTS.get(key) for key in keys)
        rows.append(tuple(values))
    return _are_unique(rows)


@_condition("have no items besides {0}")
def alone(value: list[str], item: str) -> bool:
    return item not in value or len({*value}) == 1


@_condition("not have both {0} and {1}")
def not_both(value: list[str], first: str, second: str) -> bool:
    return not {first, second} <= {*value}


@_condition("have an item {either}")
def contains_one_of(value: list[Any], *accepted: str) -> bool:
    return not {UNKNOWN, *accepted}.isdisjoint(value)


@_condition("have only {all}", "{each}")
def only_keys(value: Manifest, *keys: str) -> bool:
    return {*keys} == {*value}


@_constructor
def keys_of(name: str) -> Constraint:
    key = parse(name)
    requirement = f"have keys that must {key.requirement}"
    return Constraint(requirement, lambda value: all(map(key.is_met, value)))


@_condition("not have the key {0}")
def lacks_key(value: Manifest, key: str) -> bool:
    return key not in value


@_condition("have one item with {0}: true", "[].{0}")
def one_marked(value: list[Manifest], key: str) -> bool:
    return sum(item.get(key) in (True, UNKNOWN) for item in value) == 1


@_condition("have at most one item with controller: true", "[].controller")
def one_controller(value: list[Manifest]) -> bool:
    return len({str(owner) for owner in value if owner.get("controller") is True}) < 2


@_condition("have a name for each of several items", "[].name")
def named_items(value: list[Manifest]) -> bool:
    return len(value) < 2 or all(item.get("name") for item in value)


@_condition("be labels")
def labels(value: Manifest) -> bool:
    are_valid = all(map(text_formats.QUALIFIED_NAME.matches, value))
    return are_valid and all(
        text_formats.LABEL_VALUE.matches(text or "") for text in value.values()
    )


@_condition("have at most 256 KiB")
def annotations_size(value: Manifest) -> bool:
    return sum(len(f"{key}{value[key] or ''}".encode()) for key in value) <= 2**18


@_condition("have at most 1 MiB")
def texts_size(value: Manifest) -> bool:
    return sum(len(text.encode()) for text in value.values() if isinstance(text, str)) <= 2**20


@_condition("have at most 1 MiB, encoded in base64")
def base64_size(value: Manifest) -> bool:
    return sum(len(text or "") for text in value.values()) <= _MAX_BASE64


@_condition("have whole numbers of what is counted")
def whole_counts(value: Manifest) -> bool:
    counted = filter(text_formats.COUNTED_RESOURCE.matches, value)
    return all(is_whole(milli(value[name] or 0)) for name in counted)


# --- Fields of a mapping against each other


@_condition("have exactly one of {all}", "{each}")
def exactly_one(value: Manifest, *keys: str) -> bool:
    return _count(value, keys) == 1


@_condition("have at most one of {all}", "{each}")
def at_most_one(value: Manifest, *keys: str) -> bool:
    return _count(value, keys) <= 1


@_condition("have one of {all}", "{each}")
def at_least_one(value: Manifest, *keys: str) -> bool:
    # An empty text is one: the indexes of a success policy may be so.
    return any(value.get(key) not in (None, []) for key in keys)


@_condition("have {0} of at most {1}", "{each}")
def ascending(value: Manifest, lower: str, upper: str) -> bool:
    return parse_quantity(value[lower]) <= parse_quantity(value[upper])


@_condition("have {0} times {1} of at most 2147483647", "{each}")
def int32_product(value: Manifest, first: str, second: str) -> bool:
    return (value_at(value, first) or 1) * (value_at(value, second) or 1) < 2**31


@_condition("have {0} below {1}", "{each}")
def below(value: Manifest, lower: str, upper: str) -> bool:
    return value[lower] < value[upper]


@_condition("have the same {0} and {1}", "{each}")
def equal(value: Manifest, first: str, second: str) -> bool:
    return len({value_at(value, first), value_at(value, second)} - {UNKNOWN}) < 2


@_condition("have no key both in {0} and {1}", "{each}")
def disjoint(value: Manifest, first: str, second: str) -> bool:
    return not {*(value.get(first) or ())} & {*(value.get(second) or ())}


@_condition("be named by {both}", "{each}")
def named_by(value: Manifest, *paths: str) -> bool:
    # join raises an error for a name that is not a text, such as an unknown one.
    name = "".join([value_at(value, "metadata.name")])
    return name == ".".join(value_at(value, path) for path in paths)


@_condition("have the key {either}")
def secret_key(secret: Manifest, *keys: str) -> bool:
    return not {*section(secret, "data"), *section(secret, "stringData")}.isdisjoint(keys)


@_condition("have JSON in {0}")
def secret_json(secret: Manifest, key: str) -> bool:
    # Kubernetes replaces data by stringData.
    text = section(secret, "stringData").get(key)
    decoded = base64.b64decode(secret["data"][key]).decode() if text is None else text
    return isinstance(embedded_json(decoded), dict | None)


@_condition("declare the names that {0} use", "{0}[].{1}")
def cel_variables(value: Manifest, items_key: str, expression_path: str, *declared: str) -> bool:
    """Return whether expressions of CEL use only variables or properties of the object."""
    names = {variable["name"] for variable in value.get("variables") or ()}
    names.update(declared, value.get("properties") or ())
    used: set[str] = set()
    for item in value.get(items_key) or ():
        used |= cel.member_names(value_at(item, expression_path) or "''")
    return used <= names or any(unknown_paths(value))


@_condition("have a label or an expression", "matchLabels", "matchExpressions")
def some_selector(value: Manifest) -> Any:
    return value.get("matchLabels") or value.get("matchExpressions")


@_condition("have an except of parts of its cidr", "cidr", "except[]")
def inner_exceptions(value: Manifest) -> bool:
    for excepted in value.get("except", ()):
        is_inside = _network(excepted).subnet_of(_network(value["cidr"]))
        if excepted == value["cidr"] or not is_inside:
            return False
    return True


@_condition("have a maxSurge or a maxUnavailable above 0", "maxSurge", "maxUnavailable")
def surge_or_unavailable(value: Manifest) -> bool:
    return _share(value.get("maxSurge", 1)) > 0 or _share(value.get("maxUnavailable", 1)) > 0


@_condition("have a maxSurge or a maxUnavailable of its replicas above 0", "{0}", "replicas")
def some_replicas_change(value: Manifest, path: str) -> bool:
    """Return whether a rollout changes some of the replicas: a percentage is rounded down."""
    rollout: Manifest = value_at(value, path) or {}
    replicas = value.get("replicas", 1)
    most = rollout.get("maxUnavailable", 1)
    unavailable = _share(most) * replicas // 100 if isinstance(most, str) else most
    return not replicas or _share(rollout.get("maxSurge", 0)) > 0 or unavailable > 0


@_condition("have either maxSurge or maxUnavailable above 0", "maxSurge", "maxUnavailable")
def surge_or_unavailable_only(value: Manifest) -> bool:
    return (_share(value.get("maxSurge", 0)) > 0) != (_share(value.get("maxUnavailable", 1)) > 0)


@_condition(
    "divide size into groups of subGroupSize, with or (LeaderExcluded: only) without the leader",
    *("size", "subGroupPolicy.subGroupSize"),
)
def whole_subgroups(value: Manifest) -> bool:
    # Source: pkg/webhooks/leaderworkerset_webhook.go (lws v0.9.0), validateUpdateSubGroupPolicy.
    size = value.get("size", 1)
    policy = section(value, "subGroupPolicy")
    in_group = policy["subGroupSize"]
    if in_group is UNKNOWN or not 0 < in_group <= size:
        return in_group is UNKNOWN
    excludes_leader = policy.get("subGroupPolicyType") == "LeaderExcluded"
    return (size - 1) % in_group == 0 or (size % in_group == 0 and not excludes_leader)


@_condition("have a groupName with several hosts a replica", "groupName", "numOfHosts")
def named_hosts(group: Manifest) -> bool:
    return group.get("groupName") != "" or group.get("numOfHosts", 1) < 2


@_condition("have at most 256 flavors, 256 coveredResources, and 512 pairs of both in each group")
def few_pairs(groups: Any) -> bool:
    flavors = [len(items(group, "flavors")) for group in groups]
    covered = [len(group["coveredResources"]) for group in groups]
    is_few = all(first * second <= 512 for first, second in zip(flavors, covered, strict=True))
    return is_few and sum(flavors) <= 256 and sum(covered) <= 256


@_condition("have flavors with the resources of coveredResources, in their order")
def covered_resources(group: Manifest) -> bool:
    covered = group["coveredResources"]
    for flavor in group["flavors"]:
        for resource, name in zip(flavor["resources"], covered, strict=True):
            if len({resource["name"], name} - {UNKNOWN}) > 1:
                return False
    return True


@_condition("have no flavor twice", "[].flavors[].name")
def unique_flavors(groups: list[Manifest]) -> bool:
    return _are_unique([(flavor["name"],) for group in groups for flavor in group["flavors"]])


@_condition("cover no resource twice", "[].coveredResources[]")
def unique_covered(groups: list[Manifest]) -> bool:
    return _are_unique([(name,) for group in groups for name in group["coveredResources"]])


@_condition("have checks on flavors of its resourceGroups")
def checks_on_own_flavors(queue: Manifest) -> bool:
    flavors: set[Any] = {UNKNOWN}
    for group in queue.get("resourceGroups") or ():
        flavors.update(flavor["name"] for flavor in group["flavors"])
    checked: set[Any] = set()
    for check in queue["admissionChecksStrategy"]["admissionChecks"]:
        checked.update(check.get("onFlavors") or ())
    return checked <= flavors or any(unknown_paths(queue))


@_condition("have its default in its enum", "default", "enum")
def default_in_enum(schema: Manifest) -> bool:
    return any(value in (schema["default"], UNKNOWN) for value in schema["enum"])


@_condition("have selectableFields of its schema", "selectableFields[].jsonPath")
def own_selectable_fields(version: Manifest) -> bool:
    for selectable in version.get("selectableFields") or ():
        path = selectable["jsonPath"].replace(".", ".properties.")
        type_ = value_at(version["schema"], f"openAPIV3Schema{path}.type")
        if type_ not in ("boolean", "integer", "string", UNKNOWN):
            return False
    return True


# --- What KubeRay compares


@_condition("be a version of Ray from {0} on")
def ray_version(value: str, least: str) -> bool:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.findall("[0-9]+", text)[:3]]

    return re.match("v?[0-9]+[.][0-9]", value) is not None and numbers(value) >= numbers(least)


@_condition("have a value of {0}")
def has_value(value: Manifest, key: str) -> bool:
    return bool(value.get(key))


@_condition("have none of {either}")
def lacks(value: Manifest, *keys: str) -> bool:
    return not any(value.get(key) for key in keys)


@_condition("have a first one without the variable {0}")
def first_env_not(containers: list[Manifest], name: str, *values: str) -> bool:
    """Return whether the first container lacks a variable, or one with certain values."""
    for variable in items(containers[0], "env"):
        if variable.get("name") == name and (not values or variable.get("value") in values):
            return False
    return True


@_condition("have version v2 in autoscalerOptions for idleTimeoutSeconds of its groups")
def idle_timeouts(cluster: Manifest) -> bool:
    groups = items(cluster, "workerGroupSpecs")
    is_v2 = section(cluster, "autoscalerOptions").get("version") == "v2"
    containers = items(section(cluster, "headGroupSpec", "template", "spec"), "containers")
    by_variable = not first_env_not(containers, "RAY_enable_autoscaler_v2", "1", "true")
    return is_v2 or by_variable or all(group.get("idleTimeoutSeconds") is None for group in groups)


@_condition("have one rule for a policy and a status, and delete workers first, itself last")
def deletion_rules(rules: list[Manifest]) -> bool:
    order = ("DeleteWorkers", "DeleteCluster", "DeleteSelf")
    seconds: dict[tuple[str, str], dict[str, int]] = {}
    for rule in rules:
        condition: Manifest = rule["condition"]
        key = "jobStatus" if condition.get("jobStatus") else "jobDeploymentStatus"
        policies = seconds.setdefault((key, condition.get(key, "")), {})
        if rule["policy"] in policies:
            return False
        policies[rule["policy"]] = condition.get("ttlSeconds", 0)
    for policies in seconds.values():
        in_order = [policies[policy] for policy in order if policy in policies]
        if in_order != sorted(in_order):
            return False
    return True


# --- What the tests share


def value_at(tree: Any, path: str) -> Any:
    """Return the value at a path of keys; a value that is not a mapping counts for those below."""
    for key in path_keys(path):
        tree = tree.get(key) if is_mapping(tree) else tree
    return tree


@cache
def _time_zones() -> Set[str]:
    """Return the time zones of the machine's database; none if it has no database."""
    import zoneinfo  # only CronJobs with a time zone need it

    return zoneinfo.available_timezones()


def _network(value: str) -> Any:
    return ipaddress.ip_network(value)


def _count(value: Manifest, keys: Iterable[str]) -> int:
    return sum(value.get(key) not in (None, "", []) for key in keys)


def _are_unique(items: list[tuple[Any, ...]]) -> bool:
    """Return whether no item is there twice.

    Items whose first value is empty, or with an unknown value, do not count.
    """
    compared = [item for item in items if item[0] and UNKNOWN not in item]
    return len(set(map(as_key, compared))) == len(compared)


def _share(value: str | int) -> int:
    """Return a number, or the number of a percentage."""
    return int(re.findall(r"^([0-9]+)%\Z", value)[0]) if isinstance(value, str) else value
