"""Keys in a service of several processes, with the commands that docs/security.md shows."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import orjson

from tests.e2e.conftest import StartService
from tests.support.service import Service

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
WORKFLOW = {"name": "order-a", "steps": [{"id": "a", "task": "t"}]}


def commands(section: str) -> Iterator[str]:
    """The lines of a section that call the command."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    yield from re.findall(r"^    penstock (.*)$", text, re.MULTILINE)


def said(service: Service, line: str, root: str = "") -> str:
    """What the command prints, which ends well."""
    done = service.penstock(*shlex.split(line.replace("$ROOT", root)))
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


def test_the_commands_of_the_page_do_what_it_says_in_every_process(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=2)
    make_root, make_ci, list_keys, revoke = commands("Keys")
    root = said(service, make_root)
    ci = said(service, make_ci, root)
    assert ["ci", "operate", "order-*"] == said(service, list_keys, root).splitlines()[1].split()[:3]
    admin, key = ({"Authorization": f"Bearer {one}"} for one in (root, ci))

    def answers(headers: dict[str, str], method: str = "GET", path: str = "/runs", body: object = None) -> set[int]:
        """The statuses of several connections, which different processes accept."""
        found = set()
        for _ in range(12):
            with httpx2.Client(base_url=service.url, trust_env=False, headers=headers) as http:
                found.add(http.request(method, path, content=b"" if body is None else orjson.dumps(body)).status_code)
        return found

    assert {201} == answers(admin, "POST", "/workflows", WORKFLOW)
    began_at = time.monotonic()
    while answers(key) != {200}:  # it has just been made
        assert time.monotonic() - began_at < 5
    assert {201} == answers(key, "POST", "/runs", {"workflow": "order-a"})
    assert {403} == answers(key, "POST", "/workflows", WORKFLOW)
    assert {401} == answers({})
    assert "ci revoked" == said(service, revoke, root)
    time_left = time.monotonic() + 1
    while time.monotonic() < time_left and answers(key) != {401}:
        pass
    assert {401} == answers(key)
    show_audit, as_json = commands("The audit log")
    assert "revokeKey" in said(service, f'--token "$ROOT" {show_audit}', root)
    entries = orjson.loads(said(service, f'--token "$ROOT" {as_json}', root))
    assert ["root", "revokeKey", "/keys/ci", "done"] == [entries[0][name] for name in ("who", "what", "on", "outcome")]
    assert not [one for one in (root, ci) if one in str(entries)]
    session = orjson.loads(said(service, '--token "$ROOT" key list --json', root))
    assert ["root"] == [one["name"] for one in session]
