import type { AppResponse } from "../../api/types";
import { useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Field, Form } from "../../ui/form";
import { type Known, sendTo } from "./load";

/** Last step, with its result. */
export function SentStep({
  app,
  known: { browser, message },
  onSent,
}: {
  app: AppResponse;
  known: Known;
  onSent: () => unknown;
}) {
  const sender = useMay("sender", app.id);
  if (!browser) return <p class="fine">Available after this browser is subscribed.</p>;
  if (!sender.may) return <p class="fine">Your role does not allow sending messages. {sender.why}</p>;
  return (
    <>
      <Form
        button={message ? "Send another notification" : "Send"}
        id="send"
        work={async ({ text }) => {
          await sendTo(app, browser, { title: text("title"), body: text("body") });
          await onSent();
        }}
      >
        <p>To this browser only.</p>
        <Field label="Title">
          {(tie) => <input name="title" required maxLength={100} defaultValue="Hello" autocomplete="off" {...tie} />}
        </Field>
        <Field label="Text">
          {(tie) => <input name="body" maxLength={200} defaultValue="It works." autocomplete="off" {...tie} />}
        </Field>
      </Form>
      <div role="status" id="fate">
        {message && <Fate counts={message.counts} />}
      </div>
    </>
  );
}

function Fate({ counts }: { counts: NonNullable<Known["message"]>["counts"] }) {
  if (!counts) return null;
  if ((counts.displayed ?? 0) > 0) return <Badge tone="accepted">Shown by your browser</Badge>;
  if (counts.accepted > 0) {
    return (
      <>
        <Badge tone="waiting">Accepted by the push service</Badge>
        <p class="fine">
          Waiting for your browser. If no notification appears, check that the system allows notifications and that
          do-not-disturb is off.
        </p>
      </>
    );
  }
  if (counts.gone + counts.dead + counts.expired + counts.cancelled > 0)
    return <Badge tone="lost">Failed: subscribe this browser again, or check the failed deliveries</Badge>;
  return (
    <Badge tone={counts.retrying > 0 ? "retrying" : "waiting"}>
      {counts.retrying > 0 ? "The push service refused the request; retrying" : "Sending"}
    </Badge>
  );
}
