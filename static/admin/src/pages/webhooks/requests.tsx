import type { AppResponse, WebhookResponse, WebhookDeliveryResponse } from "../../api/types";
import { shortId } from "../../lib/deliveries";
import { things } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { REQUEST_STATES, REQUEST_STATE_WORDS, requestWords } from "../../lib/webhooks";
import { useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Card } from "../../ui/card";
import { Export } from "../../ui/export";
import "../../ui/filters.css";
import { Count, Time } from "../../ui/numbers";
import { Select } from "../../ui/select";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { loadRequests } from "./load";

interface Props {
  app: AppResponse;
  webhook: WebhookResponse;
  /** Asks whether to replay all that failed. */
  replay: () => void;
}

/** Requests of a webhook, newest first. */
export function Requests({ app, webhook, replay }: Props) {
  const { filters, change, link } = useFilters();
  const admin = useMay("admin", app.id);
  const { state, after } = filters;
  const here = `/webhooks/${webhook.id}`;
  const page = useResource(
    `requests ${webhook.id} ${state} ${after}`,
    (stop) => loadRequests(app.id, webhook.id, filters, stop),
    { everyS: 15 },
  );
  const next = page.known.value?.value.next;
  return (
    <Card
      title="Requests"
      aside={
        <div class="row">
          <Select
            label="State"
            value={state}
            choices={REQUEST_STATES.map((state) => [state, REQUEST_STATE_WORDS[state]])}
            choose={(state) => change({ state, after: undefined })}
          />
          <Export
            name={`${app.slug}-webhook-requests`}
            page={async (after, limit, stop) => {
              const { requests, next } = await loadRequests(app.id, webhook.id, { state, after }, stop, limit);
              return { rows: requests, next };
            }}
          />
        </div>
      }
    >
      {webhook.failed > 0 && admin.may && (
        <p>
          <button type="button" id="replay-all" onClick={replay}>
            Replay {things(webhook.failed, "failed request")}…
          </button>
        </p>
      )}
      <Shown
        of={page}
        what="requests"
        isEmpty={({ requests }) => requests.length === 0}
        empty={
          <p>
            {after
              ? "No more requests."
              : state
                ? "No request has this state."
                : "Nothing was sent to it yet. Delivered requests are kept for three days."}
          </p>
        }
      >
        {({ requests }) => <RequestTable requests={requests} page={(id) => link(`${here}/${id}`)} />}
      </Shown>
      {(after || next) && (
        <p class="row">
          {after && <a href={link(here, { state })}>Newest</a>}
          {next && <a href={link(here, { state, after: next })}>Older</a>}
        </p>
      )}
    </Card>
  );
}

function RequestTable({ requests, page }: { requests: WebhookDeliveryResponse[]; page: (id: string) => string }) {
  return (
    <Table
      caption="Requests"
      rows={requests}
      id={({ id }) => id}
      columns={[
        {
          head: "Created",
          cell: ({ id, created_at }) => (
            <>
              <a href={page(id)}>
                <Time at={created_at} absolute />
              </a>
              <br />
              <span class="fine keep">{shortId(id)}</span>
            </>
          ),
        },
        {
          head: "State",
          cell: (request) => <Badge tone={requestWords(request).tone}>{requestWords(request).word}</Badge>,
        },
        { head: "Attempts", isNumber: true, cell: ({ attempts }) => <Count n={attempts} /> },
        { head: "Events", isNumber: true, isExtra: true, cell: ({ events }) => <Count n={events} /> },
        {
          head: "Next",
          isExtra: true,
          cell: ({ due_at, ended_at }) =>
            due_at ? (
              <Time at={due_at} />
            ) : ended_at ? (
              <span class="soft">
                ended <Time at={ended_at} />
              </span>
            ) : (
              ""
            ),
        },
      ]}
    />
  );
}
