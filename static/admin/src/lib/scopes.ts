import type { components } from "../api/schema";

/** Permissions of each scope of an app's keys. */
export const SCOPES: readonly [components["schemas"]["Scope"], string][] = [
  ["send", "Send messages and test templates"],
  ["read", "Read everything except private keys and dead letters’ content"],
  ["subscribers", "Register, change and erase subscribers, create topics"],
  ["messages", "Stop and resend messages, handle dead letters, store templates and segments"],
  ["policies", "Set policies, quiet hours, frequency caps and limits"],
  ["settings", "Change the app’s name, origins and prompt"],
  ["keys", "Create and revoke keys, manage webhooks"],
  ["export", "Export private keys and dead letters"],
];
