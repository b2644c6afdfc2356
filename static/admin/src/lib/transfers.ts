/** Imports and exports of subscriptions. Pure. */
import type { Export, Import, ImportFault } from "../api/types";
import { cell } from "./export";
import { count, things } from "./format";
import type { Tone } from "./words";

export const FORMATS = ["ndjson", "csv", "json"] as const;
export type Format = (typeof FORMATS)[number];

export const FORMAT_WORDS: Record<Format, string> = { ndjson: "Lines of JSON", csv: "CSV", json: "A JSON array" };

/** Format of a file, by its name. Undefined: unknown. */
export function formatOf(name: string): Format | undefined {
  const end = name.toLowerCase().split(".").at(-1) ?? "";
  if (end === "jsonl") return "ndjson";
  if (end === "tsv" || end === "txt") return "csv";
  return FORMATS.find((format) => format === end);
}

/** Members that a column can be mapped to, by the server's names. */
export const MEANINGS: readonly (readonly [string, string])[] = [
  ["endpoint", "Endpoint"],
  ["p256dh", "Key p256dh"],
  ["auth", "Key auth"],
  ["user_id", "User"],
  ["tags", "Tags"],
  ["topics", "Topics"],
  ["attributes", "Attributes"],
  ["locale", "Language"],
  ["timezone", "Time zone"],
  ["vapid_key", "VAPID key"],
  ["created_at", "Creation time"],
  ["consent_at", "Time of consent"],
  ["consent_source", "Source of consent"],
  ["expires_at", "Expiry time"],
  ["active", "Subscribed (true or false)"],
  ["unsubscribed_at", "Unsubscribed (true, false or a time)"],
  ["test_device", "Test device (true or false)"],
  ["ignored", "Ignore the column"],
];

/** Columns and what they mean. */
export type Mapping = Readonly<Record<string, string>>;

/** Mapping parameter of columns: `abo:endpoint,kunde:user_id`. Undefined: no mapping. */
export function mapOf(mapping: Mapping): string | undefined {
  const pairs = Object.entries(mapping).flatMap(([theirs, ours]) =>
    ours ? [`${theirs}:${ours === "ignored" ? "" : ours}`] : [],
  );
  return pairs.length > 0 ? pairs.join(",") : undefined;
}

/** Whether a column can be mapped: commas part what is mapped. */
export const isMappable = (column: string): boolean => column.trim() !== "" && !column.includes(",");

/** Milliseconds without progress after which an import counts as interrupted. */
const SILENT_MS = 60_000;

/** State of an import. */
export function importStanding(
  { finished_at, changed_at, dry_run }: Pick<Import, "finished_at" | "changed_at" | "dry_run">,
  now: Date,
): { tone: Tone; word: string; isBroken: boolean } {
  if (finished_at)
    return dry_run
      ? { tone: "cancelled", word: "Dry run", isBroken: false }
      : { tone: "accepted", word: "Done", isBroken: false };
  const isSilent = now.getTime() - Date.parse(changed_at) > SILENT_MS;
  return isSilent
    ? { tone: "lost", word: "Interrupted", isBroken: true }
    : { tone: "waiting", word: "Running", isBroken: false };
}

/** Result of an import, or of its dry run. */
export function importWords({
  lines,
  added,
  known,
  left_out,
  restored,
  pruned,
  refused,
  dry_run,
}: Pick<Import, "lines" | "added" | "known" | "left_out" | "restored" | "pruned" | "refused" | "dry_run">): string {
  const [is, are] = dry_run ? ["would be", "would be"] : ["is", "are"];
  const verb = (n: number) => (n === 1 ? is : are);
  const said = [
    `${things(added, "subscription")} ${verb(added)} new`,
    `${["none", "one"][known] ?? count(known)} known already`,
  ];
  if (restored > 0) said.push(`${count(restored)} of them active again`);
  if (left_out > 0)
    said.push(
      `${things(left_out, "line")} skipped, no longer subscribed${pruned > 0 ? ` (${count(pruned)} reported gone by their push service)` : ""}`,
    );
  if (refused > 0) said.push(`${things(refused, "line")} invalid`);
  return `${count(lines)} ${lines === 1 ? "line was" : "lines were"} read: ${said.join(", ")}.`;
}

/** Faults that the server keeps of an import. */
const FAULTS_MAX = 1_000;

/** Number of lines that the report omits. */
export const untold = (refused: number, told: readonly ImportFault[]): number =>
  told.length >= FAULTS_MAX ? Math.max(0, refused - new Set(told.map(({ line }) => line)).size) : 0;

/** A report as CSV. */
export const faultsCsv = (faults: readonly ImportFault[]): string =>
  ["line,field,reason", ...faults.map(({ line, field, reason }) => `${line},${cell(field)},${cell(reason)}`)]
    .map((row) => `${row}\r\n`)
    .join("");

export const EXPORT_STANDINGS: Record<Export["state"], { tone: Tone; word: string }> = {
  running: { tone: "waiting", word: "Running" },
  complete: { tone: "accepted", word: "Complete" },
  broken_off: { tone: "lost", word: "Interrupted" },
};

/** URL of the export of an app, or of its subscriptions. */
export function exportPath(app: string, what: "all" | "ndjson" | "csv"): string {
  const query = what === "all" ? "" : what === "csv" ? "?only=subscriptions&format=csv" : "?only=subscriptions";
  return `/v1/apps/${encodeURIComponent(app)}/export${query}`;
}

/** URL of the export of a person's data. */
export const personPath = (app: string, user: string): string =>
  `/v1/apps/${encodeURIComponent(app)}/users/${encodeURIComponent(user)}/export`;

/** Time and place of a consent. Undefined: unknown. */
export function consentWords(
  consent: { at?: string | null; source?: string | null } | null | undefined,
  day: (at: string) => string,
): string | undefined {
  if (!consent || (!consent.at && !consent.source)) return undefined;
  return [consent.at && day(consent.at), consent.source].filter(Boolean).join(", ");
}

/** Headers of an upload and of its progress requests. */
export interface Wire {
  /** The newest imports, the newest first. */
  list: () => Promise<Pick<Import, "id">[]>;
  show: (id: string) => Promise<Import>;
  /** Answers when the file has ended. */
  send: () => Promise<Import>;
  pause: () => Promise<unknown>;
}

/** Uploads a file and reports the progress. `id`: the import to resume. */
export async function transfer(
  { list, show, send, pause }: Wire,
  id: string | undefined,
  tell: (progress: Import) => void,
): Promise<Import> {
  // Ids rise with time: one that is greater than all before is this file's.
  const before = id ?? (await list())[0]?.id ?? "";
  let isOver = false;
  const sent = send().finally(() => (isOver = true));
  sent.catch(() => {}); // thrown below
  let own = id;
  while (!isOver) {
    await Promise.race([sent.catch(() => {}), pause()]);
    if (isOver) break;
    try {
      own ??= (await list()).find(({ id }) => id > before)?.id;
      if (own) tell(await show(own));
    } catch {
      // The file tells what is wrong; progress is asked for again.
    }
  }
  return sent;
}
