import type { AppResponse } from "../../api/types";
import { useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Field, Form } from "../../ui/form";
import { type Known, sendTo } from "./load";

/** The last step, and what became of it. */
export function SentStep({ app, known: { browser, message }, onSent }: { app: AppResponse; known: Known; onSent: () => unknown }) {
  const sender = useMay("sender", app.id);
  if (!browser) return <p class="fine">Once this browser is subscribed.</p>;
  if (!sender.may) return <p class="fine">To send is not yours. {sender.why}</p>;
  return (
    <>
      <Form
        button={message ? "Send another one" : "Send"}
        id="send"
        work={async ({ text }) => {
          await sendTo(app, browser, { title: text("title"), body: text("body") });
          await onSent();
        }}
      >
        <p>To this browser only.</p>
        <Field label="Title">{(tie) => <input name="title" required maxLength={100} defaultValue="Hello" autocomplete="off" {...tie} />}</Field>
        <Field label="Text">{(tie) => <input name="body" maxLength={200} defaultValue="It works." autocomplete="off" {...tie} />}</Field>
      </Form>
      <div role="status" id="fate">
        {message && <Fate counts={message.counts} />}
      </div>
    </>
  );
}

function Fate({ counts }: { counts: NonNullable<Known["message"]>["counts"] }) {
  if (!counts) return null;
  if ((counts.displayed ?? 0) > 0) return <Badge tone="accepted">Your browser displayed and reported it</Badge>;
  if (counts.accepted > 0) {
    return (
      <>
        <Badge tone="waiting">The push service has it</Badge>
        <p class="fine">Your browser has yet to show it. No notification? Check that the system allows notifications and is not in a do-not-disturb mode.</p>
      </>
    );
  }
  if (counts.gone + counts.dead + counts.expired + counts.cancelled > 0) return <Badge tone="lost">It did not arrive: subscribe this browser again, or look into the dead letters</Badge>;
  return <Badge tone={counts.retrying > 0 ? "retrying" : "waiting"}>{counts.retrying > 0 ? "The push service did not take it yet; it is tried again" : "On its way"}</Badge>;
}
