/** The graph of a run beside its rows: a dot for each step, and the lines between them. */

import type { Tracks, Line } from "./model/tracks";
import type { Row } from "./rows";

export const ROW_HEIGHT = 30;
const TRACK_WIDTH = 16;
const LEFT = 12;
const TRACKS_MAX = 10;

const x = (track: number): number => LEFT + Math.min(track, TRACKS_MAX) * TRACK_WIDTH;
const y = (row: number): number => row * ROW_HEIGHT + ROW_HEIGHT / 2;

export const linesWidth = (tracks: Tracks): number => x(tracks.tracks - 1) + LEFT;

interface Props {
  tracks: Tracks;
  rows: readonly Row[];
  first: number;
  last: number;
  marked: string | null;
}

/** The lines that pass the rows from `first` to `last`; coordinates begin at the row `first`. */
export function Lines({ tracks, rows, first, last, marked }: Props) {
  const seen = tracks.lines.filter((line) => line.bottom >= first && line.top <= last);
  const width = linesWidth(tracks);
  return (
    <svg class="lines" width={width} height={(last - first) * ROW_HEIGHT} viewBox={`0 ${first * ROW_HEIGHT} ${width} ${(last - first) * ROW_HEIGHT}`} aria-hidden="true">
      {seen.map((line) => (
        <path key={`${line.top}-${line.track}`} class={lineClass(line, rows, marked)} d={drawn(line, tracks)} />
      ))}
      {rows.slice(first, last).map((row, index) => (
        <Dot key={row.id} row={row} track={tracks.track[first + index] ?? 0} at={first + index} marked={marked === row.id} />
      ))}
    </svg>
  );
}

function lineClass(line: Line, rows: readonly Row[], marked: string | null): string {
  const names = ["line"];
  if (line.sources.some((one) => rows[one]?.critical) && line.targets.some((one) => rows[one]?.critical)) names.push("critical");
  if (line.sources.every((one) => ["completed", "recovered"].includes(rows[one]?.step.status ?? ""))) names.push("done");
  if (marked !== null && line.ids.has(marked)) names.push("marked");
  return names.join(" ");
}

/** Down the track from the first source to the last target, with a bend to each dot that stands in another track. */
function drawn(line: Line, tracks: Tracks): string {
  const at = x(line.track);
  const bend = Math.min(10, ROW_HEIGHT / 2);
  let path = `M${at} ${y(line.top) + (x(tracks.track[line.top] ?? 0) === at ? 0 : bend)}V${y(line.bottom) - (x(tracks.track[line.bottom] ?? 0) === at ? 0 : bend)}`;
  for (const source of line.sources) {
    const from = x(tracks.track[source] ?? 0);
    if (from !== at) path += `M${from} ${y(source)}Q${at} ${y(source)} ${at} ${y(source) + bend}`;
  }
  for (const target of line.targets) {
    const to = x(tracks.track[target] ?? 0);
    if (to !== at) path += `M${at} ${y(target) - bend}Q${at} ${y(target)} ${to} ${y(target)}`;
  }
  return path;
}

function Dot({ row, track, at, marked }: { row: Row; track: number; at: number; marked: boolean }) {
  const names = `dot s-${row.step.status}${row.critical ? " critical" : ""}${marked ? " marked" : ""}`;
  return <circle class={names} cx={x(track)} cy={y(at)} r={marked ? 5.5 : 4.5} />;
}
