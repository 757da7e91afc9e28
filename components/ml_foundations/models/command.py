"""The words of a container's command, and which program they start.

A container is a plain manifest with ``image``, ``command``, ``args``, ``env`` and ``envFrom``.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from ml_foundations.kubernetes.objects import items
from ml_foundations.models.reasons import Cause, Reason, undetermined

Release = tuple[int, int, int]

_REFERENCE = re.compile(r"\$(?:\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")
"""A variable in a container's command, or ``$$`` for a dollar sign (Kubernetes, "Define dependent
environment variables")."""
_OPTION = re.compile(r"(--?[\w.-]+)=")
_SHELL_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_SHELL_SYNTAX = re.compile(r"[;&|<>`*?~#()\n]|\$[^\w{]|\$\{\w*[^\w}]|^\s*(if|for|while|case)\b")
_QUOTED = re.compile(r"'[^'$]*'|\"[^\"$`\\]*\"")
_PLAIN = re.compile(r"[\w./:@=,+%-]*")
"""A value that means the same inside and outside of quotes."""
_IMAGE = re.compile(r"(?:.*/)?(?P<name>[^/:@]+)(?::v?(?P<release>\d+\.\d+\.\d+)?[^@]*)?(?:@.*)?")
_IMAGES = {
    "vllm-openai": "vllm",
    "vllm-openai-nonroot": "vllm",
    "sglang": "sglang",
    "text-generation-inference": "tgi",
}
"""Images whose tags are releases of a program, by the last part of their names."""
_SERVES = (0, 12, 0)
"""The release since which the image's entrypoint is ``vllm serve`` (vllm, docker/Dockerfile)."""
_PROGRAMS = {
    "vllm serve": "vllm",
    "-m vllm.entrypoints.openai.api_server": "vllm",
    "-m sglang.launch_server": "sglang",
    "text-generation-launcher": "tgi",
    "torchrun": "torchrun",
    "-m torch.distributed.run": "torchrun",
    "accelerate launch": "accelerate",
    "-m accelerate.commands.launch": "accelerate",
}


class Word(NamedTuple):
    """A word of a command, None if it is not known yet, and its field."""

    text: str | None
    path: str


@dataclass(frozen=True)
class Program:
    """A program with its arguments and environment."""

    name: str
    """vllm, sglang, tgi, torchrun or accelerate."""
    release: Release | None
    arguments: tuple[Word, ...]
    env: Mapping[str, str | None]
    """Variables by name, None if the value is not known."""
    env_is_complete: bool


def program(container: Mapping[str, Any]) -> Program | Reason | None:
    """Return what a container starts, or None if its image and command are of nothing known."""
    env: dict[str, str | None] = {}
    for variable in items(container, "env"):
        # A variable may refer to those before it.
        value = variable.get("value", None if "valueFrom" in variable else "")
        env[str(variable.get("name"))] = _expanded(value, env)
    matched = _IMAGE.fullmatch(str(container.get("image", "")))
    image, tag = (matched["name"], matched["release"]) if matched else ("", None)
    release = cast("Release", tuple(map(int, tag.split(".")))) if tag else None
    words: list[Word] = []
    if not container.get("command"):
        words += [Word(text, "image") for text in _entrypoint(image, release)]
    for key in ("command", "args"):
        words += _words(container, key, env)
    plain = _without_shell(words, env)
    if plain is None or isinstance(plain, Reason):
        return plain
    base_name = (plain[0].text or "").rpartition("/")[2] if plain else ""
    if re.fullmatch(r"python[\d.]*", base_name):
        plain = plain[2:] if [word.text for word in plain[1:2]] == ["-u"] else plain[1:]
    elif plain:
        plain = [Word(base_name, plain[0].path), *plain[1:]]
    for count in (1, 2):
        name = _PROGRAMS.get(" ".join(word.text or "" for word in plain[:count]))
        if name is not None:
            is_of_image = _IMAGES.get(image) == name
            return Program(
                name=name,
                release=release if is_of_image else None,
                arguments=tuple(plain[count:]),
                env=env,
                env_is_complete=not container.get("envFrom"),
            )
    return None


def _entrypoint(image: str, release: Release | None) -> list[str]:
    name = _IMAGES.get(image)
    if name == "vllm" and release is not None and release < _SERVES:
        return ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    return {"vllm": ["vllm", "serve"], "tgi": ["text-generation-launcher"]}.get(name or "", [])


def _words(container: Mapping[str, Any], key: str, env: Mapping[str, str | None]) -> Iterator[Word]:
    values = container.get(key)
    if isinstance(values, list):
        for index, value in enumerate(cast("list[Any]", values)):
            text = _expanded(value, env)
            path = f"{key}[{index}]"
            option = _OPTION.match(value) if text is None and isinstance(value, str) else None
            if option:
                # Only the value is not known.
                yield Word(option[1], path)
            yield Word(text, path)
    elif values is not None:
        yield Word(None, key)


def _expanded(text: Any, env: Mapping[str, str | None]) -> str | None:
    """Return a text with its references replaced, or None if a variable's value is not known.

    A variable that the container does not declare may be a controller's or that of a Service.
    """
    if not isinstance(text, str):
        return None
    parts: list[str] = []
    end = 0
    for reference in _REFERENCE.finditer(text):
        value = env.get(reference[1]) if reference[1] else "$"
        if value is None:
            return None
        parts += [text[end : reference.start()], value]
        end = reference.end()
    return "".join([*parts, text[end:]])


def _without_shell(
    words: Sequence[Word], env: Mapping[str, str | None]
) -> Sequence[Word] | Reason | None:
    """Return the words of a plain ``sh -c``, as the shell splits them; others as they are."""
    texts = [word.text or "" for word in words]
    if not texts or texts[0].rpartition("/")[2] not in ("sh", "bash", "dash"):
        return words
    flag = next((i for i, text in enumerate(texts) if re.fullmatch(r"-[a-z]*c", text)), None)
    if flag is None or flag + 1 >= len(words) or not words[flag + 1].text:
        return None
    path = words[flag + 1].path
    script = re.sub(r"\\\n", " ", texts[flag + 1]).strip()
    doubt = undetermined(Cause.UNREADABLE_SCRIPT, script, path)
    is_known = re.search(r"\b(vllm|sglang|text-generation-launcher)\b", script)

    def value(variable: re.Match[str]) -> str:
        text = env.get(variable[1] or variable[2])
        if text is None or not _PLAIN.fullmatch(text):
            raise ValueError
        return text

    try:
        if _SHELL_SYNTAX.search(_QUOTED.sub("", script)) or re.search(r"'[^']*\$[^']*'", script):
            raise ValueError
        split = shlex.split(_SHELL_VARIABLE.sub(value, script))
    except ValueError:
        return doubt if is_known else None
    if split[:1] == ["exec"]:
        del split[0]
    if split and re.match(r"\w+=", split[0]):
        return doubt if is_known else None
    return [Word(text, path) for text in split]
