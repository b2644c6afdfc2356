import type { AppResponse } from "../../api/types";
import { scheduleWords } from "../../lib/campaigns";
import { clock } from "../../lib/clock";
import { isAddressed, isBlank, message, titleOf, unsaid, type Draft } from "../../lib/draft";
import { count, things } from "../../lib/format";
import { audienceWords, SENT_WORDS } from "../../lib/messages";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { useFilters } from "../../lib/url";
import { Card } from "../../ui/card";
import { Dialog, useDialog } from "../../ui/dialog";
import { RefusedFields, Shown } from "../../ui/shown";
import { TypedForm } from "../../ui/typed";
import { dryRun, send, type Check } from "./load";
import { FIELDS } from "./parts";
import { Warnings } from "./reach";
import type { Writing } from "./store";

/** The end of it: what is still missing, or how to send. */
export function SendCard({ app, writing, check }: { app: AppResponse; writing: Writing<Draft>; check: Check }) {
  const { open: asked, show: ask, close } = useDialog<"send" | "clear">();
  const { draft } = writing;
  const n = check.counted?.audience_estimate;
  const lacking = lacks(draft) ?? (n === 0 ? "The audience is empty." : undefined);
  return (
    <Card title="Send">
      {lacking ? <p class="soft">{lacking}</p> : <RefusedFields problem={check.problem} at={FIELDS} />}
      <Warnings check={check} />
      <p class="row">
        <button
          type="button"
          class="primary"
          id="send"
          disabled={Boolean(lacking) || check.problem !== undefined}
          onClick={() => ask("send")}
        >
          {`${draft.isLater ? "Schedule" : "Send"}${n === undefined || lacking ? "" : draft.isLater ? ` for ${count(n)}` : ` to ${count(n)}`}…`}
        </button>
        {!isBlank(draft) && (
          <button type="button" id="clear" onClick={() => ask("clear")}>
            Discard…
          </button>
        )}
      </p>
      {asked === "send" && <SendDialog app={app} writing={writing} onClose={close} />}
      {asked === "clear" && <ClearDialog clear={writing.clear} onClose={close} />}
    </Card>
  );
}

export function ClearDialog({ clear, onClose }: { clear: () => void; onClose: () => void }) {
  const begin = () => {
    clear();
    onClose();
  };
  return (
    <Dialog title="Discard this draft?" onClose={onClose}>
      <p>The draft is deleted. Nothing was sent.</p>
      <p class="row end">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="primary" id="clear-now" onClick={begin}>
          Discard
        </button>
      </p>
    </Dialog>
  );
}

function lacks(draft: Draft): string | undefined {
  if (!isAddressed(draft)) return "Choose an audience.";
  if (draft.isLater && !draft.sendAt) return "Enter the send time.";
  return unsaid(draft);
}

/** Counts once more before it is sent. */
function SendDialog({ app, writing, onClose }: { app: AppResponse; writing: Writing<Draft>; onClose: () => void }) {
  const { draft, key, forget } = writing;
  const { go } = useFilters();
  const request = message(draft);
  const counted = useResource(`reach ${key}`, (stop) => dryRun(app.id, request, stop), { everyS: 3_600 });
  const work = async () => {
    const { id } = await send(app.id, request, key);
    forget();
    go(`/messages/${id}`);
  };
  return (
    <Dialog title={draft.isLater ? "Schedule this message?" : "Send this message?"} onClose={onClose}>
      <Shown
        of={counted}
        what="the number of recipients"
        isEmpty={({ audience_estimate: n }) => n === 0}
        empty={<p>The audience is empty.</p>}
      >
        {({ audience_estimate: n, unreachable }) => (
          <TypedForm
            n={n}
            verb={draft.isLater ? "schedule" : "send"}
            button={draft.isLater ? "Schedule" : "Send"}
            id="send-now"
            work={work}
            onLeave={onClose}
          >
            <p id="consequence">
              <strong>{titleOf(draft)}</strong> goes to{" "}
              {audienceWords(request.to as never).replace(/^[A-Z]/, (letter) => letter.toLowerCase())}:{" "}
              {things(n, "active subscription")}, counted just now.
              {unreachable > 0 && ` ${things(unreachable, "listed recipient")} cannot be reached.`}{" "}
              {draft.isLater
                ? `${scheduleWords({ schedule: { at: draft.sendAt, timezone: draft.timezone } }, clock.shown.value, zone.value).join(" ")} Recipients are determined at that time.`
                : SENT_WORDS}
            </p>
          </TypedForm>
        )}
      </Shown>
    </Dialog>
  );
}
