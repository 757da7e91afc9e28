"""The way to a control plane: creating objects, watching them, and the queues of scheduler and controllers."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from ml_foundations.rehearsal.control_plane import configuration
from ml_foundations.rehearsal.layout import Rehearsal

from tests.differential.schema.openapi import compact

Object = dict[str, Any]
CONNECTIONS = 16
"""Each costs a handshake; more are no faster."""
SCHEDULER_QUEUES = re.compile(r'(?m)^scheduler_pending_pods\{queue="(?:active|backoff)"\} (\S+)')
CONTROLLER_QUEUES = re.compile(r"(?m)^workqueue_(?:depth|unfinished_work_seconds)\{.*\} (\S+)")
CLAIM_LOOKS = re.compile(r'(?m)^workqueue_adds_total\{name="claims"\} (\S+)')

WATCH = {"watch": "true", "allowWatchBookmarks": "true"}
START = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


class Client:
    """One control plane's API server, and the metrics of its scheduler and controllers."""

    def __init__(self, session: aiohttp.ClientSession, scheduler: str, controllers: str) -> None:
        self._session = session
        self._scheduler, self._controllers = scheduler, controllers

    async def create(
        self, path: str, document: Object, options: str = ""
    ) -> tuple[Object | None, str]:
        """Create an object. Returns it, or the API server's words of refusal."""
        async with self._session.post(path + options, data=json.dumps(document)) as response:
            answer = await response.json()
        if response.status == 201:
            return answer, ""
        return None, f"{response.status}: {answer['message']}"

    async def touch(self, path: str, stamp: str) -> None:
        """Change an annotation, so that controllers look at the object again; it may be gone."""
        body = json.dumps({"metadata": {"annotations": {"differential/touched": stamp}}})
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self._session.patch(path, data=body, headers=headers) as response:
            await response.read()

    async def delete(self, path: str) -> None:
        """Delete an object and what belongs to it; it may be gone."""
        policy = {"propagationPolicy": "Background"}
        async with self._session.delete(path, params=policy) as response:
            await response.read()

    async def watch(self, path: str, seen: dict[tuple[str, str], Object]) -> AsyncIterator[str]:
        """Keep a picture of a collection, by namespace and name; yields the namespace of every change."""
        since = START
        while True:
            async with self._session.get(path, params=WATCH | since) as response:
                if since is START:
                    seen.clear()
                async for line in response.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    metadata = event["object"]["metadata"]
                    if event["type"] == "BOOKMARK" or since is not START:
                        since = {"resourceVersion": metadata["resourceVersion"]}
                    if event["type"] == "BOOKMARK":
                        continue
                    key = metadata.get("namespace", ""), metadata["name"]
                    if event["type"] == "DELETED":
                        seen.pop(key, None)
                    else:
                        seen[key] = event["object"]
                    yield key[0]
                else:
                    # The API server ends watches that do not keep up; they go on where they were.
                    continue
            since = START

    async def is_idle(self) -> bool:
        """Whether the scheduler has no pod to try, and no controller anything in its queue."""
        if any(map(float, SCHEDULER_QUEUES.findall(await self._text(self._scheduler)))):
            return False
        controllers = await self._text(self._controllers)
        self.claim_looks = float((CLAIM_LOOKS.search(controllers) or ["", "0"])[1])
        return not any(map(float, CONTROLLER_QUEUES.findall(controllers)))

    claim_looks = 0.0
    """How many claims the volume controller has looked at."""

    async def schema(self) -> Mapping[str, Any]:
        """What the API server publishes of itself, as ``openapi.compact`` keeps it."""
        paths = json.loads(await self._text("/openapi/v3"))["paths"]
        stable = [paths[path]["serverRelativeURL"] for path in paths if re.search(r"/v\d$", path)]
        return compact([json.loads(await self._text(path)) for path in stable])

    async def _text(self, path: str) -> str:
        async with self._session.get(path) as response:
            response.raise_for_status()
            return await response.text()


@asynccontextmanager
async def connect(rehearsal: Rehearsal) -> AsyncIterator[Client]:
    """Connect to a control plane that runs."""
    access, ports = configuration.credentials(rehearsal), configuration.ports(rehearsal)
    context = ssl.create_default_context(cafile=str(access.ca))
    context.load_cert_chain(access.cert, access.key)
    # The certificates of scheduler and controllers are made at start and signed by nobody; only metrics are read there.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context)
    metrics = [
        f"https://{configuration.LOOPBACK}:{ports[name]}/metrics"
        for name in ("kubeSchedulerPort", "kubeControllerManagerPort")
    ]
    async with aiohttp.ClientSession(
        access.server,
        connector=connector,
        headers={"Accept-Encoding": "identity", "Content-Type": "application/json"},
        read_bufsize=2**24,
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        yield Client(session, *metrics)
