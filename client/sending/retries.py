"""Which requests are sent again after an error, and when.

A request is repeated only if that cannot act twice: it reads, it has an idempotency key, or its repetition changes
nothing. Every other request is sent again only when it is known that nothing was done.
"""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

from penstock.client.api_request import ApiRequest, keyed
from penstock.client.sending.errors import OverloadedError, ServiceError, UnavailableError, Unreachable

RETRIES = 3
PAUSE_S = 0.1
PAUSE_S_MAX = 5.0
RETRY_AFTER_S_MAX = 60.0  # the error is raised when the service asks for more


class Retries:
    """Owned by one request: how often it was sent again."""

    def __init__(self, request: ApiRequest[Any], most: int) -> None:
        self._most = most
        self._done = 0
        own_key = most > 0 and request.takes_key and not request.has_key
        self.headers = {**request.headers, **(keyed(uuid4().hex) if own_key else {})}
        self._is_repeatable = request.is_repeatable or own_key

    def pause_s(self, error: ServiceError) -> float:
        """How long to wait before the request is sent again. Raises `error` when it is not."""
        if self._done >= self._most or not self._may_follow(error):
            raise error
        pause_s = min(PAUSE_S * float(2**self._done), PAUSE_S_MAX) * random.uniform(0.5, 1)  # noqa: S311
        self._done += 1
        return max(pause_s, error.retry_after_s or 0.0)

    def _may_follow(self, error: ServiceError) -> bool:
        if not isinstance(error, UnavailableError) or (error.retry_after_s or 0.0) > RETRY_AFTER_S_MAX:
            return False
        return self._is_repeatable or isinstance(error, (OverloadedError, Unreachable))
