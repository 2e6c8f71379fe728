"""Operations on triggers, and the events and webhooks that they wait for."""

from __future__ import annotations

from penstock.client import views
from penstock.config import limits
from penstock.engine.access.scopes import KeyScope
from penstock.http.intake.events import EventIntakeResource
from penstock.http.intake.webhooks import Accepted, Challenge, WebhookResource
from penstock.http.middleware.rights import About
from penstock.http.openapi.definitions import ref
from penstock.http.openapi.operations.operation import Access, Answer, Body, Operation
from penstock.http.openapi.operations.parameters import EVENT_KEY, PAYLOAD_BODY
from penstock.http.resources import triggers

NIGHTLY = {
    "name": "nightly",
    "workflow": "greet",
    "cron": {"expression": "0 3 * * *", "timezone": "Europe/Berlin"},
    "input": "Ada",
}

TRIGGERS_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "listTriggers",
        "/triggers",
        triggers.TriggersResource.on_get,
        "Triggers",
        {200: Answer(list[views.TriggerView])},
        scope=KeyScope.READ,
        about=About.SEVERAL,
    ),
    Operation(
        "createTrigger",
        "/triggers",
        triggers.TriggersResource.on_post,
        "Triggers",
        {201: Answer(views.TriggerView)},
        refusals=(409,),
        body=Body(ref("TriggerDocument"), NIGHTLY),
        leads={name: {"name": "$response.body#/name"} for name in ("getTrigger", "fireTrigger", "testTrigger")},
        scope=KeyScope.ADMIN,
        about=About.SEVERAL,
    ),
    Operation(
        "getTrigger",
        "/triggers/{name}",
        triggers.TriggerResource.on_get,
        "Triggers",
        {200: Answer(views.TriggerView)},
        refusals=(404,),
        scope=KeyScope.READ,
        about=About.TRIGGER,
    ),
    Operation(
        "putTrigger",
        "/triggers/{name}",
        triggers.TriggerResource.on_put,
        "Triggers",
        {200: Answer(views.TriggerView)},
        refusals=(409,),
        body=Body(ref("NamedTriggerDocument"), {"workflow": "greet", "webhook": {"secret": "keep it"}}),
        scope=KeyScope.ADMIN,
        about=About.SEVERAL,
    ),
    Operation(
        "deleteTrigger",
        "/triggers/{name}",
        triggers.TriggerResource.on_delete,
        "Triggers",
        {200: Answer(views.Deleted)},
        refusals=(404,),
        scope=KeyScope.ADMIN,
        about=About.TRIGGER,
    ),
    Operation(
        "fireTrigger",
        "/triggers/{name}/fire",
        triggers.TriggerFireResource.on_post,
        "Triggers",
        {201: Answer(views.FiredRun)},
        refusals=(404,),
        body=PAYLOAD_BODY,
        scope=KeyScope.OPERATE,
        about=About.TRIGGER,
        audited=False,
    ),
    Operation(
        "testTrigger",
        "/triggers/{name}/test",
        triggers.TriggerTrialResource.on_post,
        "Triggers",
        {200: Answer(views.TrialView)},
        refusals=(404,),
        body=PAYLOAD_BODY,
        scope=KeyScope.OPERATE,
        about=About.TRIGGER,
        audited=False,
    ),
    Operation(
        "sendEvent",
        "/events/{name}",
        EventIntakeResource.on_post,
        "Triggers",
        {202: Answer(views.SentEvent)},
        parameters=(EVENT_KEY,),
        body=Body({}, {"order": 17, "state": "paid"}, bytes_max=limits.PAYLOAD_BYTES_MAX),
        scope=KeyScope.OPERATE,
        audited=False,
    ),
    Operation(
        "receiveWebhook",
        "/v1/webhooks/{name}",
        WebhookResource.on_post,
        "Triggers",
        {202: Answer(Accepted), 200: Answer(Challenge)},
        access=Access.SIGNATURE,
        refusals=(404,),
        body=Body({}, {"ref": "refs/heads/main"}, bytes_max=limits.WEBHOOK_BYTES_MAX),
    ),
)
