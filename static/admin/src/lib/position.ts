/** Where in a text a complaint about it says that it is wrong. Pure. */

/** What stands before that place, there, and after it, counted in characters. Undefined: the complaint does not say. */
export function marked(text: string, detail: string): [string, string, string] | undefined {
  const position = /\bat character (\d+)\b/.exec(detail)?.[1];
  if (position === undefined) return undefined;
  const characters = [...text];
  const at = Number(position) - 1;
  return [characters.slice(0, at).join(""), characters[at] ?? "\u00a0", characters.slice(at + 1).join("")];
}
