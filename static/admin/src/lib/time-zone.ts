/** Names of time zones. Pure. */

/** Whether a time zone exists in the time-zone data of the browser. */
export function isZone(name: string): boolean {
  try {
    return name !== "" && Boolean(new Intl.DateTimeFormat("en", { timeZone: name }));
  } catch {
    return false;
  }
}

/** Fault of a time zone, for its field. An empty one is only missing. */
export function zoneFault(name: string): string | undefined {
  const zone = name.trim();
  if (zone === "" || isZone(zone)) return undefined;
  const city = zone.slice(zone.lastIndexOf("/") + 1);
  const near = Intl.supportedValuesOf("timeZone").find((known) =>
    isNear(known.slice(known.lastIndexOf("/") + 1), city),
  );
  return `is unknown: write ${near ?? "a name such as Europe/Vienna"}`;
}

/** Whether two names differ by at most one letter, or by the case of letters. */
function isNear(known: string, written: string): boolean {
  const [a, b] = [known.toLowerCase(), written.toLowerCase().replaceAll(" ", "_")];
  const same = [...a].findIndex((letter, n) => letter !== b[n]);
  if (same < 0) return b.length - a.length <= 1;
  return [
    [1, 1],
    [1, 0],
    [0, 1],
  ].some(([ofA = 0, ofB = 0]) => a.slice(same + ofA) === b.slice(same + ofB));
}
