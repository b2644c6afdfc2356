import { useState } from "preact/hooks";
import { useRoute } from "preact-iso";
import type { AppResponse, FoundDelivery, SubscriptionResponse } from "../../api/types";
import { clock } from "../../lib/clock";
import { deviceWords, lastWords, shortId, stateWords } from "../../lib/deliveries";
import { capital, clockTime, fullTime, things } from "../../lib/format";
import { zone } from "../../lib/preferences";
import { useResource } from "../../lib/resource";
import { mutedWords, quiet, subscriptionWords } from "../../lib/subscribers";
import { consentWords, personPath } from "../../lib/transfers";
import { useFilters } from "../../lib/url";
import { gatewayName } from "../../lib/words";
import { useMay } from "../../shell/context";
import { OfNamedApp } from "../../shell/of-app";
import { Badge } from "../../ui/badge";
import { Card, Fact, Head } from "../../ui/card";
import { Time } from "../../ui/numbers";
import { OneLine } from "../../ui/one-line";
import { Shown } from "../../ui/shown";
import { Table } from "../../ui/table";
import { EraseDialog } from "./erase";
import { loadLatest, loadPerson, type Person } from "./load";
import { TestPushDialog } from "./test-push";
import { Waits } from "./waits";
import "../../ui/filters.css";
import "../messages/messages.css";
import "./subscribers.css";

/** A person, by the site's user id or by one device. */
export interface Who {
  user?: string;
  subscription?: string;
}

/** One person: devices, data and latest deliveries. */
export default function PersonPage() {
  const { params } = useRoute();
  const who: Who = params.user !== undefined ? { user: params.user } : { subscription: params.subscription ?? "" };
  return (
    <OfNamedApp name={params.app}>{(app) => <OnePerson key={JSON.stringify(who)} app={app} who={who} />}</OfNamedApp>
  );
}

function OnePerson({ app, who }: { app: AppResponse; who: Who }) {
  const { link } = useFilters();
  const about = `${app.id} ${who.user ?? who.subscription}`;
  const person = useResource(`person ${about}`, (stop) => loadPerson(app.id, who, stop), { on: ["subscription.gone"] });
  const latest = useResource(`latest ${about}`, (stop) => loadLatest(app.id, who, stop), {
    on: ["outcomes", "message.done"],
  });
  const refresh = () => Promise.all([person.refresh(), latest.refresh()]);
  // Outside of what is shown: after an erasure there is no person, but the dialog still shows the result.
  const [isErasing, erase] = useState<Person>();
  return (
    <>
      <p class="back">
        <a href={link("/subscribers", { app: app.slug })}>Subscribers</a>
      </p>
      <Shown of={person} what="this person">
        {(shown) => (
          <>
            <Head
              title={shown.user ?? "Anonymous"}
              lead={`${shown.user ? capital(things(shown.devices.length, "device")) : "A device without a user"} in ${app.name}`}
            >
              {shown.user !== undefined && shown.devices.length > 0 && (
                <div class="row">
                  <TakeData app={app} user={shown.user} />
                  <EraseButton app={app} onErase={() => erase(shown)} />
                </div>
              )}
            </Head>
            {shown.devices.length === 0 ? (
              <Unknown user={shown.user ?? ""} />
            ) : (
              <Known app={app} person={shown} who={who} onSent={refresh} />
            )}
          </>
        )}
      </Shown>
      <Card title="Latest deliveries">
        <Shown
          of={latest}
          what="the latest deliveries"
          isEmpty={(found) => found.length === 0}
          empty={<p>No recent deliveries. “All deliveries” searches further back.</p>}
        >
          {(found) => <Latest app={app} found={found} />}
        </Shown>
        <p>
          <a href={link("/deliveries", { app: app.slug, who: who.user ?? who.subscription })}>All deliveries</a>
        </p>
      </Card>
      {isErasing && <EraseDialog app={app} person={isErasing} onClose={() => erase(undefined)} onErased={refresh} />}
    </>
  );
}

function Unknown({ user }: { user: string }) {
  return (
    <div class="empty">
      <p>
        No subscription belongs to <code>{user}</code>: the user never allowed notifications, signed out on all devices,
        or was erased.
      </p>
    </div>
  );
}

/** All that is known of them, as a file that they may be given. */
function TakeData({ app, user }: { app: AppResponse; user: string }) {
  const admin = useMay("admin", app.id);
  if (!admin.may) return <p class="fine">Your role does not allow exporting personal data. {admin.why}</p>;
  return (
    <a class="button" id="take-data" href={personPath(app.id, user)} download={`${app.slug}-person.json`}>
      Export data
    </a>
  );
}

function EraseButton({ app, onErase }: { app: AppResponse; onErase: () => void }) {
  const operator = useMay("operator", app.id);
  if (!operator.may) return <p class="fine">Your role does not allow erasing people. {operator.why}</p>;
  return (
    <button type="button" id="erase" onClick={onErase}>
      Erase this person…
    </button>
  );
}

function Known({ app, person, who, onSent }: { app: AppResponse; person: Person; who: Who; onSent: () => unknown }) {
  const { link } = useFilters();
  const viewer = useMay("viewer", app.id);
  const { devices, calendar, user } = person;
  // Only active browsers have entries of their own.
  const mayWait = who.user !== undefined || devices.some(({ state }) => state === "active");
  const zones = devices.flatMap(({ timezone, state }) => (timezone && state === "active" ? [timezone] : []));
  return (
    <>
      <p id="quiet">{quiet(calendar, zones[0], clock.shown.value)}</p>
      {who.subscription && user !== undefined && (
        <p>
          A device of <a href={link(`/subscribers/${app.slug}/users/${encodeURIComponent(user)}`)}>{user}</a>, who may
          have other devices.
        </p>
      )}
      {!person.isAll && !who.subscription && (
        <p class="fine">Only the newest {things(devices.length, "device")} are shown.</p>
      )}
      <div class="grid devices">
        {devices.map((device) => (
          <Device key={device.id} app={app} device={device} onSent={onSent} />
        ))}
      </div>
      {viewer.may && mayWait && <Waits app={app} who={who} />}
    </>
  );
}

function Device({ app, device, onSent }: { app: AppResponse; device: SubscriptionResponse; onSent: () => unknown }) {
  const { link } = useFilters();
  const [isTesting, test] = useState(false);
  const sender = useMay("sender", app.id);
  const { word, tone, why } = subscriptionWords(device.state);
  const consent = consentWords(device.consent, (at) => fullTime(new Date(at), zone.value));
  const now = clock.shown.value;
  const muted = mutedWords(device.muted, now, (at) => clockTime(at, now, zone.value));
  return (
    <Card title={capital(deviceWords(device.gateway))} aside={<Badge tone={tone}>{word}</Badge>}>
      {device.state !== "active" && (
        <p class="fine">
          {why} {device.ended_at && <Time at={device.ended_at} />}
        </p>
      )}
      {muted && <p data-muted>{muted}</p>}
      <dl class="facts pairs">
        <Fact title="Last seen">
          <Time at={device.last_seen} />
        </Fact>
        <Fact title="First seen">
          <Time at={device.created_at} absolute />
        </Fact>
        {consent && <Fact title="Consented">{consent}</Fact>}
        <Fact title="Language">{device.locale ?? "unknown"}</Fact>
        <Fact title="Time zone">{device.timezone ?? "unknown"}</Fact>
        <Fact title="Topics">
          <Chips words={device.topics} page={(topic) => link("/subscribers", { app: app.slug, topic })} />
        </Fact>
        <Fact title="Tags">
          <Chips words={device.tags} page={(tag) => link("/subscribers", { app: app.slug, tag })} />
        </Fact>
        <Fact title="Attributes">
          <Attributes of={device.attributes} />
        </Fact>
        <Fact title="Id">
          <a href={link("/deliveries", { app: app.slug, who: device.id })}>{shortId(device.id)}</a>
        </Fact>
      </dl>
      {device.state === "active" && sender.may && (
        <p>
          <button type="button" data-do="test" onClick={() => test(true)}>
            Test push…
          </button>
        </p>
      )}
      {device.state === "active" && !sender.may && (
        <p class="fine">Your role does not allow sending test pushes. {sender.why}</p>
      )}
      {isTesting && <TestPushDialog app={app} device={device} onClose={() => test(false)} onSent={onSent} />}
    </Card>
  );
}

function Chips({ words, page }: { words: string[]; page: (word: string) => string }) {
  if (words.length === 0) return <>none</>;
  return (
    <ul class="chips">
      {words.map((word) => (
        <li key={word}>
          <a href={page(word)}>{word}</a>
        </li>
      ))}
    </ul>
  );
}

function Attributes({ of }: { of: object }) {
  const entries = Object.entries(of);
  if (entries.length === 0) return <>none</>;
  return (
    <ul>
      {entries.map(([name, value]) => (
        <li key={name}>
          {name} <code>{String(value)}</code>
        </li>
      ))}
    </ul>
  );
}

function Latest({ app, found }: { app: AppResponse; found: FoundDelivery[] }) {
  const { link } = useFilters();
  return (
    <Table
      caption="Latest deliveries"
      rows={found}
      id={({ message, subscription }) => `${message} ${subscription}`}
      columns={[
        {
          head: "Sent",
          cell: ({ message, subscription, accepted_at }) => (
            <a href={link(`/deliveries/${app.slug}/${message}/${subscription}`)}>
              <Time at={accepted_at} absolute />
            </a>
          ),
        },
        {
          head: "State",
          cell: (row) => (
            <>
              <Badge tone={stateWords(row.state).tone}>{stateWords(row.state).word}</Badge>
              <div class="fine">
                <OneLine text={lastWords(row, clock.shown.value, zone.value)} />
              </div>
            </>
          ),
        },
        { head: "Device", cell: ({ gateway }) => (gateway ? gatewayName(gateway) : "deleted") },
        { head: "Tier", isExtra: true, cell: ({ tier }) => tier },
        {
          head: "Message",
          isExtra: true,
          cell: ({ message, title }) => <a href={link(`/messages/${message}`)}>{title ?? shortId(message)}</a>,
        },
      ]}
    />
  );
}
