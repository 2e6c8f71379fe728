"""/settings: the settings that this service has, and where each came from."""

from __future__ import annotations

from collections.abc import Mapping

from falcon.asgi import Request, Response
from msgspec.structs import replace

from penstock.client.operating.views import SettingView
from penstock.config.keys import KEYS
from penstock.config.settings import Settings, value_of
from penstock.http.messages import responses


class SettingsResource:
    def __init__(self, settings: Settings, sources: Mapping[str, str]) -> None:
        if settings.broker.embedded:  # which its child processes know by an address that nobody has set
            settings = replace(settings, broker=replace(settings.broker, url=None))
        self._shown = [
            SettingView(name, key.shown(value_of(settings, key)), sources.get(name, "default"), key.help)
            for name, key in KEYS.items()
        ]

    async def on_get(self, req: Request, resp: Response) -> None:
        """The effective settings, and where each came from."""
        responses.ok(resp, self._shown)
