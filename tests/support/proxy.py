"""The example of a TLS proxy, made to run in a test's own directory and ports."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from tests.support.service import free_port
from tests.support.tools import NGINX

EXAMPLE = Path(__file__).parents[2] / "examples" / "deploy" / "nginx.conf"
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def configure(directory: Path, port: int, upstream: int) -> Path:
    """The example with other paths and ports; the authority of its certificate is `ca.pem` beside it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(directory / "tls.pem"))
    temporary = " ".join(f"{name}_temp_path {directory}/{name};" for name in TEMPORARY)
    text = EXAMPLE.read_text()
    for old, new in {
        "http {": f"http {{ {temporary}",
        "/etc/penstock/tls/fullchain.pem": f"{directory}/tls.pem",
        "/etc/penstock/tls/key.pem": f"{directory}/tls.pem",
        "/var/log/nginx/": f"{directory}/",
        "/run/nginx.pid": f"{directory}/nginx.pid",
        "listen 80;": f"listen 127.0.0.1:{free_port()};",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
        "127.0.0.1:8080": f"127.0.0.1:{upstream}",
    }.items():
        assert old in text
        text = text.replace(old, new)
    path = directory / "nginx.conf"
    path.write_text(
        ("user root;\n" if os.geteuid() == 0 else "") + text
    )  # its processes must write to the test's directory
    return path


@contextmanager
def running(directory: Path, port: int, upstream: int) -> Iterator[None]:
    """nginx with that configuration, for the time of the block."""
    assert NGINX
    config = configure(directory, port, upstream)
    process = subprocess.Popen([NGINX, "-c", str(config), "-g", f"daemon off; error_log {directory}/start.log;"])
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)
