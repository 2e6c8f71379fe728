/** The page that asks for a key. */

import { useState } from "preact/hooks";
import { signIn } from "./session";

export function SignIn() {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    try {
      await signIn(key);
    } catch (error) {
      setProblem((error as Error).message);
    }
  }
  return (
    <main class="sign-in">
      <form onSubmit={submit}>
        <h1>penstock</h1>
        <label>
          API key
          <input type="password" autocomplete="current-password" required value={key} onInput={(event) => setKey(event.currentTarget.value)} />
        </label>
        {problem !== null && (
          <p class="error-text" role="alert">
            {problem}
          </p>
        )}
        <button type="submit" class="primary">
          Sign in
        </button>
        <p class="quiet">
          <code>penstock key create NAME</code> makes a key.
        </p>
      </form>
    </main>
  );
}
