/** Conditional changes: `ETag`, `If-Match` and `If-None-Match` (RFC 9110 section 13) prevent overwriting another user's change. */
import { Refusal } from "./problem";

/** `ETag` of a response. */
const tags = new WeakMap<object, string>();

export function keepTag(told: unknown, headers: Headers): void {
  const tag = headers.get("etag");
  if (tag && told && typeof told === "object") tags.set(told, tag);
}

export const tagOf = (told: object): string | undefined => tags.get(told);

/** Copies the tag to a value derived from a response. */
export function alike<T extends object>(made: T, told: object): T {
  const tag = tagOf(told);
  if (tag) tags.set(made, tag);
  return made;
}

/** Condition of a change, as request headers. */
export interface Condition {
  "If-Match"?: string;
  "If-None-Match"?: string;
}

/** Value of one member in the other user's version. Undefined: removed. */
export interface Difference {
  member: string;
  theirs: unknown;
}

/** Another user has changed the resource, so nothing was saved. */
export class Changed extends Refusal {
  /** Repeats the request over the other user's version. Set by the caller. */
  again?: () => unknown;

  constructor(
    readonly differs: readonly Difference[],
    /** Label of the button that overwrites the other version. */
    readonly verb: string,
    /** From now on what they wrote is known: the next change replaces it. */
    readonly accept: () => void,
    /** Begins again with what they wrote. */
    readonly reload: () => unknown,
  ) {
    super(412, {
      code: "precondition_failed",
      detail: "Another user has changed this since you started. Your changes were not saved.",
    });
  }
}

export interface Edited<T> {
  /** Version at the start of the edit. Undefined: the resource did not exist. */
  begun: T | undefined;
  load: (signal: AbortSignal) => Promise<T>;
  /** Of it, what a change replaces. */
  written: (it: T) => object;
  reload: () => unknown;
  verb?: string;
  /** The displayed data changes by itself, or has no tag: it is read again before each change. */
  isLive?: boolean;
}

/** A change meets this many others that leave alone what it replaces, before it is given up. */
const TURNS = 4;

/** One resource that a user is editing. */
export class Edit<T extends object> {
  #seen: T | undefined;

  constructor(public about: Edited<T>) {
    this.#seen = about.begun;
  }

  /** Makes a change under the condition that it is still as they saw it. Throws `Changed` if it is not. */
  async save<R>(change: (condition: Condition) => Promise<R>): Promise<R> {
    if (this.about.isLive) await this.#look();
    for (let turn = 1; ; turn += 1) {
      try {
        return await change(this.#condition());
      } catch (thrown) {
        if (!(thrown instanceof Refusal) || thrown.code !== "precondition_failed" || turn === TURNS) throw thrown;
        await this.#look();
      }
    }
  }

  #condition(): Condition {
    if (!this.#seen) return { "If-None-Match": "*" };
    const tag = tagOf(this.#seen);
    return tag ? { "If-Match": tag } : {};
  }

  /** Reads what there is now, and stops if it differs in what would be replaced. */
  async #look(): Promise<void> {
    const { load, written, verb = "Overwrite their version", reload } = this.about;
    const theirs = await load(new AbortController().signal);
    const differs = differences(this.#seen && written(this.#seen), written(theirs));
    if (differs.length > 0) throw new Changed(differs, verb, () => void (this.#seen = theirs), reload);
    this.#seen = theirs;
  }
}

/** Members of which theirs differ. Null and what is not there are the same. */
export function differences(ours: object | undefined, theirs: object): Difference[] {
  const [before, after] = [Object.entries(ours ?? {}), Object.entries(theirs)].map(
    (entries) => new Map(entries.filter(([, value]) => value != null)),
  );
  const members = new Set([...(before?.keys() ?? []), ...(after?.keys() ?? [])]);
  return [...members]
    .filter((member) => canonical(before?.get(member)) !== canonical(after?.get(member)))
    .map((member) => ({ member, theirs: after?.get(member) }));
}

/** As JSON in which the order of members makes no difference. */
const canonical = (value: unknown): string | undefined =>
  JSON.stringify(value, (_, it: unknown) =>
    it && typeof it === "object" && !Array.isArray(it)
      ? Object.fromEntries(Object.entries(it).sort(([a], [b]) => (a < b ? -1 : 1)))
      : it,
  );
