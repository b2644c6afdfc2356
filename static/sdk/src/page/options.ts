import type { Options } from "../api";

/** Path at which every Bellwire server serves this module. */
const SERVED_AS = "/sdk/bellwire.js";

const parse = (url: unknown, base?: string): URL | undefined => {
  try {
    const parsed = new URL(url as string, base);
    return /^https?:$/.test(parsed.protocol) ? parsed : undefined;
  } catch {
    return undefined;
  }
};

/** Returns the server's address without a slash at its end. In a bundle, `loadedFrom` is undefined or another address. */
export function serverOf({ server }: Partial<Options>, loadedFrom: string | undefined): string | undefined {
  if (server !== undefined) return parse(server) && server.replace(/\/+$/, "");
  const module = parse(loadedFrom);
  return module?.pathname.endsWith(SERVED_AS) ? module.origin : undefined;
}

/** Returns a message about the first invalid option, with the remedy, or undefined. */
export function optionsFault(
  { app, server, serviceWorker = {} }: Partial<Options>,
  address: string | undefined,
): string | undefined {
  const { url, scope } = serviceWorker;
  const isOurs = (path?: string) => path === undefined || parse(path, location.href)?.origin === location.origin;
  const [name, value, rule] =
    typeof app !== "string" || !app
      ? ["app", app, "the id or slug of your app"]
      : !address
        ? ["server", server, "the origin of your Bellwire server"]
        : !isOurs(url) || !isOurs(scope)
          ? ["serviceWorker", { url, scope }, "paths on this site"]
          : [];
  return name && `init's \`${name}\` is ${JSON.stringify(value)}: give ${rule}.`;
}
