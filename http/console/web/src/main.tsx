/** The console: one page of HTML, which shows what its address says. */

import { render, type FunctionComponent } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Empty, Waiting } from "./parts/messages";
import { keepTime } from "./parts/times";
import { RunsPage } from "./runs/page";
import { rememberVisits } from "./search/recent";
import { listenForKeys, opened } from "./shell/keys";
import { Layout } from "./shell/layout";
import { place, routeLinks } from "./shell/router";
import { findSession, refused, session, signInNeeded } from "./shell/session";
import { SignIn } from "./shell/sign_in";
import { keepTheme } from "./shell/theme";

type Page = FunctionComponent<{ id: string }>;

/** Pages behind the first one are loaded when they are wanted. `quiet`: nothing is said meanwhile. */
const later = (load: () => Promise<Page>, quiet = false): Page => {
  let found: Page | null = null;
  return (props) => {
    const [Loaded, setLoaded] = useState<{ page: Page } | null>(found === null ? null : { page: found });
    useEffect(() => {
      if (Loaded === null) void load().then((page) => setLoaded({ page: (found = page) }));
    }, []);
    if (Loaded === null) return quiet ? null : <Waiting what="the page" />;
    return <Loaded.page {...props} />;
  };
};

const RunPage = later(async () => {
  const { RunPage } = await import("./run/page");
  return ({ id }) => <RunPage key={id} runId={id} />;
});

const WorkflowsPage = later(async () => (await import("./workflows/page")).WorkflowsPage);

const WorkflowPage = later(async () => {
  const { WorkflowPage } = await import("./workflows/one");
  return ({ id }) => <WorkflowPage key={id} name={id} />;
});

const TriggersPage = later(async () => (await import("./triggers/page")).TriggersPage);

const TriggerPage = later(async () => {
  const { TriggerPage } = await import("./triggers/one");
  return ({ id }) => <TriggerPage key={id} name={id} />;
});

const LimitsPage = later(async () => (await import("./limits/page")).LimitsPage);

const LimitPage = later(async () => {
  const { LimitPage } = await import("./limits/one");
  return ({ id }) => <LimitPage scope={id} />;
});

const ApprovalsPage = later(async () => (await import("./approvals/page")).ApprovalsPage);

const DeadLettersPage = later(async () => (await import("./dead_letters/page")).DeadLettersPage);

const SystemPage = later(async () => (await import("./system/page")).SystemPage);

const WorkersPage = later(async () => (await import("./workers/page")).WorkersPage);

const Search = later(async () => (await import("./search/search")).Search, true);

const KeysShown = later(async () => (await import("./search/keys_shown")).KeysShown, true);

const ROUTES: readonly (readonly [RegExp, Page])[] = [
  [/^\/(?:runs)?$/, RunsPage],
  [/^\/runs\/([^/]+)$/, RunPage],
  [/^\/workflows$/, WorkflowsPage],
  [/^\/workflows\/([^/]+)$/, WorkflowPage],
  [/^\/triggers$/, TriggersPage],
  [/^\/triggers\/([^/]+)$/, TriggerPage],
  [/^\/approvals$/, ApprovalsPage],
  [/^\/limits$/, LimitsPage],
  [/^\/limits\/([^/]+)$/, LimitPage],
  [/^\/dead-letters$/, DeadLettersPage],
  [/^\/workers$/, WorkersPage],
  [/^\/system(?:\/(?:audit|keys|settings))?$/, SystemPage],
];

function Console() {
  if (refused.value !== null) {
    return (
      <main class="sign-in">
        <Empty title="The service answers nobody here.">
          <pre class="error-text">{refused.value}</pre>
        </Empty>
      </main>
    );
  }
  if (signInNeeded.value) return <SignIn />;
  return (
    <>
      <Layout>
        <Routed />
      </Layout>
      {opened.value === "search" && <Search id="" />}
      {opened.value === "keys" && <KeysShown id="" />}
    </>
  );
}

function Routed() {
  for (const [pattern, Page] of ROUTES) {
    const found = pattern.exec(place.value.path);
    if (found !== null) return <Page id={decodeURIComponent(found[1] ?? "")} />;
  }
  return <Empty title="There is no such page." />;
}

keepTime();
keepTheme();
listenForKeys();
rememberVisits();
routeLinks();
void findSession();
void session;
const root = document.getElementById("app")!;
root.replaceChildren();
render(<Console />, root);
