import { useState } from "preact/hooks";
import type { AppResponse, TemplateCheck, TemplateCheckRequest } from "../../api/types";
import { shortId } from "../../lib/deliveries";
import { faultWords } from "../../lib/format";
import { trialWords } from "../../lib/templates";
import { useFilters } from "../../lib/url";
import { useAction } from "../../ui/action";
import { Badge } from "../../ui/badge";
import { Marked } from "../../ui/marked";
import { Refused } from "../../ui/shown";
import { Table } from "../../ui/table";
import { check } from "./load";
import "./templates.css";

/** Renders a template for a whole audience, on request. */
export function AudienceTrial({ app, body }: { app: AppResponse; body: TemplateCheckRequest }) {
  const of = JSON.stringify(body);
  const [known, setKnown] = useState<{ of: string; told: TemplateCheck }>();
  const { run, isBusy, problem } = useAction(async () => setKnown({ of, told: await check(app.id, body) }));
  const told = known?.of === of ? known.told : undefined;
  return (
    <div class="trial-on-all">
      <p class="row">
        <button type="button" id="try-on-all" disabled={isBusy} onClick={() => run()}>
          {isBusy ? "Rendering…" : "Render for all recipients"}
        </button>
        <span class="fine">Nothing is sent. This takes at most ten seconds.</span>
      </p>
      <Refused problem={problem} />
      {told && <Came told={told} app={app} />}
    </div>
  );
}

function Came({ told, app }: { told: TemplateCheck; app: AppResponse }) {
  const { link } = useFilters();
  const { tone, words } = trialWords(told);
  const failed = told.unrenderable + told.too_long;
  return (
    <>
      <p role="status" id="trial">
        <Badge tone={tone}>{tone === "lost" ? "Failed for some" : "Passed"}</Badge> {words}
      </p>
      {told.failures.length > 0 && (
        <Table
          caption="Failed recipients"
          rows={told.failures}
          id={({ subscription }) => subscription}
          columns={[
            {
              head: "Subscription",
              cell: ({ subscription }) => (
                <a href={link(`/subscribers/${app.slug}/subscriptions/${subscription}`)}>{shortId(subscription)}</a>
              ),
            },
            {
              head: "Field",
              isExtra: true,
              cell: ({ pointer }) => <code>{pointer?.replace(/^\/(?:template\/)?/, "")}</code>,
            },
            { head: "Error", cell: ({ detail }) => <Marked text={faultWords(detail)} /> },
          ]}
        />
      )}
      {failed > told.failures.length && <p class="fine">The first {told.failures.length} failures are shown.</p>}
    </>
  );
}
