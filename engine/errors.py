"""Everything that can go wrong on purpose, named by meaning. HTTP statuses are given to these in
http/messages/errors.py only."""

from __future__ import annotations


class PenstockError(Exception):
    """Base of the errors that a caller may catch; its text is fit to be shown to a user."""


class Invalid(PenstockError):
    """The caller's input breaks a rule; `problems` names every offender, one sentence each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class NotFound(PenstockError):
    """What the caller named does not exist."""


class Conflict(PenstockError):
    """The thing exists, but its state (or its expected revision) does not allow what was asked."""


class Denied(PenstockError):
    """The caller did not show that it may do this."""


class Forbidden(PenstockError):
    """Not allowed from where the request comes, whatever it shows."""


class TooLarge(PenstockError):
    """A body or payload is over its limit; nothing was stored."""


class Unavailable(PenstockError):
    """The broker did not answer, so the outcome is unknown: retry with the same message id, or say so."""


class NeedsUpgrade(Unavailable):
    """A newer version of the service wrote what is stored there: it waits for a process that can read it."""


class Full(Unavailable):
    """The broker's storage has no room for it: it was not stored, and may be sent again once there is some."""


class PublishFailed(PenstockError):
    """A cancellation or a signal could not be written, or nobody knows whether it was. Both may be sent again."""
