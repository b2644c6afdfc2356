/** Position of an error within a text. Pure. */

/** Text before, at and after the position, counted in characters. Undefined: the error has no position. */
export function marked(text: string, detail: string): [string, string, string] | undefined {
  const position = /\bat character (\d+)\b/.exec(detail)?.[1];
  if (position === undefined) return undefined;
  const characters = [...text];
  const at = Number(position) - 1;
  return [characters.slice(0, at).join(""), characters[at] ?? "\u00a0", characters.slice(at + 1).join("")];
}
