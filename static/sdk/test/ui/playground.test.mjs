import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { codeOf } from "../../../playground/code.js";
import { CHOICES, DEFAULTS, read, TEXTS, VARIABLES, write } from "../../../playground/design.js";

const SERVER = "https://push.example";
/** Values that a browser takes for any property here. */
const supports = (_, value) => !/^(bad|)$/.test(value);
const design = (fragment) => read(fragment, supports);
const root = new URL("../../../../", import.meta.url);
const file = (path) => readFileSync(new URL(path, root), "utf8");

describe("a design in the address", () => {
  it("is empty for the defaults", () => {
    expect(design("")).toEqual(DEFAULTS);
    expect(write(DEFAULTS)).toBe("");
  });

  it("survives a link", () => {
    const shared = {
      ...DEFAULTS,
      element: "bell",
      corner: "none",
      unread: "12",
      topics: "news: Ünïcode & more: a: b",
      "ar.title": "هل؟",
      "--bellwire-accent": "#063",
    };
    expect(design(write(shared))).toEqual(shared);
    expect(write(shared)).not.toContain("layout");
  });

  it.each([
    ["an unknown name", "colour=red&constructor=x&__proto__=x&toString=x"],
    ["an unknown choice", "element=popup&layout=&lang=xx&width=1e9"],
    ["a text of another language or name", "xx.title=a&en.install=a&en.title.x=a&title=a"],
    ["a long text", `en.title=${"a".repeat(301)}`],
    ["an app that is no slug", "app=%22%3E"],
    ["a number with signs", "unread=-1&unread=1e3"],
    ["malformed topics", "topics=news&topics=a%3A+A%0Aa%3A+B&topics=a+b%3A+A&topics=%3A"],
    ["a value that the browser refuses", "--bellwire-accent=bad"],
    [
      "a value that ends the rule",
      "--bellwire-font=%22%7D%3C%2Fstyle%3E%22&--bellwire-color=red%3Bx&--bellwire-gap=1px%2F*",
    ],
    ["a variable of something else", "--page-color=red"],
    ["a broken encoding", "%&%zz=%&==&element"],
  ])("ignores %s", (_, fragment) => {
    expect(design(fragment)).toEqual(DEFAULTS);
  });
});

describe("the code of a design", () => {
  it("has only what differs from the defaults", () => {
    expect(codeOf(DEFAULTS, SERVER)).toEqual({
      html: "<bellwire-prompt></bellwire-prompt>",
      js: `import { init } from "https://push.example/sdk/bellwire.js";
import { ui } from "https://push.example/sdk/ui.js";

ui(init({ app: "shop" }));`,
      css: "",
      prompt: "{}",
      topics: "",
    });
  });

  it("has texts of all languages, and colours", () => {
    const code = codeOf(
      design("layout=bar&lang=de&de.title=Neu%3F&en.no=Never&scheme=system&--bellwire-accent=%23063"),
      SERVER,
    );
    expect(code.html).toBe('<bellwire-prompt lang="de"></bellwire-prompt>');
    expect(code.css).toBe(":root {\n  color-scheme: light dark;\n  --bellwire-accent: #063;\n}");
    expect(JSON.parse(code.prompt)).toEqual({
      layout: "bar",
      texts: { en: { no: "Never" }, de: { title: "Neu?" } },
    });
  });

  it("has topics, and room for a bell", () => {
    const code = codeOf(
      design("element=bell&corner=none&app=my-shop&topics=news%3A+News%0Aweekly%3A+Weekly%3A+Digest"),
      SERVER,
    );
    expect(code.html).toBe("<bellwire-bell></bellwire-bell>");
    expect(code.css).toContain("min-height: 2.75rem");
    const [news, weekly] = code.topics.split("\n\n");
    expect(news).toBe(`PATCH /v1/apps/my-shop/topics/news\n${JSON.stringify({ display: { title: "News" } }, null, 2)}`);
    expect(JSON.parse(weekly.slice(weekly.indexOf("{")))).toEqual({
      display: { title: "Weekly", description: "Digest", position: 1 },
    });
    expect(code.prompt).toBe("");
  });
});

describe("the page of the playground", () => {
  const page = file("static/playground/index.html");
  const named = (name) =>
    page.match(new RegExp(`<(?:input|select|textarea)[^>]* name="${name}"[^]*?(?=</fieldset>|</p>)`))[0];

  it("has a control for each value", () => {
    for (const [name, values] of Object.entries(CHOICES)) {
      const offered = [...named(name).matchAll(/ value="([^"]+)"/g)].map(([, value]) => value);
      expect(offered.sort(), name).toEqual([...values].sort());
    }
    for (const name of [...TEXTS, ...Object.keys(VARIABLES), "app", "topics", "unread"])
      expect(page.match(new RegExp(` name="${name}"`, "g")), name).toHaveLength(1);
  });

  it("offers the variables and languages of the elements", () => {
    const used = new Set(file("static/sdk/src/ui/style.ts").match(/--bellwire-[a-z-]+/g));
    expect(new Set(Object.keys(VARIABLES))).toEqual(used);
    const languages = [...file("static/sdk/src/ui/texts.ts").matchAll(/^ {2}([a-z]{2}): /gm)].map(([, code]) => code);
    expect([...CHOICES.lang].sort()).toEqual(languages.sort());
  });

  it("has the navigation of the other pages", () => {
    const links = (text) =>
      [...text.matchAll(/a href=(?:"([^"]+)"|\(guides::ROOT\))/g)].map(([, to]) => to ?? "/docs/guides/");
    const navigation = file("src/api/docs.rs").match(/nav aria-label="Documentation" \{[^]*?\n {20}\}/)[0];
    expect(links(page.match(/<nav[^]*?<\/nav>/)[0])).toEqual(links(navigation));
  });

  it("has no inline scripts and styles", () => {
    expect(page).not.toMatch(/<style| style=| on[a-z]+=|<script(?![^>]* src=)/);
    for (const name of ["playground", "stage", "design", "code", "client"])
      expect(file(`static/playground/${name}.js`)).not.toMatch(
        /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b/,
      );
  });
});
