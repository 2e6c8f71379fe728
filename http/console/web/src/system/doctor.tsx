/** What is wrong with the service, each with its remedy, and what was found to be right. */

import { Problem, Waiting } from "../parts/messages";
import { Sentence } from "../parts/sentence";
import { StatusIcon } from "../parts/status";
import { usePolled } from "../service/polled";
import type { Doctor } from "../service/types";
import { address } from "../shell/router";

const EVERY_MS = 10_000;

/** Where one sees what a check has found. */
const PAGES: Readonly<Record<string, string>> = { tasks_without_workers: "/workers", dead_letters: "/dead-letters", limits: "/limits" };

/** What a check is called where its name alone would not say it; and where it has found nothing. */
const NAMES: Readonly<Record<string, string>> = { fsync: "Writes to disk (fsync)", index: "Run index", versions: "Versions of penstock" };
const FINE: Readonly<Record<string, string>> = {
  tasks_without_workers: "No task without workers",
  dead_letters: "No dead letters",
  engine_lag: "Engines keep up",
};

const wordsOf = (check: string): string => {
  if (NAMES[check] !== undefined) return NAMES[check]!;
  const words = check.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
};

export function DoctorReport() {
  const examined = usePolled<Doctor>("/doctor", EVERY_MS);
  if (examined.data === null) return examined.problem === null ? <Waiting what="what the doctor says" /> : <Problem problem={examined.problem} />;
  const { checks, findings, notes = [] } = examined.data;
  const fine = checks.filter((check) => check.ok && !notes.some((note) => note.check === check.check));
  return (
    <section aria-label="Doctor">
      {examined.problem !== null && <Problem problem={examined.problem} />}
      {findings.map((finding) => (
        <div key={finding.text} class="finding bad-finding">
          <StatusIcon status="failed" />
          <div>
            <p>
              <strong>{wordsOf(finding.check)}</strong> <Sentence text={finding.text} />
            </p>
            <p class="quiet">
              <Sentence text={finding.remedy} />
              {PAGES[finding.check] !== undefined && (
                <>
                  {" "}
                  <a href={address(PAGES[finding.check]!)}>Show them</a>
                </>
              )}
            </p>
          </div>
        </div>
      ))}
      {notes.map((note) => (
        <div key={note.text} class="finding">
          <StatusIcon status="held up" />
          <div>
            <p>
              <strong>{wordsOf(note.check)}</strong> <Sentence text={note.text} />
            </p>
            <p class="quiet"><Sentence text={note.remedy} /></p>
          </div>
        </div>
      ))}
      <ul class="checks" aria-label="Checks that found nothing">
        {fine.map((check) => (
          <li key={check.check}>
            <StatusIcon status="completed" bare /> {FINE[check.check] ?? wordsOf(check.check)}
          </li>
        ))}
      </ul>
    </section>
  );
}
