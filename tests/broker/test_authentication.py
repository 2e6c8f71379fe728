"""A broker that wants to know who comes: each kind of credentials lets in, wrong ones are a clear error at once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import nkeys
import pytest
import structlog
import trustme

from penstock.broker.nats.connection import connect
from penstock.broker.nats.credentials import credentials
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Denied, Invalid, Unavailable
from tests.support.jwt_operator import Key, Operator
from tests.support.server import Server, server
from tests.support.waiting import until_true

CONNECT_S = 5.0


async def let_in(one: Server, settings: BrokerSettings) -> bool:
    await until_true(lambda: one.listens)
    async with connect(settings, "test", CONNECT_S) as opened:
        return opened.connected


@pytest.mark.parametrize(
    ("authorization", "right", "wrong"),
    [
        (
            'user: "ada", password: "secret"',
            {"user": "ada", "password": "secret"},
            {"user": "ada", "password": "other"},
        ),
        ('token: "t0ken"', {"token": "t0ken"}, {"token": "other"}),
        ('token: "t0ken"', {"token": "t0ken"}, {}),
    ],
    ids=["user and password", "token", "nothing"],
)
async def test_right_credentials_let_in_and_wrong_ones_are_refused(
    tmp_path: Path, authorization: str, right: dict[str, str], wrong: dict[str, str]
) -> None:
    with server(tmp_path, f"authorization {{ {authorization} }}") as one:
        assert await let_in(one, BrokerSettings(url=one.url, **right))  # type: ignore[arg-type]
        with pytest.raises(
            Denied, match=f"the broker at {one.url} refuses our credentials: authorization violation"
        ) as refused:
            await let_in(one, BrokerSettings(url=one.url, **wrong))  # type: ignore[arg-type]
    assert "other" not in str(refused.value)


async def test_password_inside_the_address_lets_in_and_is_never_shown(tmp_path: Path) -> None:
    with server(tmp_path, 'authorization { user: "ada", password: "secret" }') as one:
        assert await let_in(one, BrokerSettings(url=one.url.replace("//", "//ada:secret@")))
        with pytest.raises(Denied) as refused:
            await let_in(one, BrokerSettings(url=one.url.replace("//", "//ada:other@")))
    assert "other" not in str(refused.value)
    with pytest.raises(Unavailable) as away:
        async with connect(BrokerSettings(url=one.url.replace("//", "//ada:other@")), "test", 0.2):
            raise AssertionError("connected to nobody")
    assert "other" not in str(away.value)
    assert str(one.port) in str(away.value)


async def test_nkey_seed_lets_in_and_a_strangers_does_not(tmp_path: Path) -> None:
    key, stranger = Key(nkeys.PREFIX_BYTE_USER), Key(nkeys.PREFIX_BYTE_USER)
    for name, one in (("user.nk", key), ("stranger.nk", stranger)):
        (tmp_path / name).write_bytes(one.seed)
    with server(tmp_path, f'authorization {{ users: [{{ nkey: "{key.public}" }}] }}') as broker:
        assert await let_in(broker, BrokerSettings(url=broker.url, nkey_seed=str(tmp_path / "user.nk")))
        with pytest.raises(Denied):
            await let_in(broker, BrokerSettings(url=broker.url, nkey_seed=str(tmp_path / "stranger.nk")))


async def test_credentials_file_lets_in_and_another_operators_does_not(tmp_path: Path) -> None:
    operator = Operator()
    right, wrong = operator.credentials(tmp_path / "right.creds"), Operator().credentials(tmp_path / "wrong.creds")
    with server(tmp_path, operator.block()) as broker:
        assert await let_in(broker, BrokerSettings(url=broker.url, credentials=str(right)))
        with pytest.raises(Denied, match="authorization violation"):
            await let_in(broker, BrokerSettings(url=broker.url, credentials=str(wrong)))


@pytest.mark.parametrize("field", ["nkey_seed", "credentials"])
@pytest.mark.parametrize(
    ("content", "problem"), [(None, "cannot be read: No such file"), ("nothing", "holds no user's NKey seed")]
)
async def test_credentials_file_that_is_none_is_named(
    tmp_path: Path, field: str, content: str | None, problem: str
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    with pytest.raises(Invalid, match=f"the credentials file {path} {problem}"):
        async with connect(BrokerSettings(url="nats://127.0.0.1:1", **{field: str(path)}), "test"):  # type: ignore[arg-type]
            raise AssertionError("connected to nobody")


async def test_tls_needs_the_authority_and_a_certificate_of_ones_own(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, own, client = (str(tmp_path / name) for name in ("ca.pem", "server.pem", "client.pem"))
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(own)
    authority.issue_cert("worker").private_key_and_cert_chain_pem.write_to_path(client)
    block = f'tls {{ cert_file: "{own}", key_file: "{own}", ca_file: "{ca}", verify: true }}'
    with server(tmp_path, block) as one:
        assert await let_in(one, BrokerSettings(url=one.url, tls_ca=ca, tls_cert=client, tls_key=client))
        with pytest.raises(Unavailable):
            async with connect(BrokerSettings(url=one.url, tls_ca=ca), "test", 1.5):
                raise AssertionError("connected without a certificate")
    with pytest.raises(Invalid, match="cannot be used"):
        await let_in_nowhere(BrokerSettings(url=one.url, tls_ca=str(tmp_path / "missing.pem")))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (BrokerSettings(user="ada", password="x"), "_INBOX.ada"),
        (BrokerSettings(url="nats://a,nats://ada:x@b"), "_INBOX.ada"),
        (BrokerSettings(url="nats://t0ken@a"), None),  # a token, which must stand nowhere
        (BrokerSettings(user="a.>", password="x"), None),
        (BrokerSettings(), None),
    ],
    ids=["user", "in the address", "token in the address", "no subject token", "nobody"],
)
def test_answers_to_a_user_come_under_its_name(settings: BrokerSettings, expected: str | None) -> None:
    assert expected == credentials(settings).get("inbox_prefix")


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, str]:
    """Of an authority and of another one, and servers' of the first: one of 127.0.0.1, one of somewhere else."""
    authority, other = trustme.CA(), trustme.CA()
    paths = {name: str(tmp_path / name) for name in ("ca", "other", "own", "elsewhere")}
    authority.cert_pem.write_to_path(paths["ca"])
    other.cert_pem.write_to_path(paths["other"])
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(paths["own"])
    authority.issue_cert("elsewhere.example").private_key_and_cert_chain_pem.write_to_path(paths["elsewhere"])
    return paths


@pytest.mark.parametrize(
    ("certificate", "ca", "problem"),
    [
        ("own", "other", "unable to get local issuer certificate"),
        ("own", None, "unable to get local issuer certificate"),
        ("elsewhere", "ca", "certificate is not valid for '127.0.0.1'"),
    ],
    ids=["of another authority", "of one that nobody named", "of another host"],
)
async def test_a_certificate_that_is_not_the_brokers_is_refused_and_reported(
    tmp_path: Path, certificates: dict[str, str], certificate: str, ca: str | None, problem: str
) -> None:
    path = certificates[certificate]
    with server(tmp_path, f'tls {{ cert_file: "{path}", key_file: "{path}" }}') as one:
        await until_true(lambda: one.listens)
        with pytest.raises(Unavailable, match=problem):
            async with connect(BrokerSettings(url=one.url, tls_ca=ca and certificates[ca]), "test", 1.0):
                raise AssertionError("connected")


@pytest.mark.parametrize("way", ["authority", "address", "one address of two"])
async def test_where_tls_is_required_a_broker_without_it_gets_no_credentials(
    tmp_path: Path, certificates: dict[str, str], way: str
) -> None:
    """Somebody in between could say that there is no TLS, and would hear the password."""
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"headers":true}\r\n')
        while data := await reader.read(4096):
            heard.extend(data)
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as between:
        url = f"nats://127.0.0.1:{between.sockets[0].getsockname()[1]}"
        addresses = {
            "authority": url,
            "address": url.replace("nats:", "tls:"),
            "one address of two": f"{url}, tls://127.0.0.1:1",
        }
        settings = BrokerSettings(
            url=addresses[way], user="ada", password="secret", tls_ca=certificates["ca"] if way == "authority" else None
        )
        with pytest.raises(Unavailable):
            async with connect(settings, "test", 1.0):
                raise AssertionError("connected")
    assert b"" == heard


@pytest.mark.parametrize("ticks", range(24))
async def test_whoever_stops_to_wait_for_a_broker_is_free_at_once(ticks: int) -> None:
    """Also when an answer comes in the same moment, at which the client's way to wait swallows a cancellation."""
    asked = asyncio.Semaphore(0)

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no broker\r\n")
        asked.release()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as nobody:
        url = f"nats://127.0.0.1:{nobody.sockets[0].getsockname()[1]}"
        connecting = asyncio.ensure_future(let_in_nowhere(BrokerSettings(url=url)))
        await asked.acquire()
        for _ in range(ticks):
            await asyncio.sleep(0)
        connecting.cancel()
        done, _ = await asyncio.wait([connecting], timeout=2.0)
        connecting.cancel()
    assert {connecting} == done
    assert connecting.cancelled()


async def let_in_nowhere(settings: BrokerSettings) -> None:
    async with connect(settings, "test", CONNECT_S):
        raise AssertionError("connected to nobody")


async def test_credentials_that_the_broker_revokes_are_reported_once_and_tried_again(tmp_path: Path) -> None:
    def block(password: str) -> str:
        return f'authorization {{ user: "ada", password: "{password}" }}'

    with server(tmp_path, block("right")) as one, structlog.testing.capture_logs() as lines:
        await until_true(lambda: one.listens)
        async with connect(BrokerSettings(url=one.url, user="ada", password="right"), "test") as broker:
            restart(one, block(os.urandom(4).hex()))
            await until_true(lambda: [line for line in lines if line["event"] == "broker_refuses_credentials"] != [])
            tried = broker.client._server_pool[0].reconnects
            await until_true(lambda: broker.client._server_pool[0].reconnects > tried + 2)
            restart(one, block("right"))
            await until_true(lambda: broker.connected)
    told = [line for line in lines if line["event"] == "broker_refuses_credentials"]
    assert [("error", "authorization violation")] == [(line["log_level"], line["reason"]) for line in told]


def restart(one: Server, block: str) -> None:
    one.kill()
    one.configure(block)
    one.start()
