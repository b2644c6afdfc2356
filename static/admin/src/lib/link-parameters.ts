/** Parameters of links as lines of a text, `name=value`. Pure. */
import type { Refusal } from "../api/problem";

export type LinkParameters = Record<string, string>;

/** Lines that are not empty, with their numbers from 1. */
const linesOf = (text: string): { n: number; line: string }[] =>
  text
    .split("\n")
    .map((line, at) => ({ n: at + 1, line: line.trim() }))
    .filter(({ line }) => line);

/** Name and value of a line. Further equals signs belong to the value. */
function pairOf(line: string): [string, string] {
  const at = line.indexOf("=");
  return at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}

/** Entries of a list with one on each line. */
export const entriesOf = (text: string): string[] => linesOf(text).map(({ line }) => line);

export const parametersOf = (text: string): LinkParameters => Object.fromEntries(entriesOf(text).map(pairOf));

export const parametersText = (parameters: LinkParameters): string =>
  Object.entries(parameters)
    .map(([name, value]) => `${name}=${value}`)
    .join("\n");

/** Fault of the first line that is no parameter, or has the name of an earlier line. */
export function parametersFault(text: string): string | undefined {
  const names = new Set<string>();
  for (const { n, line } of linesOf(text)) {
    const [name, value] = pairOf(line);
    if (!name || !value) return `line ${n} must be a name and a value, such as \`utm_source=push\``;
    if (names.has(name)) return `line ${n} repeats the name \`${name}\``;
    names.add(name);
  }
  return undefined;
}

const segment = (name: string): string => name.replaceAll("~", "~0").replaceAll("/", "~1");

/** First fault of a list or its entries from the server, with the line of the entry. */
function lineFault(
  problem: Pick<Refusal, "faults"> | undefined,
  pointer: string,
  lines: readonly { n: number; name: string }[],
): string | undefined {
  const fault = problem?.faults.find(({ where }) => where === pointer || where.startsWith(`${pointer}/`));
  const line = lines.find(({ name }) => fault?.where === `${pointer}/${segment(name)}`);
  return line ? `line ${line.n} ${fault?.detail}` : fault?.detail;
}

/** Fault of parameters, whose pointers end in a name. */
export const parameterFault = (problem: Pick<Refusal, "faults"> | undefined, pointer: string, text: string) =>
  lineFault(
    problem,
    pointer,
    linesOf(text).map(({ n, line }) => ({ n, name: pairOf(line)[0] })),
  );

/** Fault of a list, whose pointers end in a number. */
export const entryFault = (problem: Pick<Refusal, "faults"> | undefined, pointer: string, text: string) =>
  lineFault(
    problem,
    pointer,
    linesOf(text).map(({ n }, at) => ({ n, name: String(at) })),
  );
