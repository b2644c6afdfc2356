import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { AppResponse } from "../../api/types";
import { nextStep, STEPS, type Step } from "../../lib/first-run";
import { useResource, type Resource } from "../../lib/resource";
import { to, useFilters } from "../../lib/url";
import { useHere, useMay } from "../../shell/context";
import { Head } from "../../ui/card";
import { Shown } from "../../ui/shown";
import { ChooseApp } from "../../shell/choose-app";
import { BrowserStep } from "./browser";
import "./first-run.css";
import { loadProgress, type Known } from "./load";
import { SentStep } from "./sent";
import { AppStep, KeyStep, SiteStep } from "./site";

/** First steps on an empty server. */
export default function FirstRun() {
  const { apps, app } = useHere();
  return (
    <>
      <Head title="First run" lead="Five steps to a notification in this browser." />
      {app ? (
        <Steps key={app.id} app={app} />
      ) : apps.length === 0 ? (
        <Begin />
      ) : (
        <ChooseApp apps={apps} what="The steps are the same for each app." />
      )}
    </>
  );
}

const TITLES: Record<Step, string> = {
  app: "Create an app for your site",
  key: "Create an API key for your backend",
  site: "Add the SDK to your site",
  browser: "Subscribe this browser",
  sent: "Send yourself a notification",
};

const NOTHING = { app: false, key: false, site: false, browser: false, sent: false };

/** Without an app. */
function Begin() {
  const operator = useMay("operator", null);
  if (!operator.may) {
    return (
      <div class="empty">
        <p>There is no app that you can access, and your role does not allow creating one. {operator.why}</p>
      </div>
    );
  }
  return (
    <ol class="steps">
      {STEPS.map((step, n) => (
        <Item key={step} n={n + 1} step={step} isDone={NOTHING[step]} isOpen={step === "app"} isAhead={step !== "app"}>
          {step === "app" ? <AppStep /> : <p class="fine">After the first step.</p>}
        </Item>
      ))}
    </ol>
  );
}

function Steps({ app }: { app: AppResponse }) {
  const progress = useResource(`first run ${app.id}`, (stop) => loadProgress(app, stop), {
    on: ["outcomes", "message.progress", "message.done"],
    everyS: 5,
  });
  useEffect(() => {
    const channel = new BroadcastChannel("bellwire.tried");
    channel.onmessage = progress.soon;
    return () => channel.close();
  }, [progress]);
  return (
    <Shown of={progress} what="the progress">
      {(known) => <StepList app={app} known={known} progress={progress} />}
    </Shown>
  );
}

function StepList({ app, known, progress }: { app: AppResponse; known: Known; progress: Resource<Known> }) {
  const admin = useMay("admin", app.id);
  const { filters } = useFilters();
  const [hasPasted, paste] = useState(false);
  const [secret, reveal] = useState<string>();
  const next = nextStep(known.done, { hasPasted, mayMakeKeys: admin.may });
  const refresh = progress.refresh;
  const bodies: Record<Step, ComponentChildren> = {
    app: <p>{whereOf(app)}</p>,
    key: (
      <KeyStep
        app={app}
        isDone={known.done.key}
        secret={secret}
        onMade={async (made) => {
          reveal(made);
          await refresh();
        }}
      />
    ),
    site: <SiteStep app={app} isDone={known.done.site} onPasted={() => paste(true)} />,
    browser: <BrowserStep app={app} isDone={known.done.browser} onChanged={refresh} />,
    sent: <SentStep app={app} known={known} onSent={refresh} />,
  };
  return (
    <>
      <ol class="steps">
        {STEPS.map((step, n) => (
          <Item
            key={step}
            n={n + 1}
            step={step}
            isDone={known.done[step]}
            // What is shown once stays until its reader goes on.
            isOpen={
              step === next ||
              (step === "key" && secret !== undefined && !hasPasted) ||
              (step === "sent" && next === undefined)
            }
            isAhead={next !== undefined && STEPS.indexOf(step) > STEPS.indexOf(next) && !known.done[step]}
          >
            {bodies[step]}
          </Item>
        ))}
      </ol>
      {next === undefined && (
        <p class="all-done" id="all-done" role="status">
          Everything works. <a href={to("/", { app: filters.app })}>Go to the overview</a>
        </p>
      )}
    </>
  );
}

const whereOf = ({ name, origins }: AppResponse) =>
  origins.length > 0 ? `${name}, for pages of ${origins.join(", ")}.` : `${name}, without origins yet.`;

interface ItemProps {
  n: number;
  step: Step;
  isDone: boolean;
  isOpen: boolean;
  isAhead: boolean;
  children: ComponentChildren;
}

/** A step: its number, or a tick; the next one is open, and any can be. */
function Item({ n, step, isDone, isOpen, isAhead, children }: ItemProps) {
  return (
    <li
      id={`step-${step}`}
      data-done={isDone ? "" : undefined}
      data-ahead={isAhead ? "" : undefined}
      aria-current={isOpen && !isDone ? "step" : undefined}
    >
      <details open={isOpen}>
        <summary>
          <span class="tick" aria-hidden="true">
            {isDone ? "✓" : n}
          </span>
          <h2>
            {TITLES[step]}
            <span class="hidden">{isDone ? ", done" : ""}</span>
          </h2>
        </summary>
        <div class="step">{children}</div>
      </details>
    </li>
  );
}
