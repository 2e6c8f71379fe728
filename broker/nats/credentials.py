"""The credentials of a connection to the broker, from the settings. Unusable files are reported before a connection is
tried."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Invalid

INBOX = "_INBOX"  # answers to one connection; with a user's name behind it, they can be kept from other users
TOKEN = re.compile(r"[A-Za-z0-9_-]+")
KEY = re.compile(r"^SU[A-Z2-7]{56}\s*$", re.MULTILINE)


def credentials(settings: BrokerSettings) -> dict[str, Any]:
    """Raises Invalid for a file that cannot be read or holds no key."""
    for path in filter(None, (settings.nkey_seed, settings.credentials)):
        _check_key_file(path)
    given: dict[str, Any] = {
        "user": settings.user,
        "password": settings.password,
        "token": settings.token,
        "nkeys_seed": settings.nkey_seed,
        "user_credentials": settings.credentials,
        "tls": _tls(settings),
        "inbox_prefix": _inbox_prefix(settings),
    }
    return {key: value for key, value in given.items() if value is not None}


def inbox_prefix(user: str) -> str:
    """The prefix of the subjects on which a user's connections receive answers: its permissions need not cover those of
    others."""
    return f"{INBOX}.{user}"


def _inbox_prefix(settings: BrokerSettings) -> str | None:
    """None without a user name, or with one that cannot be a token of a subject."""
    urls = [urlsplit(url.strip()) for url in (settings.url or "").split(",")]
    user = settings.user or next(
        (url.username for url in urls if url.username and url.password), ""
    )  # alone, it is a token
    return inbox_prefix(user) if TOKEN.fullmatch(user) else None


def needs_tls(settings: BrokerSettings) -> bool:
    """Whether the settings require TLS for the broker; then no other connection is accepted. The embedded broker has
    none."""
    given = settings.tls_ca or settings.tls_cert or re.search(r"(^|,)\s*tls://", settings.url or "")
    return bool(given) and not settings.embedded


def _check_key_file(path: str) -> None:
    """Check the file first: the client would try such a file again and again, or end without a message."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(
            f"the credentials file {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    if not KEY.search(text):
        raise Invalid(f"the credentials file {path} holds no user's NKey seed")


def _tls(settings: BrokerSettings) -> ssl.SSLContext | None:
    if not (settings.tls_ca or settings.tls_cert):
        return None
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=settings.tls_ca)
        if settings.tls_cert:
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:
        files = ", ".join(filter(None, (settings.tls_ca, settings.tls_cert, settings.tls_key)))
        raise Invalid(f"the TLS files {files} cannot be used: {error}") from error
    return context
