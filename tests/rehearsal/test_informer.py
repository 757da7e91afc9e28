"""The live copy of a collection, where its events come late."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ml_foundations.rehearsal import api as api_module
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, Object
from ml_foundations.rehearsal.cloud.informer import Informer

from tests.support.cluster import Cluster

PATH = "/api/v1/namespaces/default/configmaps"
BODY = {"metadata": {"name": "informed", "labels": {"of": "informer"}}}


class LateApi(Api):
    """The real API, with something done between its answer to a list and the arrival."""

    meanwhile: Callable[[], Any] = staticmethod(lambda: None)
    seen: list[list[str]]
    """What the informer had after each event, up to a deletion."""

    def get(self, path: str, **query: str) -> Object:
        answer = super().get(path, **query)
        self.meanwhile()
        return answer

    def watch(self, path: str, **query: str) -> Iterator[Object]:
        self.seen = []
        for event in super().watch(path, **query):
            yield event
            self.seen.append(names(self.informer))
            if event["type"] == "DELETED":
                return

    informer: Informer


def names(informer: Informer) -> list[str]:
    return [item["metadata"]["name"] for item in informer.items()]


@pytest.fixture
def api(cluster: Cluster) -> LateApi:
    api = LateApi(Access(cluster.kubeconfig))
    api.delete(f"{PATH}/informed")
    api.informer = Informer(api, PATH, threading.Event(), selector="of=informer")
    return api


def test_a_long_list_is_read_in_parts(api: LateApi, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [f"part-{number}" for number in range(5)]
    for name in parts:
        api.create(PATH, {"metadata": {"name": name, "labels": {"of": "parts"}}})
    monkeypatch.setattr(api_module, "_PAGE_SIZE", 2)
    listed = api.get(PATH, labelSelector="of=parts")
    for name in parts:
        api.delete(f"{PATH}/{name}")
    assert [item["metadata"]["name"] for item in listed["items"]] == parts
    assert "continue" not in listed["metadata"]


def test_what_was_created_while_a_list_was_on_its_way_stays(api: LateApi) -> None:
    api.meanwhile = lambda: api.informer.put(api.create(PATH, BODY))
    version = api.informer._list()
    assert names(api.informer) == ["informed"]
    api.delete(f"{PATH}/informed")
    api.informer._follow(version)
    assert api.seen == [["informed"], []]


def test_what_was_created_and_is_gone_does_not_come_back(api: LateApi) -> None:
    version = api.informer._list()
    made = api.create(PATH, BODY)
    api.delete(f"{PATH}/informed")
    api.informer._follow(version)
    api.informer.put(made)
    assert names(api.informer) == []


def test_late_events_do_not_bring_back_what_was_deleted(api: LateApi) -> None:
    made = api.create(PATH, BODY)
    version = api.informer._list()
    api.patch(f"{PATH}/informed", {"data": {"changed": "yes"}})
    api.delete(f"{PATH}/informed")
    api.informer.drop(made)
    assert names(api.informer) == []
    api.informer._follow(version)
    assert api.seen == [[], []]


def test_a_late_list_does_not_restore_deleted_objects(api: LateApi) -> None:
    made = api.create(PATH, BODY)

    def delete() -> None:
        api.delete(f"{PATH}/informed")
        api.informer.drop(made)

    api.informer._list()
    api.meanwhile = delete
    version = api.informer._list()
    assert names(api.informer) == []
    api.informer._follow(version)
    assert api.seen == [[]]


def test_a_watch_goes_on_where_the_last_one_ended(api: LateApi) -> None:
    first = api.informer._list()
    made = api.create(PATH, BODY)
    api.delete(f"{PATH}/informed")
    last = api.informer._follow(first)
    assert int(last) > int(made["metadata"]["resourceVersion"])
    again = api.create(PATH, BODY)
    api.delete(f"{PATH}/informed")
    api.informer._follow(last)
    assert again["metadata"]["uid"] != made["metadata"]["uid"]
    assert api.seen == [["informed"], []], "nothing that was seen before comes again"


def test_who_wrote_which_field_is_not_kept(api: LateApi) -> None:
    assert "managedFields" in api.create(PATH, BODY)["metadata"]
    api.informer._list()
    assert ["managedFields" in item["metadata"] for item in api.informer.items()] == [False]
