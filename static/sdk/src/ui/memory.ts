import { clock } from "../shared/clock";
import type { Question } from "./funnel";

/** A visit ends after this time without a page. */
const VISIT_MS = 1_800_000;

/** Record of one app in this browser's storage. */
interface Stored {
  visits: number;
  /** Time of the last page. */
  last: number;
  /** Random number that decides whether the prompt may ask. */
  luck: number;
  /** Random number that selects the variant, independent of `luck`. */
  draw: number;
  until: number;
  /** Number of the visit in which the prompt was shown last. */
  shown: number;
  /** Question that was reported in that visit. */
  question: Question | null;
  /** Question with a yes whose subscription is not complete. */
  asked: Question | null;
  /** Displayed notifications that the person saw in the bell. */
  read: string[];
}

/** Storage of the elements, without cookies. A browser that stores nothing gets a record for the page. */
export class Memory {
  readonly #key: string;
  #stored: Stored = {
    visits: 0,
    last: 0,
    luck: Math.random(),
    draw: Math.random(),
    until: 0,
    shown: 0,
    question: null,
    asked: null,
    read: [],
  };

  constructor(app: string) {
    this.#key = `bellwire ${app}`;
    this.load();
    const now = clock.now();
    const { last, visits } = this.#stored;
    this.save({ last: now, visits: now - last > VISIT_MS ? visits + 1 : visits });
  }

  /** Reads again: other tabs write, too. */
  load(): Readonly<Stored> {
    try {
      Object.assign(this.#stored, JSON.parse(localStorage.getItem(this.#key) ?? "{}"));
    } catch {
      // Storage is blocked, or someone else's value has this key.
    }
    return this.#stored;
  }

  save(change: Partial<Stored>): void {
    Object.assign(this.load(), change);
    try {
      localStorage.setItem(this.#key, JSON.stringify(this.#stored));
    } catch {
      // Blocked or full.
    }
  }
}
