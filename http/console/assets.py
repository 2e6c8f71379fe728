"""What the pages of the console load: scripts, styles and the font, under addresses that change with their contents."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
from falcon.asgi import Request, Response

from penstock.engine.errors import NotFound

FOLDER = Path(__file__).resolve().parent / "built"  # of the sources, where these are linked
PREFIX = "/console/assets"
FOR_EVER = "public, max-age=31536000, immutable"
MEDIA = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".woff2": "font/woff2",
    ".json": "application/json",
}
PACKED = frozenset({".js", ".css", ".json"})


class Asset(NamedTuple):
    data: bytes
    packed: bytes | None
    media: str


class Assets:
    """All files of the console's build, in memory from the first request on. The version is a hash of all of them."""

    @cached_property
    def _found(self) -> tuple[str, Mapping[str, Asset]]:
        found, contents = {}, sha256()
        for path in sorted(FOLDER.iterdir()):
            if path.suffix in MEDIA:
                data = path.read_bytes()
                packed = gzip.compress(data, 9, mtime=0) if path.suffix in PACKED else None
                found[path.name] = Asset(data, packed, MEDIA[path.suffix])
                contents.update(b"%b\0%d\0%b" % (path.name.encode(), len(data), data))
        return contents.hexdigest()[:16], found

    @cached_property
    def _imports(self) -> Mapping[str, list[str]]:
        """By source, the scripts that a page needs: the build has written it down."""
        return msgspec.json.decode(self._found[1]["manifest.json"].data, type=dict[str, list[str]])

    def url(self, name: str) -> str:
        """The address of a file."""
        return f"{PREFIX}/{self._found[0]}/{name}"

    def scripts(self, source: str) -> list[str]:
        """The addresses of a source's script and of all that it imports, itself first."""
        return [self.url(name) for name in self._imports[source]]

    def find(self, version: str, name: str) -> Asset:
        """Raises NotFound for another version than this one: what it loads might not fit."""
        current, found = self._found
        if version != current or name not in found:
            raise NotFound(f"the console has no file {name} of version {version}")
        return found[name]


class AssetResource:
    def __init__(self, assets: Assets) -> None:
        self._assets = assets

    async def on_get(self, req: Request, resp: Response, version: str, name: str) -> None:
        """One file, which never changes under its address."""
        asset = self._assets.find(version, name)
        packed = asset.packed if "gzip" in (req.get_header("Accept-Encoding") or "") else None
        resp.content_type = asset.media
        resp.data = asset.data if packed is None else packed
        resp.set_headers({"Cache-Control": FOR_EVER, "X-Content-Type-Options": "nosniff"})
        if asset.packed is not None:
            resp.append_header("Vary", "Accept-Encoding")
        if packed is not None:
            resp.set_header("Content-Encoding", "gzip")
