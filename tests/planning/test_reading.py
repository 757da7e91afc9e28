"""The reader of YAML and JSON that others write: bounds, and the scalars of sigs.k8s.io/yaml."""

import ast
import time
from pathlib import Path
from typing import Any

import pytest
from ml_foundations.catalog.kueue import configuration_of, mounted_configuration
from ml_foundations.catalog.operator_nodes import Operator
from ml_foundations.kubernetes import reading
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.planning import judge
from ml_foundations.planning.api_server import constraints, topology_requests
from ml_foundations.planning.input.documents import UnreadableError, read
from ml_foundations.planning.verdict.program import judge_documents

from tests.factories import namespaced, node, pool, template
from tests.support.checkout import CHECKOUT

TEXTS = (
    *("1:30", "1:30.5", "-1:30:00", "1:1:1:1.5", "2026-01-01", "2026-13-45", "=", "yEs", "y", "n"),
    *("N", "0x", "0o8", "0b2", "_1", "1e", ".", "1.2.3", "1e999"),
)
SCALARS: dict[str, Any] = {
    **dict.fromkeys(("yes", "Yes", "On", "true", "TRUE", "!!bool yes"), True),
    **dict.fromkeys(("no", "NO", "off", "False", "!!bool off"), False),
    **dict.fromkeys(("~", "null", "", "!!null ~"), None),
    **dict.fromkeys(("017", "0o17", "0xF", "0b1111", "15", "+15", "1_5", "!!int 15"), 15),
    **dict.fromkeys(("1e3", "1000.", "1_000.0", "!!float 1000"), 1000.0),
    **{text: text for text in TEXTS},
    **{"08": 8.0, ".5": 0.5, "-0b1": -1, "18446744073709551616": 2**64},
    **{"!!str 5": "5", "!!timestamp 2026-01-01": "2026-01-01"},
}
"""What sigs.k8s.io/yaml v1.6.0 makes of texts."""
NO_VALUES = (
    *("!!bool foo", "!!bool 1", '!!int ""', "!!int 5.5", "!!int foo", "!!float x", "!!null x"),
    *("!!timestamp 2020-99-99", "!!timestamp x", ".nan", ".inf", "-.INF", "!foo x", "!!set {a}"),
    *("!!binary aGk=", "!!python/object:os.system {}", "!!omap [a: 1]", "!!map [1]", "!!seq {}"),
    *("1" * 1001, "0x" + "f" * 5000, "!!str [1]", "*none", "{? [1] : 2}", "{null: 1}", "\x00"),
    *("[" * 5000, "{a: " * 600, "\ud800", "@", "!!int 1:30"),
)


@pytest.mark.parametrize("text", SCALARS)
def test_scalars_are_those_of_kubernetes(text: str) -> None:
    [found] = reading.documents(f"a: {text}")
    assert found["a"] == SCALARS[text]
    assert type(found["a"]) is type(SCALARS[text])


@pytest.mark.parametrize("text", ["1:30", "1:1.5", ":".join("1" * 300_000)])
def test_a_number_of_base_60_is_text(text: str) -> None:
    head = "apiVersion: v1, kind: ConfigMap, metadata: {name: a}"
    [found] = read(f"{{{head}, data: {{x: {text}}}}}", "f")
    assert found["data"]["x"] == text


@pytest.mark.parametrize("text", NO_VALUES)
def test_what_has_no_value_is_one_error(text: str) -> None:
    for of in (
        lambda: reading.documents(f"b: 1\na: {text}"),
        lambda: reading.embedded_yaml(f"b: 1\na: {text}"),
        lambda: reading.documents(f"b: 1\na: {text}", unique_keys=True),
    ):
        with pytest.raises(ReadError) as caught:
            of()
        assert "\n" not in str(caught.value)
        assert "system" not in str(caught.value)
    with pytest.raises(UnreadableError) as refused:
        read(f"b: 1\na: {text}", "stack.yaml")
    assert refused.value.errors[0].startswith("stack.yaml: ")


def test_an_error_has_its_line() -> None:
    with pytest.raises(ReadError, match="not a valid !!bool, at line 2, column 4"):
        reading.documents("a: 1\nb: !!bool foo")


def test_keys_are_text_as_kubectl_makes_them() -> None:
    [found] = reading.documents("{yes: 1, 2: 1, 08: 1, 1.50: 1, 1:30: 1}")
    assert found == dict.fromkeys(("true", "2", "8", "1.5", "1:30"), 1)


def test_numbers_as_keys_that_have_the_same_hash_take_no_longer() -> None:
    def seconds(factor: int) -> float:
        text = "data: {" + ", ".join(f"{index * factor}: x" for index in range(20_000)) + "}"
        started = time.process_time()
        [document] = reading.documents(text)
        assert len(document["data"]) == 20_000
        return time.process_time() - started

    # Compared with each other, they would take seven times as long. On a busy machine, the least time counts.
    assert any(seconds(2**61 - 1) < 3 * seconds(2**61 + 1) for _ in range(3))


def test_a_file_of_pulumi_has_other_truth_values_and_no_key_twice() -> None:
    assert reading.documents("[yes, off, true]", unique_keys=True) == [["yes", "off", True]]
    with pytest.raises(ReadError, match='"a" is already on line 1'):
        reading.documents("a: 1\na: 2", unique_keys=True)


@pytest.mark.parametrize(
    "text",
    [
        *("NaN", "[Infinity]", "1e999", "9" * 5000, "[" * 100_000, '{"a":' * 600 + "1" + "}" * 600),
        *("", "{", "\x00", "\ufeff1", '{"a": 1,}', "'a'", '"\ud800'),
    ],
)
def test_what_is_no_json_is_one_error(text: str) -> None:
    with pytest.raises(ReadError):
        reading.embedded_json(text)


def test_json_is_read_as_go_reads_it() -> None:
    assert reading.json_value('{"a": 1, "a": [2, null, 1.5, "x"]}') == {"a": [2, None, 1.5, "x"]}
    assert reading.json_value(b"3") == 3


def test_a_text_in_a_field_is_no_larger_than_an_object() -> None:
    for of in (reading.embedded_yaml, reading.embedded_json):
        with pytest.raises(ReadError, match="more than 1,048,576 characters"):
            of(" " * 2**20 + "1")


LAUGHS = "a: &a [1,2]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{of}'] * 9)}]\n"
    for of, name in zip("abcdefgh", "bcdefghi", strict=True)
)
UNREADABLE = (
    *("resources: !!bool foo", 'resources: !!int ""', "resources: !!timestamp 2020-99-99", LAUGHS),
    *("resources: " + "[" * 5000, "resources: [[1]]", "resources: 3", "[1]", "a: 1\n---\nb: 1"),
    *("text", "resources: {excludeResourcePrefixes: [1]}", "resources: {transformations: [[1]]}"),
    *("integrations: {frameworks: [{a: 1}]}", "integrations: [1]", "resources: 1:1:1", "{"),
)


@pytest.mark.parametrize("text", UNREADABLE, ids=lambda text: text[:20])
def test_a_configuration_of_kueue_that_cannot_be_read_is_named(text: str) -> None:
    config_map = namespaced("v1", "ConfigMap", "kueue-manager-config")
    config_map["data"] = {"controller_manager_config.yaml": text}
    mounted = mounted_configuration(config_map)
    assert mounted
    assert mounted["resources"] is UNKNOWN
    [finding] = [item for item in judge_documents([config_map, node("a")]).findings]
    field = "ConfigMap kueue-manager-config.data.controller_manager_config.yaml: it cannot be read"
    assert finding.rule == "unknown-field"
    assert field in finding.message
    values = {"managerConfig": {"controllerManagerConfigYaml": text}}
    assert configuration_of(values) is UNKNOWN


@pytest.mark.parametrize(
    "text",
    [
        *("!!bool foo", "[", "3", LAUGHS, "[" * 5000, "a: 1\n---\nb: 1"),
        "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: x}]}}",
    ],
    ids=lambda text: text[:20],
)
def test_values_of_a_chart_that_cannot_be_read_name_the_field(text: str) -> None:
    with pytest.raises(ReadError, match=r"^devicePlugin\.config\.data\.any: it cannot be read: "):
        Operator.of({"devicePlugin": {"config": {"data": {"any": text}}}})


DEEP = "[" * 100_000


def test_json_in_annotations_and_secrets_is_bounded() -> None:
    pods = template()
    pods["metadata"]["annotations"] = {"networking.gke.io/interfaces": DEEP}
    job = namespaced("batch/v1", "Job", "j", spec={"template": pods})
    assert any("is not JSON" in found.message for found in judge([job, pool("p", 1)]).findings)
    fields = {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": DEEP}}
    secret = namespaced("v1", "Secret", "s", **fields)
    assert judge([secret, node("a")]).exit_code != 0
    assert topology_requests._layers({topology_requests.labels.KUEUE_SLICES: DEEP}) == []
    assert "json" in " ".join(constraints.names())


READERS = {
    "kubernetes/packaged_yaml.py": "the package's own files",
    "kubernetes/reading.py": "the reader",
    "planning/api_server/definitions.py": "the package's own file",
    "planning/input/field_catalog.py": "the package's own files, read at each start",
    "rehearsal/api.py": "answers of the replica's API server",
    "rehearsal/control_plane/configuration.py": "the package's own file",
    "rehearsal/control_plane/controllers.py": "charts of pinned publishers, rendered by Helm",
    "rehearsal/engine/dry_run_process.py": "a request of its parent; it imports nothing of the package",
    "rehearsal/engine/language_host.py": "files of installed packages of the user",
    "rehearsal/engine/stack.py": "Pulumi's own state",
    "rehearsal/plugins/gke_gcloud_auth_plugin.py": "a variable that kubectl sets; it must start fast",
    "rehearsal/plugins/tls/provider.py": "the package's own file",
    "rehearsal/report/deployed.py": "events of Pulumi's engine",
    "rehearsal/tools/downloads.py": "files with a checked hash",
    "rehearsal/tools/manifest.py": "the cache's own file",
}
"""Modules that call a parser of YAML or JSON, with what they read."""
PARSERS = {"load", "load_all", "loads", "parse", "safe_load", "safe_load_all", "compose", "scan"}


def parses(file: Path) -> bool:
    """Return whether a module calls a parser of YAML or JSON."""
    for call in ast.walk(ast.parse(file.read_text())):
        of = call.value if isinstance(call, ast.Attribute) else None
        is_parser = isinstance(of, ast.Name) and of.id in ("yaml", "json")
        if isinstance(call, ast.Attribute) and is_parser and call.attr in PARSERS:
            return True
    return False


def test_whatever_others_write_is_read_by_the_reader() -> None:
    """The keys of the table are thereby files that exist."""
    root = CHECKOUT / "components" / "ml_foundations"
    assert {str(file.relative_to(root)) for file in root.rglob("*.py") if parses(file)} == (
        READERS.keys()
    )
    others = [*(CHECKOUT / "policy").glob("*.py"), *(CHECKOUT / "stacks").glob("*.py")]
    texts = {path.name: path.read_text() for path in others}
    uses = {name for name, text in texts.items() if "yaml." in text or "json.load" in text}
    assert uses <= {"defaults.py"}  # a copy of its own values
