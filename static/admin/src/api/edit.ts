/** Changes that are made only while nobody else has made one: `ETag`, `If-Match` and `If-None-Match` (RFC 9110 section 13). */
import { Refusal } from "./problem";

/** By which tag the server knows what it has told. */
const tags = new WeakMap<object, string>();

export function keepTag(told: unknown, headers: Headers): void {
  const tag = headers.get("etag");
  if (tag && told && typeof told === "object") tags.set(told, tag);
}

export const tagOf = (told: object): string | undefined => tags.get(told);

/** The same for what was made of something that the server has told. */
export function alike<T extends object>(made: T, told: object): T {
  const tag = tagOf(told);
  if (tag) tags.set(made, tag);
  return made;
}

/** What has to hold for a change to be made, as headers. */
export interface Condition {
  "If-Match"?: string;
  "If-None-Match"?: string;
}

/** What somebody else wrote to one member. Undefined: they took it away. */
export interface Difference {
  member: string;
  theirs: unknown;
}

/** Somebody else has changed what was about to be changed, so nothing was. */
export class Changed extends Refusal {
  /** Asks for the same change once more, over theirs. Set by whoever asked for it. */
  again?: () => unknown;

  constructor(
    readonly differs: readonly Difference[],
    /** What the button says that does it all the same. */
    readonly verb: string,
    /** From now on what they wrote is known: the next change replaces it. */
    readonly accept: () => void,
    /** Begins again with what they wrote. */
    readonly reload: () => unknown,
  ) {
    super(412, { code: "precondition_failed", detail: "Somebody else has changed this since you began. Nothing of yours was saved." });
  }
}

export interface Edited<T> {
  /** As it was when somebody began to change it. Undefined: they think that there is none. */
  begun: T | undefined;
  load: (signal: AbortSignal) => Promise<T>;
  /** Of it, what a change replaces. */
  written: (it: T) => object;
  reload: () => unknown;
  verb?: string;
  /** What is shown of it changes by itself, or comes without a tag: it is read anew before each change. */
  isLive?: boolean;
}

/** A change meets this many others that leave alone what it replaces, before it is given up. */
const TURNS = 4;

/** One thing that somebody is about to change. */
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
    const { load, written, verb = "Overwrite theirs", reload } = this.about;
    const theirs = await load(new AbortController().signal);
    const differs = differences(this.#seen && written(this.#seen), written(theirs));
    if (differs.length > 0) throw new Changed(differs, verb, () => void (this.#seen = theirs), reload);
    this.#seen = theirs;
  }
}

/** Members of which theirs differ. Null and what is not there are the same. */
export function differences(ours: object | undefined, theirs: object): Difference[] {
  const [before, after] = [Object.entries(ours ?? {}), Object.entries(theirs)].map((entries) => new Map(entries.filter(([, value]) => value != null)));
  const members = new Set([...(before?.keys() ?? []), ...(after?.keys() ?? [])]);
  return [...members].filter((member) => canonical(before?.get(member)) !== canonical(after?.get(member))).map((member) => ({ member, theirs: after?.get(member) }));
}

/** As JSON in which the order of members makes no difference. */
const canonical = (value: unknown): string | undefined =>
  JSON.stringify(value, (_, it: unknown) => (it && typeof it === "object" && !Array.isArray(it) ? Object.fromEntries(Object.entries(it).sort(([a], [b]) => (a < b ? -1 : 1))) : it));
