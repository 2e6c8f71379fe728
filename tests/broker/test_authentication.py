"""A broker that wants to know who comes: each kind of credentials lets in, wrong ones are a clear error."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nkeys
import pytest
import trustme

from penstock.broker.command import Command
from penstock.broker.connection import connect
from penstock.broker.server import find_binary
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Unavailable
from tests.conftest import free_port
from tests.support.waiting import until_true

PATIENCE_S = 1.5


@contextmanager
def broker(directory: Path, block: str) -> Iterator[str]:
    """A nats-server with this block in its configuration; its address."""
    port = free_port()
    config = directory / "auth.conf"
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{directory}" }}\n{block}\n')
    with (directory / "auth.log").open("ab") as log:
        command = Command([find_binary(), "-c", str(config)], output=log)
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        command.kill()
        command.join(5)


def listens(url: str) -> Callable[[], bool]:
    host, _, port = url.removeprefix("nats://").partition(":")

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    return answers


async def let_in(settings: BrokerSettings) -> bool:
    assert settings.url
    await until_true(listens(settings.url))
    async with connect(settings, "test", PATIENCE_S) as opened:
        return opened.connected


@pytest.mark.parametrize(
    ("authorization", "right", "wrong"),
    [
        ('user: "ada", password: "secret"', {"user": "ada", "password": "secret"}, {"user": "ada", "password": "other"}),
        ('token: "t0ken"', {"token": "t0ken"}, {"token": "other"}),
    ],
    ids=["user and password", "token"],
)
async def test_right_credentials_let_in_and_wrong_ones_do_not(
    tmp_path: Path, authorization: str, right: dict[str, str], wrong: dict[str, str]
) -> None:
    with broker(tmp_path, f"authorization {{ {authorization} }}") as url:
        assert await let_in(BrokerSettings(url=url, **right))  # type: ignore[arg-type]
        with pytest.raises(Unavailable, match="cannot connect to the broker") as refused:
            await let_in(BrokerSettings(url=url, **wrong))  # type: ignore[arg-type]
    assert "other" not in str(refused.value)


async def test_nkey_seed_lets_in(tmp_path: Path) -> None:
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    seed_file = tmp_path / "user.nk"
    seed_file.write_bytes(seed)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    with broker(tmp_path, f'authorization {{ users: [{{ nkey: "{public}" }}] }}') as url:
        assert await let_in(BrokerSettings(url=url, nkey_seed=str(seed_file)))


async def test_tls_needs_the_authority_and_a_certificate_of_ones_own(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, server, client = (str(tmp_path / name) for name in ("ca.pem", "server.pem", "client.pem"))
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(server)
    authority.issue_cert("worker").private_key_and_cert_chain_pem.write_to_path(client)
    block = f'tls {{ cert_file: "{server}", key_file: "{server}", ca_file: "{ca}", verify: true }}'
    with broker(tmp_path, block) as url:
        assert await let_in(BrokerSettings(url=url, tls_ca=ca, tls_cert=client, tls_key=client))
        with pytest.raises(Unavailable):
            await let_in(BrokerSettings(url=url, tls_ca=ca))
