/** A sentence of the service, as people read it: its commands as code, its times as the page shows them. */

import { Fragment, type ComponentChildren } from "preact";
import { Moment } from "./time";

/** A moment as the service writes it. */
export const TIME = /(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z)/;

export function Sentence({ text }: { text: string }) {
  const parts = (text.charAt(0).toUpperCase() + text.slice(1)).split("`");
  return <>{parts.map((one, index) => (index % 2 === 1 ? <code key={index}>{one}</code> : <Fragment key={index}>{withTimes(one)}</Fragment>))}</>;
}

const withTimes = (text: string): ComponentChildren[] => text.split(TIME).map((one, index) => (index % 2 === 1 ? <Moment key={index} at={one} /> : one));
