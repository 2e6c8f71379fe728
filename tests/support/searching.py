"""Secrets and where they were seen: what a test gathers, and a client that shows the search all that it is answered."""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import httpx2

from tests.support.service import Service


class Found(NamedTuple):
    place: str
    secret: str


class Search:
    """What was seen where, and the secrets that are looked for in it: one for each name, as an attribute."""

    def __init__(self, *names: str) -> None:
        self.secrets = {name: f"{name}-{secrets.token_hex(12)}" for name in names}
        self.seen: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> str:
        return self.secrets[name]

    def add(self, place: str, text: str | bytes) -> None:
        self.seen.append((place, text if isinstance(text, str) else text.decode("latin-1")))

    def result(self) -> set[Found]:
        return {
            Found(place, name) for place, text in self.seen for name, secret in self.secrets.items() if secret in text
        }


class Client:
    """Asks the service over HTTP, and shows the search all that is answered."""

    def __init__(self, service: Service, search: Search, token: str | None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._http = httpx2.Client(base_url=service.url, headers=headers, trust_env=False, timeout=30)
        self._search = search

    def ask(self, status: int, method: str, path: str, place: str = "an answer", **more: Any) -> httpx2.Response:
        answer = self._http.request(method, path, **more)
        self._search.add(place, f"{answer.headers}\n{answer.text}")
        assert status == answer.status_code, f"{method} {path}: {answer.text}"
        return answer

    def post(self, status: int, path: str, **more: Any) -> httpx2.Response:
        return self.ask(status, "POST", path, **more)

    def get(self, status: int, path: str, **more: Any) -> httpx2.Response:
        return self.ask(status, "GET", path, **more)

    def connect(self, worker_id: str) -> None:
        body = {"worker_id": worker_id, "task_types": ["bridged"]}
        with self._http.stream("POST", "/v1/workers/connect", json=body) as answer:
            assert 200 == answer.status_code
            self._search.add("an answer", next(answer.iter_text()))
