// Tests of scripts/words: `node --test tests/words/words.test.mjs`. They run it on the tree in fixtures, or on a tree of their own.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const script = join(here, "../../scripts/words");
const directories = [];
after(() => directories.forEach((directory) => rmSync(directory, { recursive: true })));

function run(root, ...args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...args], {
    env: { ...process.env, ROOT: root },
    encoding: "utf8",
  });
  return {
    status,
    stdout,
    stderr,
    findings: [...stdout.matchAll(/^\S+:\d+: \w+(?=: )/gm)].map(([finding]) => finding).sort(),
  };
}

/** Writes files into a new directory; `areas` becomes its record. */
function tree(files, areas, names = {}) {
  const root = mkdtempSync(join(tmpdir(), "bellwire-words-"));
  directories.push(root);
  mkdirSync(join(root, "scripts"));
  const all = { "scripts/words.json": areas && JSON.stringify({ names, areas }), ...files };
  for (const [path, text] of Object.entries(all).filter(([, text]) => text)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

const record = (root) => JSON.parse(readFileSync(join(root, "scripts/words.json"), "utf8")).areas;
const vague = (n) => "/// Returns what somebody wants.\nfn wanted() {}\n".repeat(n);

test("finds each kind at its line, and nothing else", () => {
  const { status, findings } = run(join(here, "fixtures"), "--all");
  assert.deepEqual(findings, [
    "crates/bellwire-net/src/lib.rs:1: opening",
    "crates/bellwire-net/src/lib.rs:1: short",
    "docs/guide.md:11: vague",
    "docs/guide.md:15: vague",
    "docs/guide.md:17: sentence",
    "src/faulty.rs:10: speech",
    "src/faulty.rs:12: construction",
    "src/faulty.rs:13: speech",
    "src/faulty.rs:18: vague",
    "src/faulty.rs:19: construction",
    "src/faulty.rs:23: sentence",
    "src/faulty.rs:31: test",
    "src/faulty.rs:3: opening",
    "src/faulty.rs:4: type",
    "src/faulty.rs:6: opening",
    "src/faulty.rs:6: short",
    "src/faulty/one.rs:1: type",
    "src/faulty/two.rs:2: type",
    "static/admin/src/page.tsx:1: opening",
    "static/admin/src/page.tsx:4: construction",
    "static/admin/src/page.tsx:5: vague",
    "static/admin/test/page.test.ts:2: test",
  ]);
  assert.equal(status, 1);
});

const CONSTRUCTIONS = [
  "This is no subscription of the app.",
  "It names a topic which there is not (yet).",
  "It is not sent any more.",
  "The person by whom it was made.",
  "The message of which this became a copy.",
  "This filter stands beside the others.",
  "A delivery is put off for a minute.",
  "The rows that it had are given back.",
  "The export goes on later.",
  "A browser that came back is counted.",
  "All of them are taken in.",
  "The value cannot be worked out.",
  "It must be a list of texts.",
  "The outbound edge, as it is set.",
  "It shows the last words of the gateway.",
  "A worker fell silent.",
  "Ended deliveries are counted, retries not.",
  "Ten of them, from the newest.",
];
for (const sentence of CONSTRUCTIONS) {
  test(`reports: ${sentence}`, () => {
    assert.deepEqual(run(tree({ "docs/page.md": `${sentence}\n` }), "--all").findings, [
      "docs/page.md:1: construction",
    ]);
  });
}

for (const opening of ["What", "Who", "Whose", "Its", "Their", "Where", "When", "How", "Which", "To whom"]) {
  test(`reports a doc comment that begins with ${opening}`, () => {
    const { findings } = run(tree({ "src/a.rs": `/// ${opening} browsers are reached by a message.\n` }), "--all");
    assert.ok(findings.includes("src/a.rs:1: opening"), findings.join());
  });
}

test("allows people to say what they know", () => {
  const text = "Operators say so. A teammate who never knew it, and you also know. The user has not told us.\n";
  assert.deepEqual(run(tree({ "docs/page.md": text }), "--all").findings, []);
});

test("allows the share of openings in its limit, not more", () => {
  const comments = (n) =>
    "/// Returns the number of seats.\nfn seats() {}\n".repeat(n - 1) + "/// What a seat costs today.\n";
  assert.equal(run(tree({ "src/a.rs": comments(50) })).status, 0);
  assert.equal(run(tree({ "src/a.rs": comments(49) })).status, 1);
});

test("a recorded count may fall, not rise", () => {
  const areas = { a: { vague: 2 } };
  const [fewer, equal, more] = [1, 2, 3].map((n) => run(tree({ "src/a.rs": vague(n) }, areas)));
  assert.deepEqual([fewer.status, equal.status, more.status], [0, 0, 1]);
  assert.match(fewer.stdout, /scripts\/words --record/);
  assert.doesNotMatch(equal.stdout, /--record/);
  assert.match(more.stderr, /^a: vague 3, limit 2$/m);
  assert.deepEqual([equal.findings.length, more.findings.length], [0, 3]);
});

test("a strict area and an area without a record allow nothing", () => {
  assert.equal(run(tree({ "src/a.rs": vague(1) }, { a: "strict" })).status, 1);
  assert.equal(run(tree({ "src/a.rs": vague(1) }, { b: "strict" })).status, 1);
});

test("the record is lowered and never raised", () => {
  const root = tree(
    {
      "src/a.rs": vague(1),
      "src/b.rs": vague(3),
      "src/c.rs": vague(1),
      "src/e.rs": "//! Seats of a theatre, in rows.\n",
    },
    {
      a: { vague: 2 },
      b: { vague: 2 },
      d: { vague: 4 },
      e: { opening: 1 },
    },
  );
  assert.equal(run(root, "--record").status, 0);
  assert.deepEqual(record(root), { a: { vague: 1 }, b: { vague: 2 }, c: "strict", e: "strict" });
  assert.equal(run(root).status, 1);
});

test("the first record holds the counts of today", () => {
  const root = tree({ "src/a.rs": vague(2), "src/b.rs": "//! Seats of a theatre, in rows.\n" });
  run(root, "--record");
  assert.deepEqual(record(root), { a: { vague: 2 }, b: "strict" });
  assert.equal(run(root).status, 0);
});

test("moved findings change areas, and their sum stays", () => {
  const root = tree(
    { "src/a.rs": vague(1), "crates/bellwire-core/src/b.rs": vague(3) },
    { a: { vague: 3, short: 1 }, core: { vague: 1 } },
  );
  assert.equal(run(root).status, 1);
  assert.equal(run(root, "--move", "a", "core").status, 0);
  assert.deepEqual(record(root), { a: { vague: 1, short: 1 }, core: { vague: 3 } });
  assert.equal(run(root).status, 0);
  assert.equal(run(root, "--move", "b", "core").status, 2);
});

test("findings can move into a strict area", () => {
  const root = tree({ "src/a.rs": vague(1), "src/b.rs": vague(2) }, { a: { vague: 3 }, b: "strict" });
  run(root, "--move", "a", "b");
  assert.deepEqual(record(root), { a: { vague: 1 }, b: { vague: 2 } });
});

test("an area keeps its name in a crate", () => {
  const files = { "crates/bellwire-net/src/acme/order.rs": vague(1), "crates/bellwire-net/src/lib.rs": vague(2) };
  const { status, stderr } = run(tree(files, { acme: { vague: 1 }, net: { vague: 1 } }));
  assert.equal(status, 1);
  assert.match(stderr, /^net: vague 2, limit 1$/m);
  assert.doesNotMatch(stderr, /acme/);
});

test("a listed type name may repeat", () => {
  const files = Object.fromEntries(
    ["a", "b", "c"].map((name) => [`src/x/${name}.rs`, "struct Error;\nstruct Place;\n"]),
  );
  const { findings } = run(tree(files, {}, { Error: "a reason" }), "--all");
  assert.deepEqual(findings, ["src/x/a.rs:2: type", "src/x/b.rs:2: type", "src/x/c.rs:2: type"]);
});

test("shows the findings on lines that changed", () => {
  const root = tree({ "src/a.rs": vague(2) }, { a: { vague: 2 } });
  const git = (...args) =>
    assert.equal(
      spawnSync("git", ["-c", "user.name=a", "-c", "user.email=a@localhost", ...args], { cwd: root }).status,
      0,
    );
  git("init", "-q");
  git("add", ".");
  git("commit", "-qm", "a");
  writeFileSync(join(root, "src/a.rs"), vague(3));
  assert.deepEqual(run(root, "--since", "HEAD").findings, ["src/a.rs:5: vague"]);
});

test("refuses an option that does not exist", () => {
  assert.equal(run(tree({}), "--lower").status, 2);
});
