/** Server-sent events, read from the body of an answer. */

export interface ServerEvent {
  event: string;
  id: string;
  data: string;
}

/** The events of a body; `alive` is called for whatever comes, comments included. A cut-off event is left out. */
export async function* read(
  body: ReadableStream<Uint8Array>,
  alive: () => void,
): AsyncGenerator<ServerEvent, void, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  let lines: string[] = [];
  for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
    alive();
    const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) {
      const line = part.endsWith("\r") ? part.slice(0, -1) : part;
      if (line !== "") {
        lines.push(line);
        continue;
      }
      const found = eventOf(lines);
      lines = [];
      if (found !== undefined) yield found;
    }
  }
}

function eventOf(lines: readonly string[]): ServerEvent | undefined {
  const found = { event: "message", id: "" };
  const data: string[] = [];
  for (const line of lines) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") data.push(value);
    else if (name === "event" || name === "id") found[name] = value;
  }
  return data.length === 0 ? undefined : { ...found, data: data.join("\n") };
}
