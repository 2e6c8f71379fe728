/** What every method of the package throws: one class for each thing that a caller may want to tell apart. */

export interface ErrorDetails {
  /** The HTTP status of the answer; none if there was no answer. */
  status?: number | undefined;
  /** The kind of the problem, such as "not-found"; docs/http.md lists them. */
  kind?: string | undefined;
  /** One sentence for each thing that is wrong. */
  problems?: readonly string[] | undefined;
  /** When a retry makes sense, in milliseconds from now, if the service has said so. */
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/** The base class, and any error that has no class of its own. */
export class PenstockError extends Error {
  readonly status: number | undefined;
  readonly kind: string | undefined;
  readonly problems: readonly string[];
  readonly retryAfterMs: number | undefined;

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.status = details.status;
    this.kind = details.kind;
    this.problems = details.problems ?? [message];
    this.retryAfterMs = details.retryAfterMs;
  }
}

/** The request breaks a rule (400); `problems` names each. */
export class InvalidError extends PenstockError {}

/** The token is missing or wrong (401). */
export class UnauthorizedError extends PenstockError {}

/** The key does not allow it, or requests from here are refused (403). */
export class ForbiddenError extends PenstockError {}

/** No such run, workflow, … (404; 400 if only the body names it). */
export class NotFoundError extends PenstockError {}

/** The state of the run does not allow it (409). */
export class ConflictError extends PenstockError {}

/** The body, or what was asked for, is over a limit (413). */
export class TooLargeError extends PenstockError {}

/** The service cannot do it now, or its answer was lost: whether something was done is unknown. */
export class UnavailableError extends PenstockError {}

/** Nobody listens at the address, so nothing was done. */
export class UnreachableError extends UnavailableError {}

/** The run whose result was asked for has failed or was cancelled; the message is its error. */
export class RunFailedError extends PenstockError {
  constructor(
    readonly runId: string,
    readonly runStatus: string,
    message: string,
  ) {
    super(message, { kind: "call-failed" });
  }
}

/** The run has not ended in the time that was given; it goes on. */
export class ResultTimeoutError extends PenstockError {
  constructor(
    readonly runId: string,
    timeoutMs: number,
  ) {
    super(`run ${runId} has not ended within ${timeoutMs} ms; it goes on`);
  }
}

const BY_STATUS: Readonly<Record<number, typeof PenstockError>> = {
  400: InvalidError,
  401: UnauthorizedError,
  403: ForbiddenError,
  404: NotFoundError,
  409: ConflictError,
  413: TooLargeError,
  503: UnavailableError,
};
const UNKNOWN_OUTCOME = new Set(["not-written", "unavailable", "needs-upgrade", "storage-full"]);
const PROBLEM = "urn:penstock:problem:";
const TEXT_MAX = 8192;

/** The error of an answer that is none of success. Reads its body. */
export async function errorOf(answer: Response): Promise<PenstockError> {
  const text = (await answer.text()).trim().slice(0, TEXT_MAX);
  const details: ErrorDetails = { status: answer.status, retryAfterMs: retryAfterMs(answer.headers) };
  const found = problemOf(answer.headers.get("content-type") ?? "", text);
  if (found !== undefined) Object.assign(details, { kind: found.kind, problems: found.problems });
  const message = found?.detail ?? (text || `the service answered ${answer.status}`);
  const kind = found?.missing === true ? NotFoundError : classOf(answer.status, found?.kind);
  return new kind(message, details);
}

/** The error of an entry that was answered together with others, such as one of an exchange. */
export function errorOfStatus(status: number, message: string): PenstockError {
  return new (classOf(status, undefined))(message, { status });
}

/** The error of a request that got no answer, or only a part of it. */
export function lost(error: unknown, what: string): UnavailableError {
  const codes = codesOf(error);
  const reason = error instanceof Error ? ((error.cause as Error | undefined)?.message ?? error.message) : String(error);
  const refused = codes.length > 0 && codes.every((code) => NOTHING_DONE.has(code));
  return new (refused ? UnreachableError : UnavailableError)(`${what}: ${reason || codes.join(", ")}`, { cause: error });
}

const NOTHING_DONE = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);

/** The codes of an error of `fetch`: of a host with several addresses, those of all attempts. */
function codesOf(error: unknown): string[] {
  const cause = (error as { cause?: { code?: string; errors?: { code?: string }[] } }).cause;
  const causes = cause?.errors ?? (cause === undefined ? [] : [cause]);
  return causes.map((one) => one.code ?? "unknown");
}

function classOf(status: number, kind: string | undefined): typeof PenstockError {
  if (kind !== undefined && UNKNOWN_OUTCOME.has(kind)) return UnavailableError;
  const gateway = kind === undefined && (status === 502 || status === 504);
  return gateway ? UnavailableError : (BY_STATUS[status] ?? PenstockError);
}

interface Problem {
  kind: string;
  detail: string;
  problems: string[];
  missing: boolean;
}

function problemOf(type: string, text: string): Problem | undefined {
  if (!type.includes("json")) return undefined;
  try {
    const { type: urn, detail, problems, missing } = JSON.parse(text);
    if (typeof urn !== "string" || typeof detail !== "string") return undefined;
    const kind = urn.replace(PROBLEM, "");
    return { kind, detail, problems: Array.isArray(problems) ? problems : [detail], missing: missing !== undefined };
  } catch {
    return undefined;
  }
}

function retryAfterMs(headers: Headers): number | undefined {
  const seconds = Number.parseFloat(headers.get("retry-after") ?? "");
  return Number.isFinite(seconds) ? seconds * 1000 : undefined;
}
