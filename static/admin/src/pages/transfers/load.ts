/** Requests of the transfer page. */
import { signal } from "@preact/signals";
import { api, told } from "../../api/client";
import { refusal, type Refusal } from "../../api/problem";
import type { Export, Import } from "../../api/types";
import { transfer, type Format } from "../../lib/transfers";

export async function loadImports(app: string, stop: AbortSignal | undefined, limit = 10): Promise<Import[]> {
  return (
    await told(
      api.GET("/v1/apps/{app}/imports", {
        params: { path: { app }, query: { limit } },
        ...(stop ? { signal: stop } : {}),
      }),
    )
  ).data;
}

/** With the faults. */
export const loadImport = (app: string, id: string, stop?: AbortSignal): Promise<Import> =>
  told(
    api.GET("/v1/apps/{app}/imports/{import}", {
      params: { path: { app, import: id } },
      ...(stop ? { signal: stop } : {}),
    }),
  );

export async function loadExports(app: string, stop: AbortSignal): Promise<Export[]> {
  return (
    await told(api.GET("/v1/apps/{app}/exports", { params: { path: { app }, query: { limit: 10 } }, signal: stop }))
  ).data;
}

/** A file, and how it is to be read. */
export interface Way {
  app: string;
  file: File;
  format: Format;
  dryRun: boolean;
  /** Whether subscriptions that their push service called gone become active again. */
  restorePruned: boolean;
  map: string | undefined;
  /** Encoding of the file. Undefined: UTF-8 or UTF-16. */
  charset: string | undefined;
  /** Import to resume. */
  id?: string;
}

/** A file that is sent, or was sent last. */
export interface Upload {
  way: Way;
  /** Progress, as far as known. */
  progress?: Import;
  done?: Import;
  problem?: Refusal;
  stop: AbortController;
}

/** Stays while other pages are looked at. */
export const upload = signal<Upload | undefined>(undefined);

export const isSending = ({ done, problem }: Upload): boolean => !done && !problem;

const KINDS: Record<Format, string> = { ndjson: "application/x-ndjson", csv: "text/csv", json: "application/json" };

/** The browser reads the file while it sends it. */
function send({ app, file, format, dryRun, restorePruned, map, charset, id }: Way, stop: AbortSignal): Promise<Import> {
  const how = {
    body: file as never,
    bodySerializer: (body: unknown) => body as never,
    headers: { "Content-Type": KINDS[format] },
    signal: stop,
  };
  const mapped = { ...(map === undefined ? {} : { map }), ...(charset === undefined ? {} : { charset }) };
  if (id)
    return told(
      api.POST("/v1/apps/{app}/imports/{import}", { params: { path: { app, import: id }, query: mapped }, ...how }),
    );
  return told(
    api.POST("/v1/apps/{app}/imports", {
      params: { path: { app }, query: { dry_run: dryRun, restore_pruned: restorePruned, ...mapped } },
      ...how,
    }),
  );
}

const PAUSE_MS = 1_000;

/** Sends a file, and keeps in `upload` how far it has come. */
export async function begin(way: Way): Promise<void> {
  const stop = new AbortController();
  const mine: Upload = { way, stop };
  upload.value = mine;
  const tell = (more: Partial<Upload>) => {
    if (upload.value?.stop === stop) upload.value = { ...upload.value, ...more };
  };
  const { app } = way;
  const wire = {
    list: () => loadImports(app, undefined, 5),
    show: (id: string) => loadImport(app, id),
    send: () => send(way, stop.signal),
    pause: () => new Promise((resolve) => setTimeout(resolve, PAUSE_MS)),
  };
  try {
    tell({ done: await transfer(wire, way.id, (progress) => tell({ progress })) });
  } catch (thrown) {
    tell({ problem: refusal(thrown) });
  }
}

// Leaving the page aborts the upload: the browser asks first.
addEventListener("beforeunload", (event) => {
  if (upload.value && isSending(upload.value)) event.preventDefault();
});
