"""Operations on dead letters."""

from __future__ import annotations

from penstock.client import views
from penstock.config import limits
from penstock.engine.access.scopes import KeyScope
from penstock.http.messages.params import DEAD_LETTERS
from penstock.http.middleware.rights import About
from penstock.http.openapi.definitions import described
from penstock.http.openapi.operations.operation import Answer, Operation, Parameter
from penstock.http.openapi.operations.parameters import RUN_ID, limit
from penstock.http.openapi.operations.runs import PAYLOAD_MAX
from penstock.http.resources import dead_letters

SELECTION = (
    Parameter("run", described(DEAD_LETTERS["run"]), "Of this run only.", RUN_ID),
    Parameter("task", described(DEAD_LETTERS["task"]), "Of this task type only.", "hello"),
    limit(DEAD_LETTERS, limits.DEAD_LETTERS_LISTED_DEFAULT),
    Parameter("cursor", described(DEAD_LETTERS["cursor"]), "Continues an earlier list; out of its Link.", "17"),
)

DEAD_LETTERS_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "listDeadLetters",
        "/dead-letters",
        dead_letters.DeadLettersResource.on_get,
        "Dead letters",
        {200: Answer(list[views.DeadLetterView], paged=True)},
        parameters=SELECTION,
        scope=KeyScope.READ,
        about=About.SEVERAL,
    ),
    Operation(
        "getDeadLetter",
        "/dead-letters/{seq}",
        dead_letters.DeadLetterResource.on_get,
        "Dead letters",
        {200: Answer(views.DeadLetterView)},
        parameters=(PAYLOAD_MAX,),
        refusals=(404,),
        scope=KeyScope.READ,
        about=About.DEAD_LETTER,
    ),
    Operation(
        "discardDeadLetter",
        "/dead-letters/{seq}",
        dead_letters.DeadLetterResource.on_delete,
        "Dead letters",
        {200: Answer(views.Discarded)},
        refusals=(404,),
        scope=KeyScope.OPERATE,
        about=About.DEAD_LETTER,
    ),
    Operation(
        "replayDeadLetter",
        "/dead-letters/{seq}/replay",
        dead_letters.DeadLetterReplayResource.on_post,
        "Dead letters",
        {200: Answer(views.Replayed)},
        refusals=(404, 409),
        scope=KeyScope.OPERATE,
        about=About.DEAD_LETTER,
    ),
)
