import type { Client, Details, Result, Status } from "./api.js";

/** Methods of a client for components. Each except `track` and `converted` also updates `status` and `problem`. */
export interface PushCalls {
  /** Call it from a click, before any `await`: browsers ask for permission only then. */
  subscribe(details?: Details): Promise<Result>;
  unsubscribe(): Promise<Result>;
  setTopics(topics: string[]): Promise<Result>;
  setTags(tags: string[]): Promise<Result>;
  setAttributes(attributes: NonNullable<Details["attributes"]>): Promise<Result>;
  setMuted: Client["setMuted"];
  track: Client["track"];
  converted: Client["converted"];
  login(userId: string | number, userToken: string): Promise<Result>;
  logout(options?: { stayAnonymous?: boolean }): Promise<Result>;
}

/** Passes the status at once and after each change. Returns a function that stops this. */
export function follow(bellwire: Client, set: (status: Status) => void): () => void {
  let isCurrent = true;
  const stop = bellwire.on("change", (status) => {
    isCurrent = false; // a later response of the call below is older than this
    set(status);
  });
  void bellwire.status().then((now) => isCurrent && set(now));
  return () => {
    isCurrent = false;
    stop();
  };
}

/** Returns the calls of a client, which pass each result on. */
export function callsOf(bellwire: Client, pass: (result: Result) => void): PushCalls {
  const passed = async (asked: Promise<Result>) => {
    const result = await asked;
    pass(result);
    return result;
  };
  return {
    subscribe: (details) => passed(bellwire.subscribe(isEvent(details) ? undefined : details)),
    unsubscribe: () => passed(bellwire.unsubscribe()),
    setTopics: (topics) => passed(bellwire.setTopics(topics)),
    setTags: (tags) => passed(bellwire.setTags(tags)),
    setAttributes: (attributes) => passed(bellwire.setAttributes(attributes)),
    setMuted: (muted) => passed(bellwire.setMuted(muted)),
    track: bellwire.track,
    converted: bellwire.converted,
    login: (userId, userToken) => passed(bellwire.login(userId, userToken)),
    logout: (options) => passed(bellwire.logout(isEvent(options) ? undefined : options)),
  };
}

/** Whether an argument is the event of a click, as in `@click="subscribe"`. */
const isEvent = (argument: unknown) => typeof (argument as Partial<Event> | undefined)?.preventDefault === "function";
