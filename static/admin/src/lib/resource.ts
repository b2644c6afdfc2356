import { signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { live, type Kind } from "../api/live";
import { refusal, type Refusal } from "../api/problem";

/** Figures, and when they were told. */
export interface Known<T> {
  value: T;
  at: Date;
}

/** Causes of a reload beside `refresh()`. */
export interface Watch {
  /** Whenever something of these kinds happens. */
  on?: readonly Kind[];
  /** After so many seconds in any case; 60 by default. */
  everyS?: number;
}

/** Minimum time between reloads: several events within it cause one. */
const SETTLE_MS = 2_000;

/** Figures that are asked for often are called old after this, in any case. */
const OLD_AFTER_MS = 150_000;

/** Last known data by key, shown dimmed while a page reloads. */
const figures = new Map<string, Known<unknown>>();
export const forgetFigures = (): void => figures.clear();

/** Data that is reloaded while it is visible. */
export class Resource<T> {
  readonly known = signal<Known<T> | undefined>(undefined);
  readonly problem = signal<Refusal | undefined>(undefined);
  readonly isLoading = signal(false);
  #asking: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isDue = false;
  #lastAsked = -Infinity;

  constructor(
    readonly key: string,
    private readonly load: (stop: AbortSignal) => Promise<T>,
    private readonly everyS = 60,
  ) {
    this.known.value = figures.get(key) as Known<T> | undefined;
  }

  /** Whether what is known is older than it should be: by then it was to be asked for twice more. */
  isOld(now: Date): boolean {
    const at = this.known.value?.at;
    return at !== undefined && now.getTime() - at.getTime() > Math.max(OLD_AFTER_MS, 2_500 * this.everyS);
  }

  /** Reloads now. The response of an earlier request is ignored. */
  readonly refresh = async (): Promise<void> => {
    this.#asking?.abort();
    const asking = new AbortController();
    this.#asking = asking;
    this.#isDue = false;
    this.#lastAsked = Date.now();
    this.isLoading.value = true;
    try {
      const value = await this.load(asking.signal);
      if (asking.signal.aborted) return;
      const known = { value, at: new Date() };
      figures.set(this.key, known);
      this.known.value = known;
      this.problem.value = undefined;
    } catch (thrown) {
      if (asking.signal.aborted) return;
      this.problem.value = refusal(thrown);
    } finally {
      if (this.#asking === asking) {
        this.isLoading.value = false;
        this.#schedule(this.problem.peek()?.retryAfterS ?? this.everyS);
      }
    }
  };

  /** Reloads soon: once for all events of the next two seconds. */
  readonly soon = (): void => {
    if (this.#isDue) return;
    this.#isDue = true;
    const sinceLast = Date.now() - this.#lastAsked;
    this.#schedule(Math.max(0, SETTLE_MS - sinceLast) / 1_000);
  };

  close(): void {
    this.#asking?.abort();
    clearTimeout(this.#timer);
  }

  #schedule(seconds: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      // The tab is hidden: `live` reports when it is visible again.
      if (document.hidden) this.#isDue = false;
      else void this.refresh();
    }, seconds * 1_000);
  }
}

/** The same for a component: from when it is shown to when it is not, anew for each key. */
export function useResource<T>(
  key: string,
  load: (stop: AbortSignal) => Promise<T>,
  { on = [], everyS }: Watch = {},
): Resource<T> {
  const resource = useMemo(() => new Resource(key, load, everyS), [key]);
  useEffect(() => {
    void resource.refresh();
    const stop = live.on(on, resource.soon);
    return () => {
      stop();
      resource.close();
    };
  }, [resource]);
  return resource;
}
