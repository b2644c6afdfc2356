/** From nothing to a notification in one's own browser: how far it is. Pure. */

/** State of each step, from the server. */
export interface Progress {
  app: boolean;
  key: boolean;
  /** Whether a browser has subscribed that is not this one: what was pasted works. */
  site: boolean;
  browser: boolean;
  /** Whether a message to this browser was displayed. */
  sent: boolean;
}

export const STEPS = ["app", "key", "site", "browser", "sent"] as const;
export type Step = (typeof STEPS)[number];

/** The current step. `None`: all are done. A paste is visible only after a visit, so `hasPasted` or a later step completes it. */
export function nextStep(
  done: Progress,
  { hasPasted, mayMakeKeys }: { hasPasted: boolean; mayMakeKeys: boolean },
): Step | undefined {
  const isPassed: Progress = {
    ...done,
    key: done.key || !mayMakeKeys,
    site: done.site || done.browser || done.sent || hasPasted,
  };
  return STEPS.find((step) => !isPassed[step]);
}

/** Snippets with the server's and the app's real names, as `bellwire init` prints them. */
export function snippets(server: string, app: string, topic: string): { worker: string; page: string; send: string } {
  return {
    worker: `importScripts("${server}/sdk/service-worker.js");\nbellwire.appUrl = "${server}/v1/apps/${app}";`,
    page: `<button id="notify">Notify me</button>
<script type="module">
  import { init } from "${server}/sdk/bellwire.js";
  const bellwire = init({ app: "${app}" });
  document.querySelector("#notify").onclick = async () => {
    const result = await bellwire.subscribe({ topics: ["${topic}"] });
    if (!result.ok) alert(result.message);
  };
</script>`,
    send: `curl ${server}/v1/apps/${app}/messages \\
  -H "Authorization: Bearer $BELLWIRE_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"to": {"topic": "${topic}"}, "content": {"title": "Hello", "body": "It works"}}'`,
  };
}

/** A short name from a name: `Bücher & Co.` is `bucher-co`. */
export function slugFrom(name: string): string {
  const plain = name.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  return plain
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 63);
}
