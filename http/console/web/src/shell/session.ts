/** Who one is, and what one may do. */

import { signal } from "@preact/signals";
import { get, onSignInNeeded, post, Refused, send, useCsrfToken } from "../service/requests";
import type { Session } from "../service/types";

export const session = signal<Session | null>(null);

/** Whether a key has to be shown before anything can be seen; with `refused`, why the service answers nobody here. */
export const signInNeeded = signal(false);
export const refused = signal<string | null>(null);

const SCOPES = ["read", "operate", "admin"];

/** Whether one's scope allows what needs this one. What is not allowed is not shown; the service refuses it anyway. */
export function may(scope: "read" | "operate" | "admin"): boolean {
  const own = session.value?.scope ?? "read";
  return SCOPES.indexOf(own) >= SCOPES.indexOf(scope);
}

export async function findSession(): Promise<void> {
  onSignInNeeded(() => (signInNeeded.value = true));
  try {
    take(await get<Session>("/session"));
  } catch (problem) {
    if (problem instanceof Refused && problem.status === 401) signInNeeded.value = true;
    else if (problem instanceof Refused && problem.status === 403) refused.value = problem.message;
  }
}

/** Throws Refused for a key that is not valid. */
export async function signIn(key: string): Promise<void> {
  take(await post<Session>("/session", { key }));
  signInNeeded.value = false;
}

export async function signOut(): Promise<void> {
  await send("/session", { method: "DELETE" });
  useCsrfToken(null);
  session.value = null;
  signInNeeded.value = true;
}

function take(found: Session): void {
  session.value = found;
  useCsrfToken(found.csrf_token ?? null);
}
