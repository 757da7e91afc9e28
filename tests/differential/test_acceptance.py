"""The third generator in little: objects with random edits that the API server accepts, or not, and planning as well."""

import asyncio

import pytest
from ml_foundations.planning import Verdict

from tests.differential.acceptance import proof
from tests.differential.acceptance.generator import Schema, case, good
from tests.differential.acceptance.proof import Comparison
from tests.support.cluster import Cluster
from tests.support.trials import sizes

FIRST = 500_000
MOST_WRONG = 3
"""What is left is at most this: amounts beyond 64 bits, a null where a text should be."""


@pytest.fixture(scope="module", params=sizes(300, 1500))
def found(
    request: pytest.FixtureRequest, cluster: Cluster
) -> tuple[list[Comparison], list[Comparison]]:
    """What both say of the objects that are not edited, and of the cases."""

    async def ask() -> tuple[list[Comparison], list[Comparison]]:
        async with proof.connect(cluster.rehearsal) as server:
            schema = await server.schema()
            await proof.prepare(server, schema)
            served = [each for each in good() if _is_served(schema, each)]
            return await proof.compare(
                server, schema, [[each] for each in served]
            ), await proof.compare(server, schema, _cases(schema, request.param))

    return asyncio.run(ask())


def _is_served(schema: Schema, document: dict[str, str]) -> bool:
    return (document["apiVersion"], document["kind"]) in schema.paths


def _cases(schema: Schema, count: int) -> list[list[proof.Object]]:
    """Cases of the kinds that the API server has by itself."""
    return [case(schema, number, served=True) for number in range(FIRST, FIRST + count)]


def test_the_objects_that_are_edited_are_good(
    found: tuple[list[Comparison], list[Comparison]],
) -> None:
    for each in found[0]:
        assert not each.words and not each.errors, (each.documents, each.words, each.errors)


def test_what_planning_refuses_the_api_server_refuses(
    found: tuple[list[Comparison], list[Comparison]],
) -> None:
    wrong = [each for each in found[1] if each.is_wrong]
    assert len(wrong) <= MOST_WRONG, "\n".join(
        f"{each.shape}\n  {each.documents}" for each in wrong
    )
    assert not any(each.crash for each in wrong)
    refused = sum(bool(each.words) for each in found[1]) / len(found[1])
    assert 0.3 < refused < 0.9
    assert sum(each.verdict is Verdict.UNDETERMINED for each in found[1]) < len(found[1]) // 12
