"""Random values that stay as they are until an input changes, as those of pulumi-random.

Source: the reference of pulumi-random. A password has no ``bcryptHash`` here.
"""

import base64
import secrets
import string
import uuid
from collections.abc import Mapping
from itertools import cycle, islice
from random import Random
from typing import Any, ClassVar

from ml_foundations.rehearsal.plugins.generated_values import StatelessProvider
from ml_foundations.rehearsal.plugins.sdk import Sdk
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties, Secret

_CHARACTERS = {
    "upper": string.ascii_uppercase,
    "lower": string.ascii_lowercase,
    "numeric": string.digits,
    "special": "!@#$%&*()-_=+[]{}<>:?",
}
_WORDS = [
    *("able", "bold", "calm", "eager", "fast", "keen"),
    *("light", "neat", "quick", "solid", "warm", "wise"),
]
_ANIMALS = [
    *("badger", "crane", "dingo", "finch", "gecko", "heron"),
    *("lemur", "otter", "panda", "robin", "shrew", "whale"),
]


class RandomProvider(StatelessProvider):
    """A provider of random numbers, bytes, texts, names and orders."""

    sdk: ClassVar[Sdk] = Sdk("random")

    def generate(self, kind: str, inputs: Properties) -> tuple[str, Properties]:
        """Return a random value."""
        # With a seed, the value is repeatable, so secrets are made without it.
        chance = Random(inputs["seed"]) if inputs.get("seed") else secrets.SystemRandom()
        match kind:
            case "RandomBytes":
                raw = secrets.token_bytes(int(inputs["length"]))
                encoded = base64.b64encode(raw).decode()
                return encoded, {"base64": Secret(encoded), "hex": Secret(raw.hex())}
            case "RandomId":
                raw = secrets.token_bytes(int(inputs["byteLength"]))
                identity = base64.urlsafe_b64encode(raw).decode().rstrip("=")
                prefix = inputs.get("prefix") or ""
                return identity, {
                    "b64Std": prefix + base64.b64encode(raw).decode(),
                    "b64Url": prefix + identity,
                    "hex": prefix + raw.hex(),
                    "dec": prefix + str(int.from_bytes(raw)),
                }
            case "RandomInteger":
                number = chance.randint(int(inputs["min"]), int(inputs["max"]))
                return str(number), {"result": number}
            case "RandomPassword":
                return "none", {"result": Secret(_random_text(inputs))}
            case "RandomPet":
                words = chance.choices(_WORDS, k=max(int(inputs.get("length") or 2) - 1, 0))
                parts = filter(None, [inputs.get("prefix"), *words, chance.choice(_ANIMALS)])
                return (inputs.get("separator") or "-").join(parts), {}
            case "RandomShuffle":
                # The inputs repeat until there are ``resultCount`` of them.
                items = list(inputs["inputs"])
                chance.shuffle(items)
                count = int(inputs.get("resultCount") or len(items))
                return "-", {"results": list(islice(cycle(items), count))}
            case "RandomString":
                text = _random_text(inputs)
                return text, {"result": text}
            case _:
                identity = str(uuid.uuid4())
                return identity, {"result": identity}


def _random_text(inputs: Mapping[str, Any]) -> str:
    """Return letters of each kind that is not disabled, with the minimum number of each."""
    chance = secrets.SystemRandom()
    chosen = list[str]()
    allowed = ""
    special = inputs.get("overrideSpecial") or _CHARACTERS["special"]
    for kind, characters in (_CHARACTERS | {"special": special}).items():
        if inputs.get(kind) is not False:
            allowed += characters
            chosen += chance.choices(characters, k=int(inputs.get(f"min{kind.title()}") or 0))
    remaining = int(inputs["length"]) - len(chosen)
    if remaining < 0 or not allowed:
        reason = "is less than the sum of the minimums, or no kind of character is left"
        raise RehearsalError(f"length: {reason}")
    chosen += chance.choices(allowed, k=remaining)
    # Otherwise, the characters of the minimums would always come first.
    chance.shuffle(chosen)
    return "".join(chosen)
