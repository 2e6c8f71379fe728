"""The errors of the API, as both clients raise them: ServiceError, and a class for each kind of it.

Each is an error of the same meaning of engine/errors.py, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.engine import errors

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


class ServiceError(errors.PenstockError):
    """A request did not succeed; the text says why.

    `status` is that of the response, None without one; `code` the permanent name of this kind of error, such as
    `not-found`, where the service has given it; `problems` has one sentence for each offender. `request` is the method
    and the path, without the query. `retry_after_s` is how long the service asks to wait, in seconds.
    """

    def __init__(
        self,
        *problems: str,
        status: int | None = None,
        code: str | None = None,
        request: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__("\n".join(problems))
        self.problems: tuple[str, ...] = problems
        self.status = status
        self.code = code
        self.request = request
        self.retry_after_s = retry_after_s

    @property
    def offender(self) -> str | None:
        """What the first problem names in quotation marks: a workflow, a step, a field. None when it names nothing."""
        found = _QUOTED.search(self.problems[0]) if self.problems else None
        return None if found is None else found[1].replace('\\"', '"').replace("\\\\", "\\")


class InvalidError(ServiceError, errors.Invalid):
    """The request breaks a rule (400)."""


class NotAllowedError(ServiceError):
    """The caller may not do this: the base of UnauthorizedError and ForbiddenError."""


class UnauthorizedError(NotAllowedError, errors.Denied):
    """The token is missing, wrong, revoked or expired (401)."""


class ForbiddenError(NotAllowedError, errors.Forbidden):
    """The key does not allow this, or the service refuses this machine (403)."""


class NotFoundError(ServiceError, errors.NotFound):
    """What the request names does not exist (404); or a workflow that its body names (400)."""


class ConflictError(ServiceError, errors.Conflict):
    """It exists, but its state does not allow the request (409)."""


class TooLargeError(ServiceError, errors.TooLarge):
    """The body is over a limit; nothing was stored (413)."""


class UnavailableError(ServiceError, errors.Unavailable):
    """The service cannot do it now (502, 503, 504), or there was no response: the outcome is unknown."""


class OverloadedError(UnavailableError):
    """There are too many requests (429): nothing was done."""


class Unreachable(UnavailableError):
    """No service listens at that address: the request was not sent."""


BY_STATUS: Mapping[int, type[ServiceError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: TooLargeError,
    429: OverloadedError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}
