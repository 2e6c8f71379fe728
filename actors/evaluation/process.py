"""The process of an evaluator: reads requests from its standard input and writes replies to its standard output, one
after the other, until its input ends."""

from __future__ import annotations

import gc
import signal
import sys
from functools import lru_cache
from typing import BinaryIO

import msgspec

from penstock.actors.evaluation.messages import LENGTH_BYTES, EvaluationReply, EvaluationRequest, framed, values_of
from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.expression import Expression, compile_expression
from penstock.engine.expressions.scope import Scope
from penstock.engine.expressions.template import Template, compile_template

COMPILED_MAX = 1000

_read = msgspec.msgpack.Decoder(EvaluationRequest).decode


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the shard, whose end is the end of this process, too
    gc.freeze()
    _serve(sys.stdin.buffer, sys.stdout.buffer)


def _serve(requests: BinaryIO, replies: BinaryIO) -> None:
    while length := requests.read(LENGTH_BYTES):
        request = _read(requests.read(int.from_bytes(length, "big")))
        replies.write(framed(_reply(request)))
        replies.flush()


def _reply(request: EvaluationRequest) -> EvaluationReply:
    try:
        return EvaluationReply(
            _compiled(request.source, request.scope, request.path, request.secrets).json(values_of(request))
        )
    except ExpressionFailed as error:
        return EvaluationReply(failed=str(error))


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(source: bytes, scope: Scope, path: str | None, secrets: bool) -> Expression | Template:
    """It was compiled from the same text before, in the shard: so it can be."""
    text = msgspec.json.decode(source)
    return compile_expression(text, scope) if path is None else compile_template(text, scope, path, secrets=secrets)


if __name__ == "__main__":
    main()
