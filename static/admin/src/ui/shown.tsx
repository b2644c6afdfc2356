import type { ComponentChildren } from "preact";
import { Changed } from "../api/edit";
import { fieldsOf, listed, type Refusal } from "../api/problem";
import { live } from "../api/live";
import type { Resource } from "../lib/resource";
import { clock } from "../lib/clock";
import { attentionWords } from "../lib/format";
import { Conflict } from "./conflict";
import { Time } from "./numbers";

interface Props<T> {
  of: Resource<T>;
  /** Name of the data in sentences: "the lanes". */
  what: string;
  isEmpty?: (value: T) => boolean;
  /** Content without data: the reason, and the way to create some. */
  empty?: ComponentChildren;
  children: (value: T) => ComponentChildren;
}

/** Figures in whichever state they are: loading, empty, stale, failed, forbidden. Old ones are shown dimmed, with their time. */
export function Shown<T>({ of, what, isEmpty, empty, children }: Props<T>) {
  const { known, problem } = { known: of.known.value, problem: of.problem.value };
  if (problem?.isForbidden) return <Forbidden problem={problem} what={what} />;
  if (!known) return problem ? <Failed problem={problem} what={what} retry={of.refresh} /> : <Loading what={what} />;
  const now = clock.shown.value;
  const isLost = live.connection.value.state === "lost" && now.getTime() - known.at.getTime() > 10_000;
  const isOld = problem !== undefined || isLost || of.isOld(now);
  return (
    <div class={isOld ? "shown dimmed" : "shown"} aria-busy={of.isLoading.value && isOld}>
      {isOld && (
        <p class="stale" role="status">
          As of <Time at={known.at} absolute />.{" "}
          {problem ? problem.message : isLost ? "The connection was lost; reconnecting." : "Loading…"}{" "}
          {problem && (
            <button type="button" class="plain" onClick={of.refresh}>
              Try again
            </button>
          )}
        </p>
      )}
      {isEmpty?.(known.value) ? <div class="empty">{empty}</div> : children(known.value)}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <p class="loading" role="status">
      Loading {what}…
    </p>
  );
}

/** Error, with a button to retry. */
export function Failed({ problem, what, retry }: { problem: Refusal; what: string; retry?: () => unknown }) {
  return (
    <div class="failed" role="alert">
      <p>
        <strong>Could not load {what}.</strong> {problem.message}
      </p>
      {problem.requestId && (
        <p class="fine">
          Id of the request in the server’s log: <code>{problem.requestId}</code>.
        </p>
      )}
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Role with permission. */
export function Forbidden({ problem, what }: { problem: Refusal; what: string }) {
  return (
    <div class="forbidden">
      <p>
        Your role does not allow reading {what}. {problem.message}
      </p>
    </div>
  );
}

/** A refusal beside a button. Faults that are shown at their fields, `at`, are only counted. */
export function RefusedFields({ problem, at }: { problem: Refusal | undefined; at: RegExp }) {
  const fields = fieldsOf(problem, at);
  if (fields === undefined) return <Refused problem={problem} />;
  return (
    <p class="refused" role="alert">
      {attentionWords(fields)}
    </p>
  );
}

/** A refusal beside the form that it is about. */
export function Refused({ problem }: { problem: Refusal | undefined }) {
  if (!problem) return null;
  if (problem instanceof Changed) return <Conflict problem={problem} />;
  const faults = listed(problem);
  return (
    <div class="refused" role="alert">
      <p>{problem.message.replace(/^\/([\w/]+): /, (_, pointer: string) => `${pointer.replaceAll("/", ", ")}: `)}</p>
      {faults.length > 0 && (
        <ul>
          {faults.map(({ where, detail }) => (
            <li key={`${where} ${detail}`}>
              {where && <strong>{where}</strong>} {detail}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
