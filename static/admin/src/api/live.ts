import { signal } from "@preact/signals";

/** Event types of the server. */
export const KINDS = [
  "message.progress",
  "message.done",
  "message.paused",
  "message.resumed",
  "message.cancelled",
  "lane.held",
  "lane.released",
  "lane.breaker",
  "alert.raised",
  "alert.resolved",
  "dead_letter.created",
  "subscription.gone",
  "sla.missed",
  "outcomes",
] as const;
export type Kind = (typeof KINDS)[number];

/** State of the connection to the event stream. */
export interface Connection {
  /** `live`: connected. `resting`: the tab is hidden. `lost`: disconnected, with retries. `off`: the page polls each minute. */
  state: "connecting" | "live" | "resting" | "lost" | "off";
  since: number;
}

/** A silence shorter than this is not worth a word: sessions are shown anew every minute, which takes two seconds. */
const LOST_AFTER_MS = 6_000;
/** Refused streams are asked for again after this: there may have been too many listeners. */
const AGAIN_AFTER_MS = 30_000;

type Listener = { kinds: readonly string[]; hear: () => void };

/**
 * Server-sent events. The browser reconnects after an interruption with the id of the last event, and the server sends the
 * missed events. If the server cannot (`gap`), or after the tab was hidden, every listener reloads.
 */
export class Live {
  readonly connection = signal<Connection>({ state: "off", since: Date.now() });
  #url: string | null = null;
  #source: EventSource | undefined;
  #listeners = new Set<Listener>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly open: (url: string) => EventSource = (url) => new EventSource(url),
    private readonly page: Pick<Document, "hidden" | "addEventListener"> = document,
  ) {
    this.page.addEventListener("visibilitychange", () => (this.page.hidden ? this.#rest() : this.#wake()));
  }

  /** From now on listens there; null: to nothing. */
  listenTo(url: string | null): void {
    if (url === this.#url) return;
    this.#url = url;
    this.#close();
    this.#is("off");
    if (url !== null && !this.page.hidden) this.#connect(url);
  }

  /** Calls `hear` whenever something of these kinds happens, or may have. Returns how to stop that. */
  on(kinds: readonly Kind[], hear: () => void): () => void {
    const listener = { kinds, hear };
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  #connect(url: string): void {
    const source = this.open(url);
    this.#source = source;
    this.#is("connecting");
    source.onopen = () => {
      clearTimeout(this.#timer);
      this.#is("live");
    };
    source.onerror = () => {
      if (source.readyState === source.CLOSED) this.#wasRefused();
      else this.#later(LOST_AFTER_MS, () => this.#is("lost"));
    };
    for (const kind of KINDS) source.addEventListener(kind, () => this.#tell((kinds) => kinds.includes(kind)));
    source.addEventListener("gap", () => this.#tell(() => true));
    source.addEventListener("end", (event) => {
      // All other ends are followed by a new beginning, which the browser sees to.
      if (reasonOf(event) === "key_revoked") this.#wasRefused();
    });
  }

  /** The next request finds out whether the session has ended. */
  #wasRefused(): void {
    this.#close();
    this.#is("off");
    this.#tell(() => true);
    this.#later(AGAIN_AFTER_MS, () => this.#wake());
  }

  #rest(): void {
    this.#close();
    if (this.#url !== null) this.#is("resting");
  }

  #wake(): void {
    if (this.page.hidden) return;
    this.#tell(() => true);
    if (this.#url !== null && !this.#source) this.#connect(this.#url);
  }

  #close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#source?.close();
    this.#source = undefined;
  }

  #later(ms: number, work: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(work, ms);
  }

  #tell(wants: (kinds: readonly string[]) => boolean): void {
    for (const { kinds, hear } of [...this.#listeners]) if (wants(kinds)) hear();
  }

  #is(state: Connection["state"]): void {
    if (this.connection.peek().state !== state) this.connection.value = { state, since: Date.now() };
  }
}

function reasonOf(event: Event): unknown {
  try {
    return JSON.parse((event as MessageEvent<string>).data).reason;
  } catch {
    return undefined;
  }
}

export const live = new Live();
