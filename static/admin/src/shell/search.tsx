import type { RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { clock } from "../lib/clock";
import { useAsked } from "../lib/asked";
import { refusal, type Refusal } from "../api/problem";
import { APPS_MAX, byId, fixed, keyOf, ROWS_MAX, search, stepped, type Entry } from "../lib/search";
import { useFilters } from "../lib/url";
import { useHere, useMay } from "./context";

/** Code of the search, loaded with the first one. */
const loader = () => import("./search-load");

/** Time after which the objects are read again. */
const OLD_AFTER_MS = 60_000;
/** Longest id of a user. */
const USER_MAX = 255;

interface Objects {
  of: string;
  at: number;
  entries: Entry[];
  problem?: Refusal;
}

/** Objects of the apps, read when the field gets the focus. */
function useObjects(isActive: boolean): { entries: Entry[]; isLoading: boolean; problem: Refusal | undefined } {
  const { apps, app } = useHere();
  const [known, setKnown] = useState<Objects>();
  const searched = app ? [app] : apps;
  const of = searched.map(({ id }) => id).join();
  useEffect(() => {
    const now = clock.now().getTime();
    if (!isActive || (known?.of === of && now - known.at < OLD_AFTER_MS)) return;
    const stop = new AbortController();
    loader()
      .then(({ loadObjects }) => loadObjects(searched, stop.signal))
      .then((entries) => stop.signal.aborted || setKnown({ of, at: now, entries }))
      .catch((thrown) => stop.signal.aborted || setKnown({ of, at: now, entries: [], problem: refusal(thrown) }));
    return () => stop.abort();
  }, [isActive, of]);
  const isKnown = known?.of === of;
  return {
    entries: isKnown ? known.entries : [],
    isLoading: isActive && !isKnown,
    problem: isKnown ? known.problem : undefined,
  };
}

/** Search field with its results. Arrow keys choose one, Enter opens it. */
export function Search({ input }: { input: RefObject<HTMLInputElement | null> }) {
  const { apps, app } = useHere();
  const { go } = useFilters();
  const [text, setText] = useState("");
  const [isOpen, open] = useState(false);
  const [chosen, setChosen] = useState<string>();
  const place = useRef<HTMLFormElement>(null);
  const objects = useObjects(isOpen);
  const name = text.trim();
  const searched = app ? [app] : apps;
  const user = useAsked(
    isOpen && name !== "" && name.length <= USER_MAX ? [name, ...searched.map(({ id }) => id)] : undefined,
    async (_, stop) => (await loader()).loadUsers(searched, name, stop),
  );
  const isCurrent = !user.isOld && !user.problem;
  const still = useMemo(() => fixed(apps), [apps]);
  const found = useMemo(
    () => search([...byId(name), ...(isCurrent ? (user.shown ?? []) : []), ...still, ...objects.entries], name),
    [name, user.shown, isCurrent, still, objects.entries],
  );
  const at = chosen === undefined ? -1 : found.findIndex((entry) => keyOf(entry) === chosen);
  const close = () => {
    open(false);
    setChosen(undefined);
  };
  const choose = (entry: Entry) => {
    setText("");
    close();
    input.current?.blur();
    go(entry.path, entry.filters);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (by !== 0) {
      event.preventDefault();
      open(true);
      setChosen((chosen) => stepped(found, chosen, by));
    }
    if (event.key === "Escape") {
      close();
      input.current?.blur();
    }
  };
  const isShown = isOpen && name !== "";
  return (
    <form
      class="search"
      role="search"
      ref={place}
      onSubmit={(event) => {
        event.preventDefault();
        const entry = found[Math.max(0, at)];
        if (entry) choose(entry);
      }}
      onFocusOut={(event) => !place.current?.contains(event.relatedTarget as Node | null) && close()}
    >
      <label>
        <span class="hidden">
          Search users, titles, campaigns, segments, templates, topics, apps, ids, settings and pages
        </span>
        <input
          ref={input}
          type="text"
          name="search"
          role="combobox"
          aria-expanded={isShown}
          aria-controls="found"
          aria-autocomplete="list"
          {...(isShown && at >= 0 ? { "aria-activedescendant": `found-${at}` } : {})}
          placeholder="Search  /"
          autocomplete="off"
          maxLength={300}
          value={text}
          onFocus={() => open(true)}
          onInput={(event) => {
            setText(event.currentTarget.value);
            open(true);
            setChosen(undefined);
          }}
          onKeyDown={onKeyDown}
        />
      </label>
      <div class="found" hidden={!isShown}>
        <ul role="listbox" id="found" aria-label="Results">
          {isShown &&
            found.map((entry, n) => (
              <Result
                key={keyOf(entry)}
                entry={entry}
                n={n}
                isChosen={n === at}
                choose={choose}
                isFirst={found[n - 1]?.kind !== entry.kind}
              />
            ))}
        </ul>
        <p class="fine" role="status">
          {isShown && (
            <Extent
              isLoading={objects.isLoading || user.isOld}
              n={found.length}
              name={name}
              problem={objects.problem}
            />
          )}
        </p>
      </div>
    </form>
  );
}

interface ResultProps {
  entry: Entry;
  n: number;
  isChosen: boolean;
  /** Whether it begins its kind. */
  isFirst: boolean;
  choose: (entry: Entry) => void;
}

function Result({ entry, n, isChosen, isFirst, choose }: ResultProps) {
  const place = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (isChosen) place.current?.scrollIntoView({ block: "nearest" });
  }, [isChosen]);
  // The field keeps the focus, so that the list stays open for the click.
  return (
    <li
      role="option"
      id={`found-${n}`}
      ref={place}
      aria-selected={isChosen}
      data-first={isFirst ? "" : undefined}
      onMouseDown={(event) => event.preventDefault()}
      onClick={() => choose(entry)}
    >
      <span class="kind">{isFirst ? entry.kind : <span class="hidden">{entry.kind}</span>}</span>
      <span>
        {entry.title} {entry.about && <span class="fine">{entry.about}</span>}
      </span>
    </li>
  );
}

/** Extent of the search. */
function Extent({
  isLoading,
  n,
  name,
  problem,
}: {
  isLoading: boolean;
  n: number;
  name: string;
  problem: Refusal | undefined;
}) {
  const { apps, app } = useHere();
  const sender = useMay("sender", app?.id ?? null);
  const whole = `Searched the newest ${ROWS_MAX} messages, campaigns, segments, templates and topics${!app && apps.length > APPS_MAX ? ` of the first ${APPS_MAX} apps; choose an app to search it` : ""}. Users are found by their whole id.`;
  const titles = sender.may
    ? " Titles for ten subscriptions or fewer are not shown."
    : " Titles are visible to the role sender.";
  return (
    <>
      {n === 0 && !isLoading && `Nothing matches “${name}”. `}
      {problem ? problem.message : isLoading ? "Searching…" : whole + titles}
    </>
  );
}
