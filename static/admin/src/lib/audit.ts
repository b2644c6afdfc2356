/** The audit log in words. Pure. */
import type { components, operations } from "../api/schema";

type Entry = components["schemas"]["AuditEntryResponse"];
export type Action = NonNullable<NonNullable<operations["audit_log_list"]["parameters"]["query"]>["action"]>;

/** Text of each action, after the actor's name. A new action needs an entry here. */
export const ACTIONS: Record<Action, string> = {
  "app.created": "created the app",
  "app.changed": "changed the app",
  "app.deleted": "deleted the app",
  "app.exported": "exported data of the app",
  "api_key.created": "created an API key",
  "api_key.revoked": "revoked an API key",
  "identity_key.created": "created an identity key",
  "identity_key.removed": "deleted an identity key",
  "vapid_key.created": "created a VAPID key",
  "vapid_key.imported": "imported a VAPID key",
  "vapid_key.activated": "activated a VAPID key",
  "vapid_key.changed": "changed a VAPID key’s contact",
  "vapid_key.exported": "exported a VAPID key",
  "dead_letters.replayed": "replayed dead letters",
  "dead_letters.discarded": "discarded dead letters",
  "dead_letters.exported": "exported dead letters",
  "import.begun": "started an import of subscriptions",
  "import.finished": "finished an import of subscriptions",
  "subscriptions.restored": "restored pruned subscriptions",
  "message.paused": "paused a message",
  "message.resumed": "resumed a message",
  "message.cancelled": "cancelled a message",
  "message.updated": "gave a message new content",
  "message.withdrawn": "withdrew a message",
  "topic.created": "created a topic",
  "topic.changed": "changed a topic",
  "topic.removed": "deleted a topic",
  "template.set": "saved a template",
  "template.removed": "deleted a template",
  "webhook.created": "created a webhook",
  "webhook.changed": "changed a webhook",
  "webhook.removed": "deleted a webhook",
  "webhook.secret_rotated": "rotated the secret of a webhook",
  "webhook.replayed": "replayed failed requests of a webhook",
  "campaign.created": "created a campaign",
  "campaign.changed": "changed the plan of a campaign",
  "campaign.deleted": "deleted a campaign",
  "campaign.started": "started a campaign",
  "campaign.paused": "paused a campaign",
  "campaign.resumed": "resumed a campaign",
  "campaign.cancelled": "cancelled a campaign",
  "campaign.withdrawn": "withdrew a campaign",
  "segment.set": "saved a segment",
  "segment.removed": "deleted a segment",
  "policy.set": "set a policy",
  "policy.removed": "removed a policy",
  "calendar.changed": "changed the quiet hours",
  "slas.changed": "changed the reliability targets",
  "caps.changed": "changed the frequency caps",
  "guard.changed": "changed the runaway guard",
  "app.released": "released the app",
  "flow.set": "set a limit",
  "flow.removed": "removed a limit",
  "flow.paused": "paused a flow",
  "flow.resumed": "resumed a flow",
  "flow.reset": "reset a flow",
  "lane.held": "held a lane",
  "lane.released": "released a lane",
  "lane.opened": "opened a lane’s breaker",
  "lane.closed": "closed a lane’s breaker",
  "lane.probed": "probed a lane",
  "user.erased": "erased a user",
  "user.erasure_completed": "completed the erasure of a user",
  "user.exported": "exported the data of a user",
  "subscription.erased": "erased a browser",
  "database.restored": "restored the database from a backup",
  "master_key.rotated": "replaced the master key",
  "seal_key.added": "added a seal key",
  "tool.called": "called a tool",
  "alert.resolved": "resolved an alert",
  "log_level.set": "changed the log level temporarily",
  "log_level.reset": "reset the log level",
  "teammate.invited": "invited a teammate",
  "teammate.changed": "changed a teammate",
  "teammate.reset": "reset a teammate’s password",
  "teammate.removed": "removed a teammate",
  "teammate.joined": "signed up through the provider",
  "teammate.linked": "linked an account",
  "teammate.unlinked": "unlinked an account",
  "password.set": "set a password",
  "passkey.added": "added a passkey",
  "passkey.renamed": "renamed a passkey",
  "passkey.removed": "removed a passkey",
  "passkeys.reset": "reset a teammate’s passkeys",
  "session.begun": "signed in",
  "session.refused": "was refused a sign-in",
  "session.ended": "ended sessions",
};

export const actionWords = (action: string): string => (ACTIONS as Record<string, string>)[action] ?? action;

interface Me {
  teammate?: string | null;
  api_key?: string | null;
}

/** Name of the actor; `names` has the addresses of teammates by id. */
export function actorWords(actor: string, me: Me, names: ReadonlyMap<string, string> = new Map()): string {
  if (actor === me.teammate || actor === me.api_key) return "you";
  if (actor === "local") return "the command line";
  if (actor === "nobody") return "an unknown caller";
  const name = names.get(actor);
  if (name) return name;
  // The end of an id tells neighbours apart; its beginning is the time.
  const short = `…${actor.slice(-6)}`;
  return actor.startsWith("tm_") ? `teammate ${short}` : `API key ${short}`;
}

/** Details of an entry on one line: `name: shop, scopes: send, read`. Null members are omitted. */
export function detailWords(detail: Entry["detail"]): string {
  return Object.entries(detail ?? {})
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => `${name.replaceAll("_", " ")}: ${text(value)}`)
    .join("; ");
}

function text(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? "none" : value.map(text).join(", ");
  if (value !== null && typeof value === "object")
    return Object.values(value)
      .filter((one) => one !== null)
      .map(text)
      .join(" ");
  return String(value);
}
