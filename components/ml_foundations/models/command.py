"""The words of a container's command, and which program they start.

A container is a plain manifest with ``image``, ``command``, ``args``, ``env`` and ``envFrom``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any, NamedTuple, cast

from ml_foundations.kubernetes.objects import items
from ml_foundations.kubernetes.quantities import decimal_number
from ml_foundations.models.reasons import Cause, Reason, undetermined
from ml_foundations.models.shell import UNKNOWN, Command, UnreadableError, commands

Release = tuple[int, int, int]

_REFERENCE = re.compile(r"\$(?:\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")
"""A variable in a container's command, or ``$$`` for a dollar sign (Kubernetes, "Define dependent
environment variables")."""
_OPTION = re.compile(r"(--?[\w.-]+)=")
_SERVERS = re.compile(r"\b(?:vllm|sglang|text-generation-launcher)\b")
_SHELL = re.compile(
    r"(?:[^\0]*/)?(?:ba|da)?sh\0(?:[-+][^\0]*\0|pipefail\0)*"
    r"-[a-z]*c[a-z]*\0(?:[-+][^\0]*\0|pipefail\0)*(?=[^\0])"
)
"""A shell and its options before a script, each with a NUL after it."""
_WRAPPERS = re.compile(
    r"(?:(?:[^\0]*/)?(?:env\0(?:[A-Za-z_]\w*=[^\0]*\0)*|(?:tini|dumb-init)\0(?:-[a-z]+\0)*(?:--\0)?"
    r"|uv\0run\0(?:--(?:no-sync|frozen|locked|active|no-project)\0)*(?:--\0)?"
    r"|numactl\0(?:--?[a-z]+=[^\0]*\0|-[NmC]\0[^\0]*\0|-l\0|--localalloc\0)*(?:--\0)?"
    r"|timeout\0(?:--?[a-z-]+(?:=[^\0]*)?\0)*[\d.]+[smhd]?\0|nice\0(?:-n\0?-?\d+\0)?|nohup\0))*"
)
"""Programs with their options, each with a NUL after it, that replace themselves by the next."""
_IMAGE = re.compile(
    r"(?:.*/)?(?P<name>[^/:@]+)(?::v?(?P<release>[0-9]{1,9}(?:\.[0-9]{1,9}){2})?[^@]*)?(?:@.*)?"
)
_IMAGES = {
    "vllm-openai": "vllm",
    "vllm-openai-nonroot": "vllm",
    "sglang": "sglang",
    "text-generation-inference": "tgi",
}
"""Images whose tags are releases of a program, by the last part of their names."""
_TGI_OF_GOOGLE = "huggingface-text-generation-inference-"
"""How the names of Google's images of it begin. Their tags do not name a release."""
_ENTRYPOINTS = {"vllm": ["vllm", "serve"], "tgi": ["text-generation-launcher"]}
_API_SERVER = "vllm.entrypoints.openai.api_server"
"""The entrypoint before vllm 0.12. It reads the same arguments, but no model without --model."""
_PROGRAMS = {
    "vllm serve": "vllm",
    "-m vllm.entrypoints.cli.main serve": "vllm",
    f"-m {_API_SERVER}": "vllm",
    "-m sglang.launch_server": "sglang",
    "sglang serve": "sglang",
    "text-generation-launcher": "tgi",
    "torchrun": "torchrun",
    "-m torch.distributed.run": "torchrun",
    "accelerate launch": "accelerate",
    "-m accelerate.commands.launch": "accelerate",
}
_STARTS = re.compile("|".join(name.replace(" ", r"[\s\\]+") for name in _PROGRAMS))


class Word(NamedTuple):
    """A word of a command, None if it is not known yet, and its field."""

    text: str | None
    path: str


@dataclass(frozen=True)
class Program:
    """A program with its arguments and environment."""

    name: str
    """vllm, sglang, tgi, torchrun or accelerate."""
    image: str
    """The last part of the image's name."""
    release: Release | None
    arguments: tuple[Word, ...]
    env: Mapping[str, str | None]
    """Variables by name, None if the value is not known."""
    env_is_complete: bool
    is_api_server: bool
    """Whether vLLM starts by the module of its API server, not by ``vllm serve``."""
    before: str
    """What a script runs before it: it may install another release, or start Ray."""
    is_alone: bool
    """Whether nothing else runs in the container."""

    def visible(self) -> tuple[int, ...] | None:
        """Return the GPUs of ``CUDA_VISIBLE_DEVICES``, None if they are not numbers or not set."""
        text = self.env.get("CUDA_VISIBLE_DEVICES") or ""
        numbers = [*map(decimal_number, text.replace(" ", "").split(","))]
        indices = tuple(number for number in numbers if number is not None)
        return indices if len(indices) == len(numbers) else None


def release_of(text: str) -> Release:
    """Return a release, such as 0.19.1."""
    return cast("Release", tuple(map(int, text.split("."))))


def program(container: Mapping[str, Any]) -> Program | Reason | None:
    """Return what a container starts, or None if its image and command are of nothing known."""
    env: dict[str, str | None] = {}
    for variable in items(container, "env"):
        # A variable may refer to those before it.
        value = _expanded(variable.get("value", None if "valueFrom" in variable else ""), env)
        env[str(variable.get("name"))] = None if UNKNOWN in value else value
    matched = _IMAGE.fullmatch(str(container.get("image", "")))
    image, tag = (matched["name"], matched["release"]) if matched else ("", None)
    release = release_of(tag) if tag else None
    engine = "tgi" if image.startswith(_TGI_OF_GOOGLE) else _IMAGES.get(image, "")
    entrypoint = [] if container.get("command") else _ENTRYPOINTS.get(engine, [])
    if entrypoint and engine == "vllm" and release and release < (0, 12, 0):
        entrypoint = ["python3", "-m", _API_SERVER]
    fields = [("image", text) for text in entrypoint]
    for key in ("command", "args"):
        fields += _fields(container, key, env)
    paths: Iterable[str] = [path for path, _ in fields]
    texts = [text for _, text in fields]
    is_complete = not container.get("envFrom")
    starting: Iterable[Command] = [Command(texts, env)]
    script = path = ""
    joined = "\0".join(texts)
    shell = _SHELL.match(joined, sum(len(word) + 1 for word in _wrapped(texts)))
    if shell:
        path, script = fields[joined.count("\0", 0, shell.end())]
        env |= _variables(texts)
        paths = repeat(path)
        starting = commands(script, env, is_complete=is_complete)
    try:
        command, before = _known(starting, script)
    except UnreadableError as error:
        cause = Cause.UNREADABLE_SCRIPT if shell else Cause.UNKNOWN_START
        doubt = undetermined(cause, str(error), path)
        return doubt if _SERVERS.search(script or joined) else None
    if command is None:
        return None
    name, count = _named(command.words)
    # A project of uv has the release that it locks.
    is_of_image = engine == name and not before and "uv" not in command.words[:count]
    return Program(
        name=name,
        image=image,
        release=release if is_of_image else None,
        arguments=tuple(_arguments(islice(zip(command.words, paths, strict=False), count, None))),
        env=command.env | _variables(command.words),
        env_is_complete=is_complete,
        is_api_server=_API_SERVER in command.words[:count],
        before=before,
        is_alone=not before and "&" not in script,
    )


def _fields(
    container: Mapping[str, Any], key: str, env: Mapping[str, str | None]
) -> Iterator[tuple[str, str]]:
    """Yield the fields of a command with their texts."""
    values = container.get(key)
    if isinstance(values, list):
        for index, value in enumerate(cast("list[Any]", values)):
            yield f"{key}[{index}]", _expanded(value, env)
    elif values is not None:
        yield key, UNKNOWN


def _expanded(text: Any, env: Mapping[str, str | None]) -> str:
    """Return a text with its references replaced. ``UNKNOWN`` is for values that are not known.

    A variable that the container does not declare may be a controller's or that of a Service.
    """
    if not isinstance(text, str):
        return UNKNOWN

    def value(reference: re.Match[str]) -> str:
        known = env.get(reference[1]) if reference[1] else "$"
        return UNKNOWN if known is None else known

    return _REFERENCE.sub(value, text)


def _known(starting: Iterable[Command], script: str) -> tuple[Command | None, str]:
    """Return the known program among those that start, and the words of those before it.

    Raises:
        UnreadableError: Several start, or it is not certain which.
    """
    known: Command | None = None
    before: list[str] = []
    try:
        for command in starting:
            is_known = bool(_named(command.words)[0])
            if not is_known and _STARTS.search(" ".join(command.words)):
                raise UnreadableError(command.words[0])
            if is_known and known:
                raise UnreadableError("two programs")
            if is_known:
                known = command
            elif known is None:
                before += command.words
    except UnreadableError:
        # What the rest does has no effect on a program that has started.
        if known is None or len(_STARTS.findall(script)) > 1:
            raise
    return known, " ".join(before)


def _wrapped(words: Sequence[str]) -> Sequence[str]:
    """Return the words of programs that only start the next one, such as ``env A=1``."""
    matched = _WRAPPERS.match("".join(f"{word}\0" for word in words))
    return words[: matched[0].count("\0")] if matched else ()


def _variables(words: Sequence[str]) -> dict[str, str | None]:
    """Return the variables that ``env`` sets before a program."""
    pairs = [word.partition("=") for word in _wrapped(words) if word[0].isalpha()]
    return {name: None if UNKNOWN in value else value for name, equals, value in pairs if equals}


def _named(words: Sequence[str]) -> tuple[str, int]:
    """Return the name of a known program, or "", and how many words are before its arguments."""
    start = len(_wrapped(words))
    first = words[start].rpartition("/")[2] if words[start:] else ""
    named = [*words[:start], first, *words[start + 1 :]]
    if re.fullmatch(r"python[\d.]*", first):
        start += 2 if words[start + 1 : start + 2] == ["-u"] else 1
    for count in (start + 1, start + 2, start + 3):
        name = _PROGRAMS.get(" ".join(named[start:count]))
        if name is not None:
            return name, count
    return "", 0


def _arguments(fields: Iterable[tuple[str, str]]) -> Iterator[Word]:
    for text, path in fields:
        option = _OPTION.match(text) if UNKNOWN in text else None
        if option:
            # Only the value is not known.
            yield Word(option[1], path)
        yield Word(None if UNKNOWN in text else text, path)
