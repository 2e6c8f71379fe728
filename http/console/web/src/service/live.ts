/** A live stream of server-sent events that goes on where it was cut off, and rests while nobody sees the page. */

export interface Message {
  readonly id: string;
  readonly event: string;
  readonly data: string;
}

interface Options {
  /** The sequence after which the stream begins. */
  after: string;
  onMessages: (messages: readonly Message[]) => void;
  /** Asked when the service has ended the stream: whether there is no more to come. A stopping process ends it, too. */
  isOver: () => Promise<boolean>;
  /** Whether the stream is connected. */
  onState: (connected: boolean) => void;
}

const WAIT_MS_MIN = 250;
const WAIT_MS_MAX = 5000;

/** Follows a stream until `stop` is called. EventSource cannot send a first Last-Event-ID, nor rest: so this is fetch. */
export function follow(path: string, { after, onMessages, isOver, onState }: Options): { stop: () => void } {
  let last = after;
  let stopped = false;
  let waitMs = WAIT_MS_MIN;
  let abort = new AbortController();

  async function connect(): Promise<boolean> {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (last !== "") headers["Last-Event-ID"] = last;
    const answer = await fetch(path, { headers, signal: abort.signal, credentials: "same-origin", cache: "no-store" });
    if (!answer.ok || answer.body === null) return answer.status === 404 || answer.status === 204;
    onState(true);
    waitMs = WAIT_MS_MIN;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return true;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop() ?? "";
      const messages = blocks.map(parse).filter((one) => one !== null);
      if (messages.length > 0) {
        last = messages.at(-1)?.id || last;
        onMessages(messages);
      }
    }
  }

  async function run(): Promise<void> {
    while (!stopped) {
      if (document.hidden) await visible();
      let ended = false;
      try {
        ended = (await connect()) && !document.hidden && (await isOver());
      } catch {
        ended = false;
      }
      if (stopped) return;
      if (ended) return;
      onState(false);
      await new Promise((resolve) => setTimeout(resolve, document.hidden ? 0 : waitMs));
      waitMs = Math.min(waitMs * 2, WAIT_MS_MAX);
    }
  }

  function rest(): void {
    if (document.hidden) {
      abort.abort();
      abort = new AbortController();
    }
  }

  document.addEventListener("visibilitychange", rest);
  void run();
  return {
    stop() {
      stopped = true;
      document.removeEventListener("visibilitychange", rest);
      abort.abort();
    },
  };
}

function parse(block: string): Message | null {
  let id = "";
  let event = "message";
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "id") id = value;
    else if (field === "event") event = value;
    else if (field === "data") data.push(value);
  }
  return data.length === 0 ? null : { id, event, data: data.join("\n") };
}

function visible(): Promise<void> {
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    look();
  });
}
