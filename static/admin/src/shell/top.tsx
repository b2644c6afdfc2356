import type { RefObject } from "preact";
import { live } from "../api/live";
import { theme, zone, type Theme } from "../lib/preferences";
import type { Zone } from "../lib/format";
import { clock } from "../lib/clock";
import { fullTime } from "../lib/format";
import { useFilters } from "../lib/url";
import { signOut } from "../session";
import { useAction } from "../ui/action";
import { Time } from "../ui/numbers";
import { Refused } from "../ui/shown";
import { useHere } from "./context";
import { Search } from "./search";

export function Top({ search, onHelp }: { search: RefObject<HTMLInputElement | null>; onHelp: () => void }) {
  const { link } = useFilters();
  return (
    <header class="top">
      <a class="brand" href={link("/")}>
        <img src="/admin/icon.svg" alt="" width="28" height="28" /> <span>Bellwire</span>
      </a>
      <AppSwitcher />
      <Search input={search} />
      <Liveness />
      <Menu onHelp={onHelp} />
    </header>
  );
}

function AppSwitcher() {
  const { apps, app } = useHere();
  const { filters, change } = useFilters();
  return (
    <label class="switcher">
      <span class="hidden">App</span>
      <select
        value={filters.app && app ? app.slug : ""}
        onChange={(event) => change({ app: event.currentTarget.value, after: undefined })}
      >
        <option value="">All apps</option>
        {apps.map(({ id, slug, name }) => (
          <option key={id} value={slug}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

const LIVENESS = {
  connecting: "Connecting…",
  live: "Live",
  resting: "Paused",
  lost: "Connection lost",
  off: "Updated each minute",
} as const;

/** Whether figures come at once, and if not, since when. */
function Liveness() {
  const { state, since } = live.connection.value;
  return (
    <p class="liveness" data-state={state} role="status">
      {LIVENESS[state]}
      {state === "lost" && (
        <>
          {" "}
          since <Time at={new Date(since)} absolute />
        </>
      )}
    </p>
  );
}

function Choice<T extends string>({
  legend,
  name,
  value,
  choices,
  choose,
}: {
  legend: string;
  name: string;
  value: T;
  choices: readonly [T, string][];
  choose: (value: T) => void;
}) {
  return (
    <fieldset>
      <legend>{legend}</legend>
      {choices.map(([choice, words]) => (
        <label key={choice}>
          <input type="radio" name={name} checked={value === choice} onChange={() => choose(choice)} /> {words}
        </label>
      ))}
    </fieldset>
  );
}

const THEMES: readonly [Theme, string][] = [
  ["system", "System"],
  ["light", "Light"],
  ["dark", "Dark"],
];
const ZONES: readonly [Zone, string][] = [
  ["local", "Local"],
  ["UTC", "UTC"],
];

/** Menu of the user, with display settings. */
function Menu({ onHelp }: { onHelp: () => void }) {
  const { session } = useHere();
  const { run, isBusy, problem } = useAction(signOut);
  const name = session.email ?? "Operator’s key";
  return (
    <details
      class="menu"
      name="menu"
      onKeyDown={(event) => event.key === "Escape" && event.currentTarget.removeAttribute("open")}
    >
      <summary aria-label={`You: ${name}`}>
        <span class="initial" aria-hidden="true">
          {name.slice(0, 1).toUpperCase()}
        </span>
      </summary>
      <div class="menu-body">
        <p>
          <strong>{name}</strong>
          <br />
          <span class="fine">
            {session.roles.map(({ role, app }) => `${role}${app ? " of one app" : " for all apps"}`).join(", ") ||
              "no role yet"}
          </span>
        </p>
        <Choice
          legend="Theme"
          name="theme"
          value={theme.value}
          choices={THEMES}
          choose={(chosen) => (theme.value = chosen)}
        />
        <Choice
          legend="Times"
          name="zone"
          value={zone.value}
          choices={ZONES}
          choose={(chosen) => (zone.value = chosen)}
        />
        <p class="fine">
          The time is {fullTime(clock.shown.value, zone.value)}. The session ends <Time at={session.expires_at} /> at
          the latest.
        </p>
        <p class="row">
          <button type="button" onClick={onHelp}>
            Keyboard shortcuts
          </button>
          <button type="button" id="sign-out" disabled={isBusy} onClick={() => run()}>
            Sign out
          </button>
        </p>
        <Refused problem={problem} />
      </div>
    </details>
  );
}
