"""The errors of the product, named by meaning. Only http/messages/errors.py maps them to HTTP statuses."""

from __future__ import annotations


class PenstockError(Exception):
    """Base of the errors that a caller may catch. Its text may be shown to a user."""


class Invalid(PenstockError):
    """The caller's input breaks a rule; `problems` has one sentence for each offender."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UnknownWorkflow(Invalid):
    """The caller's input breaks a rule: it names a workflow that is not registered."""


class ExpressionFailed(PenstockError):
    """An expression that was registered gives no value for these values; the text has the expression and the reason.
    Evaluating it again gives the same."""


class NotFound(PenstockError):
    """The object that the caller named does not exist."""


class Conflict(PenstockError):
    """The object exists, but its state (or its revision) does not allow the operation."""


class Denied(PenstockError):
    """The caller did not prove that it may do this."""


class Forbidden(PenstockError):
    """This is not allowed from the origin of the request, or (OutOfScope) with its credentials."""


class OutOfScope(Forbidden):
    """The caller's key does not allow this. Another key may."""


class TooLarge(PenstockError):
    """A body or payload is over its limit; nothing was stored."""


class Unavailable(PenstockError):
    """The broker did not answer, so the outcome is unknown: retry with the same message id, or report that it is
    unknown."""


class NeedsUpgrade(Unavailable):
    """A newer version of the service wrote the stored document. It stays unchanged until a process that can read it
    comes."""


class Full(Unavailable):
    """The broker's storage is full: nothing was stored. The request may be sent again when there is room."""


class CallFailed(PenstockError):
    """The run that was called has no output for its caller: it failed, it was cancelled, or its output is too large.
    `status` is that of the run."""

    def __init__(self, text: str, status: str) -> None:
        super().__init__(text)
        self.status = status


class PublishFailed(PenstockError):
    """A cancellation or a signal was not written, or the outcome is unknown. Both may be sent again."""
