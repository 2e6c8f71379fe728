"""Operations that say why runs wait, what limits hold them back, and what is wrong with the service."""

from __future__ import annotations

from penstock.client.limits.views import LimitView
from penstock.client.operating.views import BrokerView, DoctorView, ExplanationView, RunSummary, SettingView
from penstock.config import limits
from penstock.engine.access.scopes import KeyScope
from penstock.http.diagnosis.doctor import DoctorResource
from penstock.http.diagnosis.explanations import ExplanationResource
from penstock.http.diagnosis.run_summaries import SummariesResource
from penstock.http.limits.forms import LISTED, OF_SCOPE
from penstock.http.limits.responders import LimitResource, LimitsResource
from penstock.http.messages import run_filters
from penstock.http.middleware.rights import About
from penstock.http.openapi.definitions import described, ref
from penstock.http.openapi.operations.operation import Answer, Body, Operation, Parameter
from penstock.http.openapi.operations.parameters import LAG, MIN_SEQ, OLDER, UNCHANGED, limit
from penstock.http.openapi.operations.runs import SELECTION
from penstock.http.system.broker import BrokerResource
from penstock.http.system.settings import SettingsResource

SUMMARIES = run_filters.SUMMARIES
WHICH = (
    Parameter("key", described(OF_SCOPE["key"]), "The value of the limit's key, as text.", "acme"),
    Parameter("kind", described(OF_SCOPE["kind"]), "Which limit, if the scope has several kinds.", "runs"),
)

OPERATING_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "listSummaries",
        "/runs/summaries",
        SummariesResource.on_get,
        "Runs",
        {200: Answer(list[RunSummary], paged=True, headers=(*LAG, "ETag")), 304: UNCHANGED},
        parameters=(
            *(one for one in SELECTION if one.name != "limit"),
            limit(SUMMARIES, limits.SUMMARIES_LISTED_DEFAULT),
            Parameter("explain", described(SUMMARIES["explain"]), "Also why they do not go on.", "true"),
            Parameter("held_up", described(SUMMARIES["held_up"]), "Only those that somebody has to act on.", "true"),
            MIN_SEQ,
            *OLDER,
        ),
        scope=KeyScope.READ,
        about=About.SEVERAL,
    ),
    Operation(
        "explainRun",
        "/runs/{run_id}/explain",
        ExplanationResource.on_get,
        "Runs",
        {200: Answer(ExplanationView)},
        refusals=(404,),
        scope=KeyScope.READ,
        about=About.RUN,
    ),
    Operation(
        "listLimits",
        "/limits",
        LimitsResource.on_get,
        "Limits",
        {200: Answer(list[LimitView])},
        parameters=(limit(LISTED, limits.LIMITS_LISTED_DEFAULT),),
        scope=KeyScope.READ,
    ),
    Operation(
        "getLimit",
        "/limits/{scope}",
        LimitResource.on_get,
        "Limits",
        {200: Answer(LimitView)},
        refusals=(404,),
        parameters=WHICH,
        scope=KeyScope.READ,
    ),
    Operation(
        "setLimit",
        "/limits/{scope}",
        LimitResource.on_put,
        "Limits",
        {200: Answer(LimitView)},
        refusals=(404, 409),
        parameters=WHICH,
        body=Body(ref("LimitOverride"), {"limit": 5}),
        scope=KeyScope.ADMIN,
    ),
    Operation(
        "resetLimit",
        "/limits/{scope}",
        LimitResource.on_delete,
        "Limits",
        {200: Answer(LimitView)},
        refusals=(404, 409),
        parameters=WHICH,
        scope=KeyScope.ADMIN,
    ),
    Operation(
        "examineService",
        "/doctor",
        DoctorResource.on_get,
        "Service",
        {200: Answer(DoctorView)},
        scope=KeyScope.READ,
    ),
    Operation(
        "getBroker",
        "/broker",
        BrokerResource.on_get,
        "Service",
        {200: Answer(BrokerView)},
        scope=KeyScope.READ,
    ),
    Operation(
        "getSettings",
        "/settings",
        SettingsResource.on_get,
        "Service",
        {200: Answer(list[SettingView])},
        needs_broker=False,
        scope=KeyScope.ADMIN,
    ),
)
