"""Random values that stay as they are until an input changes, as pulumi-random has them.

Source: the reference of pulumi-random. A password has no ``bcryptHash`` here.
"""

from __future__ import annotations

import base64
import secrets
import string
import uuid
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, ClassVar

from ml_foundations.kubernetes.manifests import UNKNOWN
from ml_foundations.rehearsal.plugins.changes import changed_paths
from ml_foundations.rehearsal.plugins.provider import CheckError, Diff, Provider, Resource, State
from ml_foundations.rehearsal.plugins.sdk import Sdk
from ml_foundations.rehearsal.plugins.values import Properties, Secret
from ml_foundations.rehearsal.progress import RehearsalError

_SPECIAL = "!@#$%&*()-_=+[]{}<>:?"
_KINDS = {"upper": string.ascii_uppercase, "lower": string.ascii_lowercase, "numeric": string.digits}
_WORDS = ("able", "bold", "calm", "eager", "fast", "keen", "light", "neat", "quick", "solid", "warm", "wise")
_ANIMALS = (
    "badger",
    "crane",
    "dingo",
    "falcon",
    "gecko",
    "heron",
    "lemur",
    "otter",
    "panda",
    "robin",
    "shrew",
    "whale",
)

Made = tuple[str, Properties]
"""An id, and the outputs beside the inputs."""


class RandomProvider(Provider):
    """Makes a value once; a change of any input makes another."""

    sdk: ClassVar[Sdk] = Sdk("random")

    def check(self, resource: Resource, old: Properties, new: Properties, seed: bytes) -> Properties:
        """Refuse what is not made here, and inputs that the type does not take."""
        if resource.type not in _MAKE:
            raise CheckError([("", f"{resource.type} is not made in a rehearsal, which makes {', '.join(_MAKE)}")])
        kind = self.sdk[resource.type]
        unknown = [(key, f"{resource.type} has no property of this name") for key in new if key not in kind.inputs]
        if missing := [(key, "is required") for key in sorted(kind.required - new.keys())] + unknown:
            raise CheckError(missing)
        return new

    def diff(self, resource: Resource, old: State, new: Properties, ignore: list[str]) -> Diff:
        """Every change replaces."""
        changed = list(changed_paths(old.inputs, new))
        return Diff(changed, changed)

    def preview(self, resource: Resource, old: State | None, new: Properties) -> Properties:
        """The inputs; the value is not known before it is made."""
        return dict.fromkeys(self.sdk[resource.type].computed, UNKNOWN) | new

    def create(self, resource: Resource, new: Properties) -> State:
        """Make a value."""
        identity, outputs = _MAKE[resource.type](new)
        return State(identity, new, new | outputs)

    def read(self, resource: Resource, old: State) -> State | None:
        """The value as it was made."""
        if not old.outputs:
            raise RehearsalError(f"{resource.type} cannot be imported in a rehearsal. Let the program make it")
        return old

    def delete(self, resource: Resource, old: State) -> None:
        """Nothing is kept outside Pulumi's state."""


def _bytes(given: Mapping[str, Any], length: str) -> bytes:
    return secrets.token_bytes(int(given[length]))


def _id(given: Mapping[str, Any]) -> Made:
    raw, prefix = _bytes(given, "byteLength"), given.get("prefix") or ""
    url = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    forms = {"b64Std": base64.b64encode(raw).decode(), "b64Url": url, "hex": raw.hex()}
    return url, {key: f"{prefix}{text}" for key, text in forms.items()} | {"dec": f"{prefix}{int.from_bytes(raw)}"}


def _text(given: Mapping[str, Any]) -> str:
    special = given.get("overrideSpecial") or _SPECIAL
    kinds = {name: letters for name, letters in {**_KINDS, "special": special}.items() if given.get(name) is not False}
    least = [secrets.choice(kinds.get(k, "")) for k in kinds for _ in range(int(given.get(f"min{k.title()}") or 0))]
    rest = int(given["length"]) - len(least)
    if rest < 0 or not kinds:
        raise RehearsalError("length: is less than the sum of the minimums, or no kind of character is left")
    letters = least + [secrets.choice("".join(kinds.values())) for _ in range(rest)]
    secrets.SystemRandom().shuffle(letters)
    return "".join(letters)


def _string(given: Mapping[str, Any]) -> Made:
    text = _text(given)
    return text, {"result": text}


def _number(given: Mapping[str, Any]) -> Made:
    number = _generator(given).randint(int(given["min"]), int(given["max"]))
    return str(number), {"result": number}


def _pet(given: Mapping[str, Any]) -> Made:
    words = [secrets.choice(_WORDS) for _ in range(int(given.get("length") or 2) - 1)]
    parts = [given.get("prefix"), *words, secrets.choice(_ANIMALS)]
    return (given.get("separator") or "-").join(filter(None, parts)), {}


def _uuid(given: Mapping[str, Any]) -> Made:
    made = str(uuid.uuid4())
    return made, {"result": made}


def _shuffle(given: Mapping[str, Any]) -> Made:
    items = list(given["inputs"])
    _generator(given).shuffle(items)
    wanted = int(given.get("resultCount") or len(items))
    return "-", {"results": [items[index % len(items)] for index in range(wanted if items else 0)]}


def _raw(given: Mapping[str, Any]) -> Made:
    raw = _bytes(given, "length")
    encoded = base64.b64encode(raw).decode()
    return encoded, {"base64": Secret(encoded), "hex": Secret(raw.hex())}


def _generator(given: Mapping[str, Any]) -> Random:
    return Random(given["seed"]) if given.get("seed") else secrets.SystemRandom()


_MAKE: Mapping[str, Callable[[Mapping[str, Any]], Made]] = {
    "random:index/randomBytes:RandomBytes": _raw,
    "random:index/randomId:RandomId": _id,
    "random:index/randomInteger:RandomInteger": _number,
    "random:index/randomPassword:RandomPassword": lambda given: ("none", {"result": Secret(_text(given))}),
    "random:index/randomPet:RandomPet": _pet,
    "random:index/randomShuffle:RandomShuffle": _shuffle,
    "random:index/randomString:RandomString": _string,
    "random:index/randomUuid:RandomUuid": _uuid,
}
