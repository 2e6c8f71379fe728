"""Definitions at hand: as many as fit, and every other one again when it is wanted."""

from __future__ import annotations

import pytest

from penstock.broker.records import definitions
from penstock.broker.store import Store
from penstock.engine.validation import parse


async def test_compiled_versions_are_bounded_by_their_steps_and_loaded_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "COMPILED_STEPS_MAX", 5)
    kept = definitions.Definitions(store.definitions._bucket)
    documents = [{"name": f"many-{n}", "steps": [{"id": "a", "task": "t"}, {"id": "b", "task": "t"}]} for n in range(4)]
    digests = [await kept.register(parse(document)) for document in documents]
    for document, digest in zip(documents, digests, strict=True):
        await kept.load(str(document["name"]), digest)

    assert [kept.compiled(digest) is not None for digest in digests] == [False, False, True, True]
    assert set((await kept.load("many-0", digests[0])).steps) == {"a", "b"}


async def test_one_version_that_is_larger_than_the_bound_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "COMPILED_STEPS_MAX", 1)
    kept = definitions.Definitions(store.definitions._bucket)
    digest = await kept.register(
        parse({"name": "large", "steps": [{"id": "a", "task": "t"}, {"id": "b", "task": "t"}]})
    )
    await kept.load("large", digest)

    assert kept.compiled(digest) is not None
