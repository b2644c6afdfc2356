/** Checks the web app manifest of the site, which iPhones and iPads read when the site is added to the Home Screen. */

const TIMEOUT_MS = 10_000;
const ICON_MIN_PX = 192;

/** Members of a manifest that are used here. All come from the site, so any may be missing or have another type. */
interface Manifest {
  id?: unknown;
  name?: unknown;
  short_name?: unknown;
  display?: unknown;
  display_override?: unknown;
  icons?: unknown;
  start_url?: unknown;
  scope?: unknown;
}

export interface ManifestFindings {
  found: string;
  /** One sentence for each point to correct. */
  faults: string[];
  /** Sentences about points that iPhones and iPads do not require. */
  hints: string[];
}

/** Reads and checks the manifest of this page with one request. Never rejects. */
export async function checkManifest(workerScope?: string): Promise<ManifestFindings> {
  const link = document.querySelector<HTMLLinkElement>('link[rel~="manifest"]');
  if (!link?.href) return failed("No link.", 'Add <link rel="manifest" href="…"> to every page.');
  const { href, crossOrigin } = link;
  const response = await fetch(href, {
    // Like browsers, which send cookies for a manifest only if the link demands it.
    credentials: crossOrigin === "use-credentials" ? "include" : "omit",
    cache: "no-cache",
    signal: AbortSignal.timeout?.(TIMEOUT_MS),
  }).catch(() => undefined);
  if (!response) {
    return failed(`${href}: no answer`, "Check the manifest's address, CORS, and the page's CSP (connect-src).");
  }
  if (!response.ok) return failed(`${href}: HTTP ${response.status}`, "Serve the manifest at the linked address.");
  const manifest = await response.json().catch(() => undefined);
  if (!manifest || typeof manifest !== "object" || Array.isArray(manifest)) {
    return failed(`${href}: no JSON object`, "Correct the manifest: it must be a JSON object.");
  }
  return judge(manifest, href, workerScope);
}

const failed = (found: string, fault: string): ManifestFindings => ({ found, faults: [fault], hints: [] });

/** Checks the members of a manifest from the address `href`. */
function judge(manifest: Manifest, href: string, workerScope?: string): ManifestFindings {
  const { id, name, short_name, display, display_override } = manifest;
  const faults: string[] = [];
  const isText = (value: unknown) => typeof value === "string" && value.trim() !== "";
  if (!isText(name) && !isText(short_name)) faults.push('Set "name" or "short_name".');
  if (display !== "standalone" && display !== "fullscreen") {
    const ignored = display_override ? ', because iPhones and iPads ignore "display_override"' : "";
    faults.push(`Set "display" to "standalone" or "fullscreen"${ignored}.`);
  }
  if (!hasIcon(manifest)) {
    faults.push(`Add an icon of ${ICON_MIN_PX} pixels or more to "icons" (PNG, not SVG), or link an apple-touch-icon.`);
  }
  const place = placeFault(manifest, href, workerScope);
  if (place) faults.push(place);
  const hints = isText(id) ? [] : ['Set "id", so that a later change of "start_url" keeps installed apps.'];
  return { found: `${href}: display ${display ?? "none"}`, faults, hints };
}

/** Whether iOS finds a usable icon. Before iOS 26 it cannot draw SVG, and it takes no icon that is only maskable or monochrome. */
function hasIcon({ icons }: Manifest): boolean {
  if (document.querySelector('link[rel*="apple-touch-icon"]:not([href$=".svg"])')) return true;
  return (
    Array.isArray(icons) &&
    icons.some((icon) => {
      const { src, type, sizes, purpose = "any" } = icon ?? {};
      const widths = String(sizes).split(/\s+/).map(parseFloat);
      return !/svg/i.test(`${src} ${type}`) && /\bany\b/.test(purpose) && widths.some((px) => px >= ICON_MIN_PX);
    })
  );
}

/** Fault of `start_url` or `scope`, whose defaults are the page and the directory of `start_url`. */
function placeFault({ start_url, scope }: Manifest, href: string, workerScope?: string): string | undefined {
  const page = location.href;
  const start = parse(start_url || page, href);
  if (start?.origin !== location.origin) return `Set "start_url" to a page of ${location.origin}.`;
  const { origin, pathname } = parse(scope ?? new URL(".", start), href) ?? {};
  const covered = [start.href, page, ...(workerScope ? [workerScope] : [])];
  const missed = covered.filter((url) => !url.startsWith(`${origin}${pathname}`));
  return missed.length ? `Set a "scope" that covers ${[...new Set(missed)].join(" and ")}.` : undefined;
}

function parse(url: unknown, base: string): URL | undefined {
  try {
    return new URL(String(url), base);
  } catch {
    return undefined;
  }
}
