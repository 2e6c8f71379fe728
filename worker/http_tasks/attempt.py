"""One attempt of an http step: its request, the answer, and what that makes of the attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from typing import Any, NamedTuple

from penstock.config.allowed_hosts import allowed_host
from penstock.config.settings import HttpTaskSettings
from penstock.engine.definition.durations import text
from penstock.worker.http_tasks.addresses import AddressRules
from penstock.worker.http_tasks.answers import output_of
from penstock.worker.http_tasks.connecting import Resolve, resolving
from penstock.worker.http_tasks.request import HttpRequest, read_request
from penstock.worker.http_tasks.secret_store import SecretStore, UsedSecrets, environment
from penstock.worker.http_tasks.sending import HttpSender
from penstock.worker.tasks.failures import OWN, Retriable
from penstock.worker.tasks.threads import Threads

LOOKUPS_MAX = 32  # names that are looked up at one time


class HttpAttempts(NamedTuple):
    """Owned by `open_attempts`; any number of attempts are made at one time."""

    sender: HttpSender
    secrets: SecretStore

    async def make(self, value: object, task_id: str, carried: Mapping[str, str] = {}) -> dict[str, Any]:
        """The step's output; the request has the headers `carried` unless it has its own.

        Raises Retriable, RetryAfter, NonRetriable, without a secret in their texts."""
        secrets = UsedSecrets(self.secrets)
        try:
            return await self._answered(read_request(value, task_id, secrets, carried), secrets)
        except OWN as error:
            error.args = (secrets.hidden(str(error)),)
            raise error.with_traceback(None) from None  # its text says all

    async def _answered(self, request: HttpRequest, secrets: UsedSecrets) -> dict[str, Any]:
        try:
            async with asyncio.timeout(request.timeout_s), self.sender.answer(request) as response:
                return await output_of(request, response, secrets)
        except TimeoutError:
            raise Retriable(f"{request.text} was not answered within {text(request.timeout_s)}") from None


@asynccontextmanager
async def open_attempts(settings: HttpTaskSettings, resolve: Resolve | None = None) -> AsyncIterator[HttpAttempts]:
    """Connections to the world for the time of the block. `resolve` None: names are looked up as the system does."""
    rules = AddressRules(tuple(allowed_host(entry) for entry in settings.allow))
    with closing(Threads(LOOKUPS_MAX)) as threads:
        async with HttpSender(rules, resolve or resolving(threads)) as sender:
            yield HttpAttempts(sender, SecretStore(environment(), settings.secrets_dir))
