import type { AppResponse, Diagnosis as Report } from "../../api/types";
import { useResource } from "../../lib/resource";
import { subscriptionWords } from "../../lib/subscribers";
import { useFilters } from "../../lib/url";
import { Badge } from "../../ui/badge";
import { Card } from "../../ui/card";
import { Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { loadDiagnosis } from "./load";

/** The report that a browser made of itself, beside the server's view of its subscription. */
export function Diagnosis({ app, code }: { app: AppResponse; code: string }) {
  const report = useResource(`diagnosis ${app.id} ${code}`, (stop) => loadDiagnosis(app.id, code, stop));
  return (
    <Shown of={report} what="this diagnosis">
      {(report) => (
        <div class="grid halves" id="diagnosis">
          <Checks report={report} />
          <ServerView app={app} report={report} />
        </div>
      )}
    </Shown>
  );
}

function Checks({ report: { code, checks } }: { report: Report }) {
  return (
    <Card title="Findings of the browser" aside={<code>{code}</code>}>
      {checks.length === 0 && (
        <p>The browser has not reported its findings: the page was closed, or the network failed.</p>
      )}
      {checks.length > 0 && (
        <Table
          caption="Findings of the browser"
          rows={checks}
          id={({ name }) => name}
          columns={[
            {
              head: "Check",
              cell: ({ name, ok }) => (
                <Badge tone={ok ? "accepted" : "lost"}>{`${name}: ${ok ? "fine" : "wrong"}`}</Badge>
              ),
            },
            { head: "Found", cell: ({ found }) => found },
            { head: "Advice", cell: ({ advice }) => advice ?? "–" },
          ]}
        />
      )}
    </Card>
  );
}

function ServerView({ app, report: { subscription, created_at, server, test } }: { app: AppResponse; report: Report }) {
  const { link } = useFilters();
  const failure = server?.last_failure;
  return (
    <Card title="The server’s view" aside={<Time at={created_at} />}>
      {server && (
        <ul>
          <li>
            <Badge tone={subscriptionWords(server.state).tone}>{subscriptionWords(server.state).word}</Badge> in{" "}
            {server.topics} topics, made with {server.key_is_active ? "the active key" : "a former key"}
          </li>
          <li>
            Last accepted: {server.last_accepted_at ? <Time at={server.last_accepted_at} /> : "nothing in 7 days"}
          </li>
          <li>
            Last failure: {failure ? <Time at={failure.at} /> : "none in 7 days"}{" "}
            {failure && `${failure.state} ${failure.status ?? ""}`}
          </li>
        </ul>
      )}
      <p>
        Test notification:{" "}
        {test ? (
          <a href={link(`/messages/${test.message}`)}>
            {test.displayed_at ? "shown" : `not shown, ${test.state ?? "unknown"} ${test.status ?? ""}`}
          </a>
        ) : (
          "not sent, since the subscription is not active"
        )}
      </p>
      <p>
        <a href={link(`/subscribers/${app.slug}/subscriptions/${subscription}`)}>Subscription and deliveries</a>
      </p>
    </Card>
  );
}
