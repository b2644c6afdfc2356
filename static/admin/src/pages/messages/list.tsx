import type { AppResponse, MessageResponse } from "../../api/types";
import { useState } from "preact/hooks";
import { count, percent, things } from "../../lib/format";
import {
  audienceWords,
  grouped,
  outOf,
  parts,
  standingOf,
  STATES,
  STATE_LOOKS,
  sumsOf,
  TIERS,
  TIER_WORDS,
  titleWords,
  wholeOf,
  type Standing,
} from "../../lib/messages";
import { useResource } from "../../lib/resource";
import { useFilters, type Filters } from "../../lib/url";
import { useHere, useMay } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Head } from "../../ui/card";
import { Export } from "../../ui/export";
import { ChooseApp } from "../../shell/choose-app";
import { useKey } from "../../ui/key";
import { Count, Time } from "../../ui/numbers";
import { PartsBar } from "../../ui/parts";
import { Select } from "../../ui/select";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { Paging } from "../../ui/paging";
import { loadMessages, loadTopics, MOVES, type MessagePage } from "./load";
import "./messages.css";

/** List of messages, newest first. */
export default function Messages() {
  const { app, apps } = useHere();
  return (
    <>
      <Head title="Messages" lead="Sent and scheduled messages with progress and results.">
        {app && (
          <div class="row">
            <ExportMessages app={app} />
            <Write app={app} />
          </div>
        )}
      </Head>
      {app ? <OfApp key={app.id} app={app} /> : <ChooseApp apps={apps} what="Each message belongs to an app." />}
    </>
  );
}

function ExportMessages({ app }: { app: AppResponse }) {
  const { filters } = useFilters();
  return (
    <Export
      name={`${app.slug}-messages`}
      page={async (after, limit, stop) => {
        const { messages, next } = await loadMessages(app.id, { ...filters, after }, stop, limit);
        return { rows: messages, next };
      }}
    />
  );
}

function Write({ app }: { app: AppResponse }) {
  const { go, link } = useFilters();
  const sender = useMay("sender", app.id);
  useKey("n", sender.may ? () => go("/messages/new") : undefined);
  if (!sender.may) return <p class="fine">Your role does not allow sending messages. {sender.why}</p>;
  return (
    <a class="button primary" id="new-message" href={link("/messages/new")}>
      New message <kbd>n</kbd>
    </a>
  );
}

function OfApp({ app }: { app: AppResponse }) {
  const { filters, change, link } = useFilters();
  const { state, tier, topic, after } = filters;
  const page = useResource(
    `messages ${app.id} ${[state, tier, topic, after].join(" ")}`,
    (stop) => loadMessages(app.id, filters, stop),
    { on: MOVES },
  );
  const topics = useResource(`topics ${app.id}`, (stop) => loadTopics(app.id, stop), { everyS: 300 });
  const known = page.known.value?.value;
  const narrow = (filter: Filters) => change({ ...filter, after: undefined });
  const names = new Set([...(topics.known.value?.value ?? []), ...(topic ? [topic] : [])]);
  return (
    <>
      <div class="filters" role="group" aria-label="Filters">
        <Select
          label="State"
          value={state}
          choices={STATES.map((state) => [state, STATE_LOOKS[state].word])}
          choose={(state) => narrow({ state })}
        />
        <Select
          label="Tier"
          value={tier}
          choices={TIERS.map((tier) => [tier, TIER_WORDS[tier]])}
          choose={(tier) => narrow({ tier })}
        />
        {names.size > 0 && (
          <Select
            label="Topic"
            value={topic}
            choices={[...names].map((name) => [name, name])}
            choose={(topic) => narrow({ topic })}
          />
        )}
      </div>
      <Shown
        of={page}
        what="messages"
        isEmpty={({ messages }) => messages.length === 0}
        empty={<None app={app} page={known} />}
      >
        {({ messages }) => <MessageTable messages={messages} />}
      </Shown>
      <Paging
        after={after}
        sides={known}
        to={(after) => link("/messages", { state, tier, topic, after })}
        older={known?.messages.length === 0 ? "Search older messages" : undefined}
      />
    </>
  );
}

/** Nothing like that; nothing like that so far; or nothing at all, and how that changes. */
function None({ app, page }: { app: AppResponse; page: MessagePage | undefined }) {
  const { filters, link } = useFilters();
  if (page?.next) return <p>None of the 5,000 latest messages matches. There are older messages.</p>;
  if (filters.state || filters.tier || filters.topic || filters.after) {
    return (
      <p>
        No {filters.after ? "older " : ""}message matches. <a href={link("/messages")}>Show all</a>
      </p>
    );
  }
  return (
    <>
      <p>Nothing was sent yet. Create a message here, or send one with the command line:</p>
      <pre>
        <code>{`bellwire send --app ${app.slug} --all --title Hello --body "It works"`}</code>
      </pre>
    </>
  );
}

/** Row of the table: a group, or a message of an open group. */
interface Row {
  id: string;
  messages: MessageResponse[];
  /** Whether its group is above it. */
  isWithin: boolean;
  isOpen: boolean;
}

const rowsOf = (messages: MessageResponse[], open: ReadonlySet<string>): Row[] =>
  grouped(messages).flatMap(({ id, messages }) => {
    const isOpen = messages.length > 1 && open.has(id);
    const members = isOpen
      ? messages.map((message) => ({ id: message.id, messages: [message], isWithin: true, isOpen: false }))
      : [];
    return [{ id: messages.length > 1 ? `group ${id}` : id, messages, isWithin: false, isOpen }, ...members];
  });

function MessageTable({ messages }: { messages: MessageResponse[] }) {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const toggle = (id: string) =>
    setOpen((before) =>
      before.has(id) ? new Set([...before].filter((other) => other !== id)) : new Set([...before, id]),
    );
  const number = (n: number | null) => (n === null ? <span class="soft">–</span> : <Count n={n} />);
  return (
    <Table
      caption="Messages"
      rows={rowsOf(messages, open)}
      id={({ id }) => id}
      look={({ messages, isWithin }) => `stacked ${messages.length === 1 ? "linked" : ""} ${isWithin ? "within" : ""}`}
      columns={[
        {
          head: "Message",
          cell: (row) =>
            row.messages.length > 1 ? <GroupHead row={row} toggle={toggle} /> : <MessageHead row={row} />,
        },
        { head: "State", cell: ({ messages }) => <Progress messages={messages} /> },
        { head: "Targeted", isNumber: true, isExtra: true, cell: ({ messages }) => number(sumsOf(messages).targeted) },
        { head: "Delivered", isNumber: true, cell: ({ messages }) => number(sumsOf(messages).accepted) },
        { head: "Shown", isNumber: true, isExtra: true, cell: ({ messages }) => number(sumsOf(messages).displayed) },
        { head: "Clicked", isNumber: true, isExtra: true, cell: ({ messages }) => number(sumsOf(messages).clicked) },
        {
          head: "CTR, of accepted",
          isNumber: true,
          cell: ({ messages }) => {
            const { ctr } = sumsOf(messages);
            return ctr === null ? <span class="soft">–</span> : percent(ctr);
          },
        },
      ]}
    />
  );
}

function MessageHead({ row: { messages, isWithin } }: { row: Row }) {
  const { link } = useFilters();
  const [message] = messages;
  if (!message) return null;
  return (
    <>
      <a class="title" href={link(`/messages/${message.id}`)}>
        {isWithin ? audienceWords(message.to) : titleWords(message)}
      </a>
      <br />
      <span class="fine">
        {message.title && !isWithin && `${audienceWords(message.to)}, `}
        <span class="keep">
          <Time at={message.accepted_at} />
        </span>
        {message.replay_of && ", resent"}
        {message.tier !== "promotional" && !isWithin && `, ${TIER_WORDS[message.tier].toLowerCase()}`}
      </span>
    </>
  );
}

/** Repeated single sends: one row, which opens to all of them. */
function GroupHead({ row: { id, messages, isOpen }, toggle }: { row: Row; toggle: (id: string) => void }) {
  const [newest, oldest] = [messages[0], messages.at(-1)];
  if (!newest || !oldest) return null;
  const kind = "users" in newest.to ? "single user" : "single subscription";
  return (
    <>
      <button
        type="button"
        class="plain title"
        aria-expanded={isOpen}
        onClick={() => toggle(id.slice("group ".length))}
      >
        {newest.title ?? `To ${kind}s`}
      </button>
      <br />
      <span class="fine">
        {things(messages.length, `message to a ${kind}`, `messages to ${kind}s`)}, <Time at={oldest.accepted_at} /> to{" "}
        <Time at={newest.accepted_at} />
      </span>
    </>
  );
}

function Progress({ messages }: { messages: MessageResponse[] }) {
  const it = standingOf(messages);
  return (
    <div class="going">
      <Badge tone={STATE_LOOKS[it.state].tone}>{STATE_LOOKS[it.state].word}</Badge>
      <PartsBar parts={parts(it)} slim />
      <span class="fine">{brief(it)}</span>
    </div>
  );
}

/** State, beside a bar. */
function brief(it: Standing): string {
  const whole = wholeOf(it);
  if (whole === 0) return "no recipients";
  const [only] = parts(it);
  if (whole === 1 && only) return only.word.toLowerCase();
  if (it.state === "done")
    return it.ended.accepted === whole
      ? `all ${count(whole)} accepted`
      : `${count(it.ended.accepted)} of ${count(whole)} accepted`;
  return `${outOf(it)} done`;
}
