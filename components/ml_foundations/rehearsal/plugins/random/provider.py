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

from ml_foundations.rehearsal.plugins.generated_values import StatelessProvider
from ml_foundations.rehearsal.plugins.sdk import Sdk
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties, Secret

_LETTERS = {
    "upper": string.ascii_uppercase,
    "lower": string.ascii_lowercase,
    "numeric": string.digits,
}
_SPECIAL = "!@#$%&*()-_=+[]{}<>:?"
_WORDS = [
    "able",
    "bold",
    "calm",
    "eager",
    "fast",
    "keen",
    "light",
    "neat",
    "quick",
    "solid",
    "warm",
    "wise",
]
_ANIMALS = [
    "badger",
    "crane",
    "dingo",
    "finch",
    "gecko",
    "heron",
    "lemur",
    "otter",
    "panda",
    "robin",
    "shrew",
    "whale",
]


class RandomProvider(StatelessProvider):
    """Values of chance."""

    sdk: ClassVar[Sdk] = Sdk("random")

    def make(self, kind: str, given: Properties) -> tuple[str, Properties]:
        """A value by chance."""
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
                forms = {
                    "b64Std": base64.b64encode(raw).decode(),
                    "b64Url": identity,
                    "hex": raw.hex(),
                }
                forms["dec"] = str(int.from_bytes(raw))
                return identity, {key: f"{prefix}{text}" for key, text in forms.items()}
            case "RandomInteger":
                number = chance.randint(int(given["min"]), int(given["max"]))
                return str(number), {"result": number}
            case "RandomPassword":
                return "none", {"result": Secret(_text(given))}
            case "RandomPet":
                words = [chance.choice(_WORDS) for _ in range(int(given.get("length") or 2) - 1)]
                return (given.get("separator") or "-").join(
                    filter(None, [prefix, *words, chance.choice(_ANIMALS)])
                ), {}
            case "RandomShuffle":
                items = list(given["inputs"])
                chance.shuffle(items)
                wanted = int(given.get("resultCount") or len(items))
                return "-", {
                    "results": [
                        items[index % len(items)] for index in range(wanted if items else 0)
                    ]
                }
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
    least = [
        secrets.choice(kinds[kind])
        for kind in kinds
        for _ in range(int(given.get(f"min{kind.title()}") or 0))
    ]
    rest = int(given["length"]) - len(least)
    if rest < 0 or not kinds:
        raise RehearsalError(
            "length: is less than the sum of the minimums, or no kind of character is left"
        )
    letters = least + [secrets.choice("".join(kinds.values())) for _ in range(rest)]
    secrets.SystemRandom().shuffle(letters)
    return "".join(letters)
