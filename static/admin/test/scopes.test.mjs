import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { SCOPES } from "../src/lib/scopes";

const guide = readFileSync(new URL("../../../docs/operate/keys.md", import.meta.url), "utf8");
const NOUNS = [
  "prompt",
  "origins",
  "webhooks",
  "templates",
  "segments",
  "topics",
  "frequency caps",
  "dead letters",
  "private keys",
];

it.each(SCOPES)("names what the scope allows: %s", (scope, words) => {
  const [, row] = new RegExp(`^\\|\`${scope}\`\\|(.*)\\|$`, "m").exec(guide);
  expect(NOUNS.filter((noun) => row.includes(noun) && !words.includes(noun))).toEqual([]);
});
