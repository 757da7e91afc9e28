"""The embedded random plugin: values of the form that is asked for, made once."""

import base64
import string

import pytest
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.plugins.provider import CheckError, Resource, State
from ml_foundations.rehearsal.plugins.random.provider import RandomProvider
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties

PROVIDER = RandomProvider()


def resource(kind: str) -> Resource:
    return Resource("urn", f"random:index/random{kind}:Random{kind}", "r")


def made(kind: str, **inputs: object) -> State:
    checked = PROVIDER.check(resource(kind), {}, dict(inputs))
    state = PROVIDER.create(resource(kind), checked)
    assert PROVIDER.sdk[resource(kind).type].computed - {"bcryptHash"} <= state.outputs.keys()
    return state


def test_an_id_is_one_number_in_several_forms() -> None:
    state = made("Id", byteLength=5, prefix="p-")
    raw = bytes.fromhex(state.outputs["hex"].removeprefix("p-"))
    assert len(raw) == 5
    assert base64.urlsafe_b64decode(state.id + "=") == raw
    assert state.outputs["dec"] == f"p-{int.from_bytes(raw)}"
    assert state.outputs["b64Std"] == f"p-{base64.b64encode(raw).decode()}"


def test_text_has_the_characters_that_are_asked_for() -> None:
    text = made("String", length=20, special=False, upper=False, minNumeric=5).outputs["result"]
    assert len(text) == 20
    assert set(text) <= {*string.ascii_lowercase, *string.digits}
    assert sum(map(str.isdigit, text)) >= 5
    password = made("Password", length=8, overrideSpecial="#", minSpecial=2)
    assert password.id == "none"
    assert password.outputs["result"].value.count("#") >= 2
    with pytest.raises(RehearsalError, match="less than the sum of the minimums"):
        made("String", length=2, minLower=3)


def test_numbers_orders_and_names() -> None:
    number = made("Integer", min=3, max=5)
    assert number.outputs["result"] in (3, 4, 5)
    assert (
        made("Integer", min=0, max=10**9, seed="a").id
        == made("Integer", min=0, max=10**9, seed="a").id
    )
    assert sorted(made("Shuffle", inputs=["a", "b", "c"]).outputs["results"]) == ["a", "b", "c"]
    assert len(made("Shuffle", inputs=["a", "b"], resultCount=3).outputs["results"]) == 3
    assert made("Pet", length=3, prefix="x", separator="_").id.count("_") == 3
    assert made("Uuid").outputs["result"].count("-") == 4
    assert len(base64.b64decode(made("Bytes", length=4).id)) == 4


def test_a_value_stays_until_an_input_changes() -> None:
    state = made("Uuid", keepers={"a": "1"})
    about = resource("Uuid")
    assert not PROVIDER.diff(about, state, {"keepers": {"a": "1"}}).changed
    assert PROVIDER.diff(about, state, {"keepers": {"a": "2"}}).replaces
    assert PROVIDER.read(about, state) == state
    assert PROVIDER.preview(about, None, {})["result"] is UNKNOWN


@pytest.mark.parametrize(
    ("kind", "inputs", "said"),
    [
        ("String", {"length": 3, "lenght": 4}, "lenght: .* has no property of this name"),
        ("String", {}, "length: is required"),
        ("Dice", {}, "RandomDice is not a type of pulumi-random"),
    ],
)
def test_what_cannot_be_made_is_refused(kind: str, inputs: Properties, said: str) -> None:
    with pytest.raises(CheckError, match=said):
        PROVIDER.check(resource(kind), {}, inputs)
