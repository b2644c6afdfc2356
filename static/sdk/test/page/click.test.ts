// @vitest-environment happy-dom
// @vitest-environment-options {"url": "https://shop.example/page"}
import { beforeEach, describe, expect, it } from "vitest";
import { Browser, SCOPE } from "./support";

let browser: Browser;
beforeEach(() => void (browser = new Browser()));

const click = { url: `${SCOPE}order/7`, action: "", data: { order: 7 } };

/** Posts what a worker posts. Resolves with the page's answer, undefined if there is none. */
async function post(message: object): Promise<unknown> {
  const answers: unknown[] = [];
  const ports = [{ postMessage: (answer: unknown) => answers.push(answer) }];
  browser.container.dispatchEvent(Object.assign(new Event("message"), { data: message, ports }));
  await new Promise((resolve) => setTimeout(resolve));
  return answers[0];
}

describe("a click in the worker", () => {
  const question = { type: "bellwire:click", scope: SCOPE };

  it("is asked for only while the page listens", async () => {
    const client = await browser.visit();
    expect(await post(question)).toBe(false);
    const heard: object[] = [];
    const off = client.on("click", (detail) => heard.push(detail));
    expect(await post(question)).toBe(true);
    expect(await post({ ...question, click })).toBeUndefined();
    expect(heard).toEqual([click]);
    off();
    expect(await post(question)).toBe(false);
  });

  it("of another scope is ignored", async () => {
    const client = await browser.visit();
    const heard: object[] = [];
    client.on("click", (detail) => heard.push(detail));
    expect(await post({ ...question, scope: `${SCOPE}blog/` })).toBeUndefined();
    await post({ ...question, scope: `${SCOPE}blog/`, click });
    await post({ type: "the site's own", click });
    expect(heard).toEqual([]);
  });
});
