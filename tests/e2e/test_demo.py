"""The main job on real input: the demonstration counts this checkout's documents, and what it counts is right."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.service import Service

TEXTS = {
    "one.md": "# One\n\nSee https://example.org/a and https://example.org/a.\n",
    "deep/two.txt": "naïve naïve café\r\n\n" * 3,
    "empty.txt": "",
    ".hidden/three.txt": "not counted",
    "binary.md": "\x00\ufffd " * 10,
}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_demo_counts_the_documents_as_a_direct_computation_does(service: Service) -> None:
    ran = service.penstock("demo", "--json")

    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert result["output"] == result["expected"]
    assert result["equal"] is True
    assert result["output"]["documents"] > 10
    assert result["output"]["words"] > 1000
    assert service.penstock("worker", "list", "--json").stdout.strip() == "[]"


def test_the_demo_takes_a_folder_and_shows_what_it_does(service: Service, texts: Path) -> None:
    ran = service.penstock("demo", "--path", str(texts))

    assert ran.returncode == 0, ran.stderr
    assert "workflow.completed" in ran.stdout
    assert "result equals the direct computation" in ran.stdout
    assert [line.split() for line in ran.stdout.splitlines() if line.startswith("documents")] == [
        ["documents", "4", "4"]
    ]


def test_a_run_that_fails_is_shown_and_gives_exit_code_4(service: Service, tmp_path: Path) -> None:
    ran = service.penstock("demo", "--path", str(tmp_path / "data-without-texts"), "--json")
    assert ran.returncode == 2  # there is no such folder

    (tmp_path / "nothing").mkdir()
    ran = service.penstock("demo", "--path", str(tmp_path / "nothing"), "--json")

    assert ran.returncode == 4, ran.stderr
    result = json.loads(ran.stdout)
    assert result["status"] == "failed"
    assert "no documents" in result["error"]


def test_a_kept_worker_is_there_for_the_next_run(service: Service, texts: Path) -> None:
    ran = service.penstock("demo", "--path", str(texts), "--keep-worker")
    assert ran.returncode == 0, ran.stderr
    [worker] = json.loads(service.penstock("worker", "list", "--json").stdout)

    try:
        given = json.dumps({"path": str(texts)})
        ran = service.penstock("run", "start", "textstats", "--input", given, "--wait", "--json", timeout_s=30)
    finally:
        os.kill(worker["pid"], 15)

    assert json.loads(ran.stdout)["status"] == "completed"
    assert ran.returncode == 0
