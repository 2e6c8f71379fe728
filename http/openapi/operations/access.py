"""Operations on API keys."""

from __future__ import annotations

from penstock.client.access import views
from penstock.config import limits
from penstock.engine.access.scopes import KeyScope
from penstock.http.access.audit import AuditResource
from penstock.http.access.keys import CreateKey, KeyResource, KeysResource
from penstock.http.access.sessions import BODY_BYTES_MAX, SessionResource, SignIn
from penstock.http.messages import params
from penstock.http.middleware.rights import About
from penstock.http.openapi.definitions import described
from penstock.http.openapi.operations.operation import Access, Answer, Body, Operation, Parameter
from penstock.http.openapi.operations.parameters import limit

ACCESS_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "listAudit",
        "/audit",
        AuditResource.on_get,
        "Access",
        {200: Answer(list[views.AuditView], paged=True)},
        parameters=(
            limit(params.AUDIT, limits.AUDIT_LISTED_DEFAULT),
            Parameter(
                "cursor", described(params.AUDIT["cursor"]), "Continues an earlier list; out of its Link.", "12.3"
            ),
        ),
        scope=KeyScope.ADMIN,
    ),
    Operation(
        "signIn",
        "/session",
        SessionResource.on_post,
        "Access",
        {201: Answer(views.SessionView)},
        access=Access.SIGN_IN,
        refusals=(403, 409),
        body=Body(SignIn, {"key": "s3cret"}, required=False, bytes_max=BODY_BYTES_MAX),
    ),
    Operation(
        "getSession",
        "/session",
        SessionResource.on_get,
        "Access",
        {200: Answer(views.SessionView)},
        needs_broker=False,
        scope=KeyScope.READ,
        about=About.SEVERAL,
    ),
    Operation(
        "signOut",
        "/session",
        SessionResource.on_delete,
        "Access",
        {200: Answer(views.SignedOut)},
        scope=KeyScope.READ,
        about=About.SEVERAL,
        audited=False,
    ),
    Operation(
        "listKeys",
        "/keys",
        KeysResource.on_get,
        "Access",
        {200: Answer(list[views.KeyView])},
        scope=KeyScope.ADMIN,
    ),
    Operation(
        "createKey",
        "/keys",
        KeysResource.on_post,
        "Access",
        {201: Answer(views.CreatedKey)},
        refusals=(409,),
        body=Body(CreateKey, {"name": "ada", "scope": "admin", "expires": "90d"}),
        scope=KeyScope.ADMIN,
    ),
    Operation(
        "revokeKey",
        "/keys/{name}",
        KeyResource.on_delete,
        "Access",
        {200: Answer(views.RevokedKey)},
        refusals=(404, 409),
        scope=KeyScope.ADMIN,
    ),
)
