import { notes, rotation, type Note, type Rotation } from "../../lib/attention";
import { clock } from "../../lib/clock";
import { count, percent, things } from "../../lib/format";
import { useResource } from "../../lib/resource";
import { to, useFilters } from "../../lib/url";
import { useHere } from "../../shell/context";
import { Badge } from "../../ui/badge";
import { Card } from "../../ui/card";
import { Count, Time } from "../../ui/numbers";
import { Shown } from "../../ui/shown";
import { loadOfApps, loadTeam, LOOKED_INTO, type OfApp } from "./load";

/** Settings that need an action. */
export function Attention() {
  const { session, apps, app } = useHere();
  const of = app ? [app] : apps;
  const found = useResource(
    `settings attention ${of.map(({ id }) => id).join()} ${session.may_change_team}`,
    async (stop) => {
      const [ofApps, team] = await Promise.all([
        loadOfApps(of, stop),
        session.may_change_team ? loadTeam(stop) : undefined,
      ]);
      return { ofApps, team };
    },
    { everyS: 120 },
  );
  return (
    <Shown of={found} what="open actions">
      {({ ofApps, team }) => (
        <>
          <Rotations ofApps={ofApps} />
          <Notes notes={notes(ofApps, team, clock.shown.value)} isWithTeam={team !== undefined} />
          {of.length > LOOKED_INTO && (
            <p class="fine">
              Shows the first {LOOKED_INTO} of {things(of.length, "app")}. Choose another app above.
            </p>
          )}
        </>
      )}
    </Shown>
  );
}

function Notes({ notes, isWithTeam }: { notes: Note[]; isWithTeam: boolean }) {
  const { filters } = useFilters();
  // What a card above says in full need not be said twice.
  const shown = notes.filter(({ id }) => !id.startsWith("rotation "));
  if (shown.length === 0) {
    return (
      <Card title="Open actions">
        <p>
          <Badge tone="accepted">None</Badge>
        </p>
        <p class="fine">
          This list has keys that expire within 30 days, keys without use for 90 days
          {isWithTeam ? ", and open invitations" : ""}.
        </p>
      </Card>
    );
  }
  return (
    <Card title="Open actions" aside={<span class="fine">{count(shown.length)}</span>}>
      <ul class="notes">
        {shown.map(({ id, tone, words, why, path, app }) => (
          <li key={id} data-row data-tone={tone}>
            <a href={to(path, { app: app ?? filters.app })}>{words}</a>
            <span class="fine">{why}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Rotations({ ofApps }: { ofApps: OfApp[] }) {
  const under = ofApps.flatMap(({ app, vapidKeys }) => {
    const now = rotation(vapidKeys);
    return now ? [{ app, now }] : [];
  });
  if (under.length === 0) return null;
  return (
    <Card title={under.length === 1 ? "VAPID key rotation" : "VAPID key rotations"}>
      {under.map(({ app, now }) => (
        <div key={app.id} class="rotation" data-row>
          <a href={to("/settings/keys", { app: app.slug })}>{app.name}</a>
          <Progress rotation={now} what={app.name} />
        </div>
      ))}
    </Card>
  );
}

/** Progress of the move to a new key, as a bar and in words. */
export function Progress({ rotation: { moved, of, since }, what }: { rotation: Rotation; what: string }) {
  return (
    <div class="progress">
      <progress value={moved} max={of} aria-label={`Moved to the new key of ${what}`} />
      <p>
        <strong class="number">{percent(moved / of)}</strong> of <Count n={of} /> moved{" "}
        <span class="soft">
          · started <Time at={since} />; others move at their browser’s next visit
        </span>
      </p>
    </div>
  );
}
