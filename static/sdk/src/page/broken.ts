/** Explains why a browser refused a service worker: reports the response of the site, and the requirement. */
export async function whyBroken(url: string, scope: string, server: string, error: unknown): Promise<string> {
  const response = await fetch(url, { cache: "no-store" }).catch(() => undefined);
  if (!response) return `${url}: ${error}`;
  const { status, redirected, headers } = response;
  const names = ["Content-Type", "Service-Worker-Allowed", "Content-Security-Policy"];
  const served = names.map((name) => `${name}: ${headers.get(name) ?? "none"}`).join(", ");
  const { pathname } = new URL(scope);
  return `${url}: HTTP ${status}${redirected ? " redirected" : ""}, ${served}. Needed: 200, text/javascript, scope ${pathname}, access to ${server}. ${error}`;
}
