"""The examples hold what they promise, without an engine: their steps chained by hand."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.broker.store import Store
from penstock.demo import textstats
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.run.events import StepFailed
from penstock.engine.validation import parse
from tests.worker.task_queue import answer, dispatch, output_of

ROOT = Path(__file__).parents[2]
FOLDERS = {"hello": ROOT / "examples", "agent": ROOT / "examples", "textstats": ROOT / "demo"}


def definition(name: str) -> WorkflowDef:
    return parse(orjson.loads((FOLDERS[name] / f"{name}.json").read_bytes()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "no.md").write_text("never counted")
    (tmp_path / "a.md").write_text("# One\n\nThe cat's hat: https://example.org/a\n\n## Two\n\nthe end")
    (tmp_path / "sub" / "b.txt").write_text("Été à la mer\n\n" * 20_000)
    (tmp_path / "c.py").write_text("# no heading\nprint('http://example.org/b')\n")
    (tmp_path / "empty.md").write_text("")
    (tmp_path / "d.bin").write_bytes(b"\xff\xfe")
    return tmp_path


def test_numbers_of_a_known_folder(folder: Path) -> None:
    found = textstats.compute(str(folder))
    assert (found["documents"], found["headings"], found["links"], found["lines"]) == (4, 2, 2, 7 + 40_000 + 2)
    assert found["top"][0] == ["la", 20_000]
    assert ["the", 2] in found["top"]
    assert "4 documents" in found["text"]


def test_split_texts_are_the_whole_text(folder: Path) -> None:
    chunks = textstats.split(textstats.documents(str(folder)))
    assert len(chunks) > len({chunk["path"] for chunk in chunks})
    whole = "".join(Path(path).read_text() for path in textstats.documents(str(folder)))
    assert "".join(text.text for text in textstats.read(chunks)) == whole


@pytest.mark.parametrize("name", FOLDERS)
def test_definition_is_valid_and_its_tasks_are_in_its_worker(name: str) -> None:
    source = (FOLDERS[name] / f"{name}_worker.py").read_text()
    assert all(f'@worker.task("{step.task}")' in source for step in definition(name).steps)


async def test_textstats_worker_counts_what_a_direct_computation_counts(
    store: Store, broker_url: str, folder: Path
) -> None:
    async def step(task: str, value: Any) -> Any:
        return output_of(await answer(store, await dispatch(store, task, value)))

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock.demo.textstats_worker", env={"SERVICE_BROKER_URL": broker_url}
    )
    try:
        for source in (str(folder), str(ROOT / "engine"), [str(folder / "a.md"), str(folder)]):
            chunks = await step("text.split", {"path": source})
            counts = await asyncio.gather(*(step(f"text.{name}", chunks) for name in ("words", "lines", "links")))
            merged = await step("text.merge", dict(zip(("words", "lines", "links"), counts, strict=True)))
            assert await step("text.report", merged) == textstats.compute(source)
        nowhere = await answer(store, await dispatch(store, "text.split", {"path": str(folder / "nowhere")}))
        assert isinstance(nowhere, StepFailed)
        assert nowhere.payload.failure_type == "non_retriable"
    finally:
        process.terminate()
        assert await process.wait() == 0
