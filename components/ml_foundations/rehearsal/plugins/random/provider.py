"""Random values that stay as they are until an input changes, as pulumi-random has them.

Source: the reference of pulumi-random. A password has no ``bcryptHash`` here.
"""

import base64
import secrets
import string
import uuid
from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar

from ml_foundations.kubernetes.manifests import UNKNOWN
from ml_foundations.rehearsal.plugins.changes import changed_paths
from ml_foundations.rehearsal.plugins.inputs import faults
from ml_foundations.rehearsal.plugins.provider import CheckError, Diff, Provider, Resource, State
from ml_foundations.rehearsal.plugins.sdk import Sdk
from ml_foundations.rehearsal.plugins.values import Properties, Secret
from ml_foundations.rehearsal.progress import RehearsalError

_LETTERS = {"upper": string.ascii_uppercase, "lower": string.ascii_lowercase, "numeric": string.digits}
_SPECIAL = "!@#$%&*()-_=+[]{}<>:?"
_WORDS = ["able", "bold", "calm", "eager", "fast", "keen", "light", "neat", "quick", "solid", "warm", "wise"]
_ANIMALS = ["badger", "crane", "dingo", "finch", "gecko", "heron", "lemur", "otter", "panda", "robin", "shrew", "whale"]


class RandomProvider(Provider):
    """Makes a value once; a change of any input makes another."""

    sdk: ClassVar[Sdk] = Sdk("random")

    def check(self, resource: Resource, old: Properties, new: Properties, seed: bytes) -> Properties:
        """Refuse types and inputs that the package does not have."""
        if resource.type not in self.sdk:
            raise CheckError([("", f"{resource.type} is not a type of pulumi-random {self.sdk.version}")])
        if found := list(faults(self.sdk, resource.type, self.sdk[resource.type], new)):
            raise CheckError(found)
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
        identity, outputs = _made(resource.type.rpartition(":")[2], new)
        return State(identity, new, new | outputs)

    def read(self, resource: Resource, old: State) -> State | None:
        """The value as it was made."""
        if not old.outputs:
            raise RehearsalError(f"{resource.type} cannot be imported in a rehearsal. Let the program make it")
        return old

    def delete(self, resource: Resource, old: State) -> None:
        """Nothing is kept outside Pulumi's state."""


def _made(kind: str, given: Mapping[str, Any]) -> tuple[str, Properties]:
    """The id of a new value, and the outputs beside the inputs."""
    prefix = given.get("prefix") or ""
    chance = Random(given["seed"]) if given.get("seed") else secrets.SystemRandom()
    match kind:
        case "RandomBytes":
            raw = secrets.token_bytes(int(given["length"]))
            encoded = base64.b64encode(raw).decode()
            return encoded, {"base64": Secret(encoded), "hex": Secret(raw.hex())}
        case "RandomId":
            raw = secrets.token_bytes(int(given["byteLength"]))
            identity = base64.urlsafe_b64encode(raw).decode().rstrip("=")
            forms = {"b64Std": base64.b64encode(raw).decode(), "b64Url": identity, "hex": raw.hex()}
            return identity, {key: f"{prefix}{text}" for key, text in (forms | {"dec": int.from_bytes(raw)}).items()}
        case "RandomInteger":
            number = chance.randint(int(given["min"]), int(given["max"]))
            return str(number), {"result": number}
        case "RandomPassword":
            return "none", {"result": Secret(_text(given))}
        case "RandomPet":
            words = [chance.choice(_WORDS) for _ in range(int(given.get("length") or 2) - 1)]
            return (given.get("separator") or "-").join(filter(None, [prefix, *words, chance.choice(_ANIMALS)])), {}
        case "RandomShuffle":
            items = list(given["inputs"])
            chance.shuffle(items)
            wanted = int(given.get("resultCount") or len(items))
            return "-", {"results": [items[index % len(items)] for index in range(wanted if items else 0)]}
        case "RandomString":
            text = _text(given)
            return text, {"result": text}
        case _:
            made = str(uuid.uuid4())
            return made, {"result": made}


def _text(given: Mapping[str, Any]) -> str:
    """Letters of each kind that is not switched off, with the least number of each."""
    every = _LETTERS | {"special": given.get("overrideSpecial") or _SPECIAL}
    kinds = {name: letters for name, letters in every.items() if given.get(name) is not False}
    least = [secrets.choice(kinds[kind]) for kind in kinds for _ in range(int(given.get(f"min{kind.title()}") or 0))]
    rest = int(given["length"]) - len(least)
    if rest < 0 or not kinds:
        raise RehearsalError("length: is less than the sum of the minimums, or no kind of character is left")
    letters = least + [secrets.choice("".join(kinds.values())) for _ in range(rest)]
    secrets.SystemRandom().shuffle(letters)
    return "".join(letters)
