"""Evaluates expressions for an event loop: at once what is quick, in a child process what may take longer."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec

from penstock.actors.evaluation.messages import LENGTH_BYTES, EvaluationReply, EvaluationRequest, framed, request_for
from penstock.config.limits import EVALUATION_S_MAX
from penstock.config.logging import get_logger
from penstock.engine.errors import ExpressionFailed, Unavailable
from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.expression import Expression
from penstock.engine.expressions.template import Template

ATTEMPTS_MAX = 3  # each with a process of its own, should one die
_ENDED = (asyncio.IncompleteReadError, ConnectionError, TimeoutError)

_read = msgspec.msgpack.Decoder(EvaluationReply).decode

log = get_logger()


class Evaluator:
    """Belongs to a shard and lives as long as it. Its process is started when it is first needed, and again when it has
    died; it ends when the block is left."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    @property
    def running(self) -> bool:
        """Whether its process was started, and is alive as far as is known."""
        return self._process is not None and self._process.returncode is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End its process, if there is one."""
        async with self._turn:
            await self._end()

    async def json(self, what: Expression | Template, values: Values) -> bytes:
        """The result as JSON. Raises ExpressionFailed; Unavailable if the process died over it again and again."""
        if not what.is_heavy(values):
            return what.json(values)
        reply = await self._ask(request_for(what, values))
        if reply.failed is not None:
            raise ExpressionFailed(reply.failed)
        return reply.result

    async def holds(self, what: Expression, values: Values) -> bool:
        """Whether the expression is true. Raises as `json` does, and ExpressionFailed for what is neither true nor
        false."""
        if not what.is_heavy(values):
            return what.holds(values)
        result = await self.json(what, values)
        return what.truth(msgspec.json.decode(result))

    async def _ask(self, request: EvaluationRequest) -> EvaluationReply:
        message = framed(request)
        for _ in range(ATTEMPTS_MAX):
            async with self._turn:
                try:
                    async with asyncio.timeout(EVALUATION_S_MAX):
                        return await self._exchange(message)
                except _ENDED as error:
                    log.warning("evaluator_died", error=repr(error))
                    await self._end()
                except asyncio.CancelledError:
                    await self._end()  # its reply would be taken for the next one's
                    raise
        raise Unavailable(f"the process that evaluates expressions died {ATTEMPTS_MAX} times over one of them")

    async def _exchange(self, message: bytes) -> EvaluationReply:
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(message)
        await process.stdin.drain()
        length = await process.stdout.readexactly(LENGTH_BYTES)
        return _read(await process.stdout.readexactly(int.from_bytes(length, "big")))

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            pipe = asyncio.subprocess.PIPE
            arguments = ("-m", "penstock.actors.evaluation.process")
            self._process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe)
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
