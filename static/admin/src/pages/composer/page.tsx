import type { AppResponse, MessageRequest, MessageContentResponse } from "../../api/types";
import { BLANK, isAddressed, like, message, recipients, titled, type Draft } from "../../lib/draft";
import { useResource } from "../../lib/resource";
import { useFilters, type Filters } from "../../lib/url";
import { useHere, useMay } from "../../shell/context";
import { Head } from "../../ui/card";
import { ChooseApp } from "../../shell/choose-app";
import { Shown } from "../../ui/shown";
import { loadSaid } from "../messages/load";
import { AudienceCard } from "./audience";
import { ContentCard } from "./content";
import { useCheck } from "./load";
import { Previews } from "./previews";
import { SendCard } from "./send";
import { useDraft } from "./store";
import { useSight } from "./template";
import { TimingCard } from "./timing";
import { TryCard } from "./try";
import "./composer.css";

/** Editor of a message, with previews and the audience. */
export default function Composer() {
  const { app, apps } = useHere();
  const { link } = useFilters();
  return (
    <>
      <p class="back">
        <a href={link("/messages")}>Messages</a>
      </p>
      <Head title="New message" lead="Audience, content and schedule, with previews of five platforms." />
      {app ? <OfApp key={app.id} app={app} /> : <ChooseApp apps={apps} what="Each message belongs to an app." />}
    </>
  );
}

function OfApp({ app }: { app: AppResponse }) {
  const sender = useMay("sender", app.id);
  const { filters } = useFilters();
  if (!sender.may) return <p class="refused">Your role does not allow sending messages. {sender.why}</p>;
  return filters.like ? <LikeAnother app={app} id={filters.like} /> : <Form app={app} begin={begun(filters)} />;
}

/** Initial draft of a link from a segment, topic or template. */
function begun({ segment, topic, template }: Filters): Draft | undefined {
  if (!segment && !topic && !template) return undefined;
  const audience = segment ? "segment" : topic ? "topic" : "all";
  return {
    ...BLANK,
    audience,
    segment: segment ?? "",
    topic: topic ?? "",
    ...(template ? { says: "template", template } : {}),
  };
}

/** Starts with the content of another message. */
function LikeAnother({ app, id }: { app: AppResponse; id: string }) {
  const said = useResource(`said ${id}`, (stop) => loadSaid(app.id, id, stop), { everyS: 3_600 });
  return (
    <Shown of={said} what="the message to copy">
      {(said) => <FormLike app={app} said={said} />}
    </Shown>
  );
}

function FormLike({ app, said: { content } }: { app: AppResponse; said: MessageContentResponse }) {
  if (!content)
    return <p class="refused">The content of that message was deleted, or your role does not allow reading it.</p>;
  return <Form app={app} begin={like(content)} />;
}

/** Draft for checks before it is complete: many authors write the title last, and choose the audience late. */
function checkable(draft: Draft): MessageRequest {
  return { ...titled(message(draft)), to: isAddressed(draft) ? recipients(draft) : { all: true } };
}

function Form({ app, begin }: { app: AppResponse; begin: Draft | undefined }) {
  const { session } = useHere();
  const writing = useDraft(`bellwire.draft.${app.id}`, session.email ?? "an operator’s key", BLANK, begin);
  const { draft, change } = writing;
  const check = useCheck(app.id, checkable(draft));
  const sight = useSight(app.id, draft);
  const part = { app, draft, change, check };
  return (
    <div class="composer">
      <div class="draft">
        <AudienceCard {...part} />
        <ContentCard {...part} sight={sight} to={recipients(draft)} />
        <TimingCard {...part} />
        <TryCard app={app} draft={draft} />
        <SendCard app={app} writing={writing} check={check} />
      </div>
      <Previews said={sight.said} site={app.origins[0]} name={app.name} />
    </div>
  );
}
