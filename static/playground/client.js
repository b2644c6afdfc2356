// Client of the preview. It changes only its own state: nothing is requested, and the browser does not ask.

const SUBSCRIBED = { state: "subscribed", id: "sub_example", topics: [], tags: ["example"], userId: null, muted: null };

const statusOf = (state) =>
  ({ subscribed: SUBSCRIBED, unsubscribed: { state, permission: "default" } })[state] ?? { state };

/** Client of a browser in this state. */
export function fakeClient(state) {
  const listeners = new Set();
  let status = statusOf(state);
  const change = (next) => {
    status = next;
    listeners.forEach((listener) => listener(status));
    return { ok: true, status };
  };
  const until = (muted) => muted.until?.toISOString() ?? null;
  return {
    options: { app: "playground", server: window.origin },
    ready: Promise.resolve(status),
    status: async () => status,
    subscribe: async ({ topics = [] } = {}) => change({ ...SUBSCRIBED, topics }),
    unsubscribe: async () => change(statusOf("unsubscribed")),
    setTopics: async (topics) => change({ ...status, topics }),
    setMuted: async (muted) => change({ ...status, muted: muted && { until: until(muted) } }),
    on(event, listener) {
      if (event === "change") listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}
