"""YAML files next to the modules."""

from importlib.resources import files
from string import Template
from typing import Any

from ml_foundations.kubernetes.packaged_yaml import packaged_yaml


def yaml_file(room: str, name: str, **words: str) -> Any:
    """Return a YAML file of a package, such as ``gpu``, with each ``$word`` replaced."""
    text = files(f"ml_foundations.{room}").joinpath(name).read_text(encoding="utf-8")
    return packaged_yaml(Template(text).substitute(words))
