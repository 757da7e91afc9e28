"""The devices that drivers publish in ResourceSlices, and which of them claims may get.

Nothing is known unless all slices of a pool are shown, all claims are made for pods, and all
conditions of classes and requests are comparisons that planning follows. Then claims that may get
the same devices of a node count like requests for an extended resource (Kubernetes,
staging/src/k8s.io/dynamic-resource-allocation/structured).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import Manifest, items, mappings, name_of, section
from ml_foundations.kubernetes.quantities import WHOLE, Amounts, parse_quantity
from ml_foundations.kubernetes.words import shown

_TEXT = r"""['"]([^'"]+)['"]"""
_DRIVER = re.compile(rf"device\.driver == {_TEXT}")
_ATTRIBUTE = re.compile(
    rf"device\.attributes\[{_TEXT}\]\.(\w+) == (?:{_TEXT}|(\d{{1,18}})|(true|false))"
)
_CAPACITY = re.compile(
    rf"device\.capacity\[{_TEXT}\]\.(\w+)\.compareTo\(quantity\({_TEXT}\)\) >= 0"
)
_OF_SLICE = frozenset({"driver", "nodeName", "pool", "devices"})
_OF_DEVICE = frozenset({"name", "attributes", "capacity"})
_OF_RESULT = frozenset({"driver", "pool", "device", "request"})
"""The fields of slices, devices and allocations that planning follows: others share devices."""
_Device = tuple[str, str, str]
"""The driver, the pool and the name of a device."""


class _NotFollowedError(Exception):
    """Something about devices that planning does not follow."""


_NOT_FOLLOWED = (_NotFollowedError, AttributeError, LookupError, TypeError, ValueError)
"""Also raised by objects whose values have other types or are not known."""


class PublishedDevices:
    """The free devices of nodes, by the requests of ResourceClaimTemplates."""

    def __init__(
        self, by_kind: Mapping[str, Sequence[Manifest]], requests: Iterable[Manifest]
    ) -> None:
        self._classes = {name_of(one): one for one in by_kind.get("DeviceClass", ())}
        self._devices: dict[_Device, tuple[str, Manifest]] = {}
        self._known: dict[str, frozenset[_Device]] = {}
        names: dict[frozenset[_Device], str] = {}
        taken: set[_Device] = set()
        self.not_followed = ""
        """What planning does not follow, in words; "" if it follows all or does not know it."""
        try:
            if by_kind.get("ResourceSlice"):
                taken = _taken(by_kind)
                self._devices.update(_shown(by_kind["ResourceSlice"]))
                for request in requests:
                    self._add(request, names)
        except _NOT_FOLLOWED as error:
            names = {}
            if isinstance(error, _NotFollowedError):
                self.not_followed = str(error)
        self._names = names
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for devices, name in names.items():
            self._counts[name].update(self._devices[device][0] for device in devices - taken)

    def resource(self, request: Manifest) -> str:
        """Return the name of what a request is for; "" if its devices are not known."""
        try:
            return self._names.get(self._matching(request), "") if self._names else ""
        except _NOT_FOLLOWED:
            return ""

    def on(self, node: str) -> Amounts:
        """Return the free devices of a node, in thousandths, by what requests are for."""
        return {name: self._counts[name][node] * WHOLE for name in self._names.values()}

    def _add(self, request: Manifest, names: dict[frozenset[_Device], str]) -> None:
        devices = self._matching(request)
        if devices in names:
            return
        if any(known & devices for known in names):
            raise _NotFollowedError
        name = f"{labels.DEVICES_OF_CLASS}{request['deviceClassName']}"
        number = len(names)
        names[devices] = f"{name}#{number}" if name in names.values() else name

    def _matching(self, request: Manifest) -> frozenset[_Device]:
        """Return the devices that a request may get."""
        of_class = section(self._classes[request["deviceClassName"]], "spec")
        terms: list[str] = []
        for selector in (*items(of_class, "selectors"), *items(request, "selectors")):
            terms += map(str.strip, selector["cel"]["expression"].split("&&"))
        text = " && ".join(terms)
        if text not in self._known:
            drivers = {match[1] for match in map(_DRIVER.fullmatch, terms) if match}
            if not drivers & {driver for driver, *_ in self._devices}:
                raise _NotFollowedError  # its slices are not shown
            matching: set[_Device] = set()
            for key, (_, device) in self._devices.items():
                # The first condition that does not hold ends it.
                if all(_holds(term, key[0], device) for term in terms):
                    matching.add(key)
            self._known[text] = frozenset(matching)
        return self._known[text]


def _taken(by_kind: Mapping[str, Sequence[Manifest]]) -> set[_Device]:
    """Return the devices that claims have already."""
    taken: set[_Device] = set()
    claims = by_kind.get("ResourceClaim", ())
    for claim in claims:
        devices = section(claim, "status", "allocation", "devices")
        if not devices:
            raise _NotFollowedError(f"ResourceClaim {name_of(claim)}, which may get any device")
        for result in devices["results"]:
            if result.keys() - _OF_RESULT:
                raise _NotFollowedError
            taken.add((result["driver"], result["pool"], result["device"]))
    names = set(map(name_of, claims))
    for pod in by_kind.get("Pod", ()):
        for claim in mappings(section(pod, "status"), "resourceClaimStatuses"):
            if claim.get("resourceClaimName") not in names:
                raise _NotFollowedError
    return taken


def _shown(slices: Iterable[Manifest]) -> Iterator[tuple[_Device, tuple[str, Manifest]]]:
    """Yield the devices of the newest slices of each pool, each with its node."""
    pools: defaultdict[tuple[str, str], list[Manifest]] = defaultdict(list)
    for published in slices:
        spec = section(published, "spec")
        pools[spec["driver"], spec["pool"]["name"]].append(spec)
    for (driver, pool), specs in pools.items():
        newest = max(spec["pool"]["generation"] for spec in specs)
        current = [spec for spec in specs if spec["pool"]["generation"] == newest]
        for spec in current:
            is_whole = spec["pool"]["resourceSliceCount"] == len(current)
            if not is_whole or spec.keys() - _OF_SLICE:
                raise _NotFollowedError
            node = "".join([spec["nodeName"]])  # an error for what is not a text
            for device in items(spec, "devices"):
                if device.keys() - _OF_DEVICE:
                    raise _NotFollowedError
                yield (driver, pool, device["name"]), (node, device)


def _holds(term: str, driver: str, device: Manifest) -> bool:
    if match := _DRIVER.fullmatch(term):
        return match[1] == driver
    if match := _CAPACITY.fullmatch(term):
        value = _value(section(device, "capacity"), match[1], match[2], driver)
        return parse_quantity(value["value"]) >= parse_quantity(match[3])
    if match := _ATTRIBUTE.fullmatch(term):
        value = _value(section(device, "attributes"), match[1], match[2], driver)
        if match[3]:
            return value["string"] == match[3]
        return value["int"] == int(match[4]) if match[4] else value["bool"] is (match[5] == "true")
    raise _NotFollowedError(f"the condition {shown(term, 100)}")


def _value(values: Manifest, domain: str, name: str, driver: str) -> Manifest:
    """Return an attribute or a capacity; those without a domain are of the driver's."""
    # The scheduler gives up if a device lacks it (KeyError).
    return values[name if domain == driver and name in values else f"{domain}/{name}"]
