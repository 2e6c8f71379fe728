/** The status of a run or step: a shape, a colour and a word, so that no one of them has to be seen. */

const PATHS: Record<string, string> = {
  completed: "M4.2 8.3l2.6 2.6 5-5.4",
  recovered: "M4.2 8.3l2.6 2.6 5-5.4",
  failed: "M5 5l6 6M11 5l-6 6",
  cancelled: "M4.5 11.5l7-7",
  skipped: "M4 8h8M9 5l3 3-3 3",
  paused: "M6.3 5v6M9.7 5v6",
  compensating: "M11.5 8a3.5 3.5 0 1 1-1.2-2.6M11.5 3.5v2.2H9.3",
  queued: "M8 5v3.2l2 1.3",
  scheduled: "M8 5v3.2l2 1.3",
  "held up": "M8 4.6v4M8 11v.2",
};

const WORDS: Record<string, string> = { pending: "waits", "held up": "held up" };

interface IconProps {
  status: string;
  /** Leaves out the text for screen readers, where a word stands beside the icon. */
  bare?: boolean;
}

export function StatusIcon({ status, bare = false }: IconProps) {
  const path = PATHS[status];
  return (
    <svg class={`icon s-${status.replace(" ", "-")}`} viewBox="0 0 16 16" width="16" height="16" role={bare ? undefined : "img"} aria-hidden={bare ? "true" : undefined} aria-label={bare ? undefined : word(status)}>
      <circle class="disc" cx="8" cy="8" r="6.5" />
      {status === "running" && <circle class="spin" cx="8" cy="8" r="6.5" />}
      {status === "running" && <circle class="core" cx="8" cy="8" r="2.6" />}
      {path !== undefined && <path class="sign" d={path} />}
    </svg>
  );
}

export function Status({ status }: { status: string }) {
  return (
    <span class={`status s-${status.replace(" ", "-")}`}>
      <StatusIcon status={status} bare />
      {word(status)}
    </span>
  );
}

function word(status: string): string {
  return WORDS[status] ?? status;
}
