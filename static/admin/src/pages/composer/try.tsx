import { useState } from "preact/hooks";
import type { AppResponse, Accepted } from "../../api/types";
import { clock } from "../../lib/clock";
import { test, unsaid, type Draft } from "../../lib/draft";
import { going, standing } from "../../lib/messages";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { useAction } from "../../ui/action";
import { Badge } from "../../ui/badge";
import { Card } from "../../ui/card";
import { Refused, Shown } from "../../ui/shown";
import { loadMessage } from "../messages/load";
import { Choice, Text } from "./fields";
import { send } from "./load";

const KINDS = [
  ["users", "User"],
  ["subscriptions", "Subscription"],
] as const;

/** Sends the draft to one recipient, whose id is kept for the next draft. */
export function TryCard({ app, draft }: { app: AppResponse; draft: Draft }) {
  const place = `bellwire.test.${app.id}`;
  const [[kind, id], setTo] = useState<[kind: "users" | "subscriptions", id: string]>(() => remembered(place));
  const [sent, setSent] = useState<Accepted>();
  const { run, isBusy, problem } = useAction(async () => {
    remember(place, [kind, id.trim()]);
    setSent(undefined);
    setSent(await send(app.id, test(draft, kind, id.trim()), crypto.getRandomValues(new Uint32Array(4)).join("-")));
  });
  const lacking = unsaid(draft);
  const isReady = !lacking && id.trim() !== "";
  return (
    <Card title="Test">
      <p class="fine">
        Sends this content to one recipient immediately, also in quiet hours. The test is a separate message.
      </p>
      <form
        class="pair try"
        onSubmit={(event) => {
          event.preventDefault();
          if (isReady) void run();
        }}
      >
        <Choice
          label="To"
          name="test-kind"
          value={kind}
          choices={KINDS}
          choose={(kind) => setTo([kind as "users" | "subscriptions", id])}
        />
        <Text
          label="Id"
          name="test-id"
          value={id}
          change={(id) => setTo([kind, id])}
          placeholder={kind === "users" ? "user id of your site" : "sub_…"}
        />
        <button type="submit" id="send-test" disabled={!isReady || isBusy}>
          Send test
        </button>
      </form>
      {lacking && <p class="fine">{lacking}</p>}
      <Refused problem={problem} />
      {sent && <Became key={sent.id} app={app} sent={sent} />}
    </Card>
  );
}

/** Result of a test push. */
function Became({ app, sent }: { app: AppResponse; sent: Accepted }) {
  const { link } = useFilters();
  const message = useResource(`message ${sent.id}`, (stop) => loadMessage(app.id, sent.id, stop), {
    on: ["outcomes"],
    everyS: 3,
  });
  if (sent.audience_estimate === 0) return <p role="status">Not sent: this recipient has no active browser.</p>;
  return (
    <Shown of={message} what="the test">
      {(shown) => {
        const { tone, words } = going(standing(shown), undefined, clock.shown.value, zone.value);
        return (
          <p role="status" id="tested">
            <Badge tone={tone}>Test</Badge> {words} <a href={link(`/messages/${sent.id}`)}>Show message</a>
          </p>
        );
      }}
    </Shown>
  );
}

function remembered(place: string): ["users" | "subscriptions", string] {
  try {
    const kept = JSON.parse(sessionStorage.getItem(place) ?? "null") as ["users" | "subscriptions", string] | null;
    return kept ?? ["users", ""];
  } catch {
    return ["users", ""];
  }
}

function remember(place: string, to: [string, string]): void {
  try {
    sessionStorage.setItem(place, JSON.stringify(to));
  } catch {
    // Then it is asked for again.
  }
}
