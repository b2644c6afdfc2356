import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import vm from "node:vm";
import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";

const read = (name) => readFileSync(new URL(`../dist/${name}`, import.meta.url));

describe("what is built", () => {
  it("keeps the SDK within its budget, as one module that exports init", () => {
    expect(gzipSync(read("bellwire.js"), { level: 9 }).length).toBeLessThanOrEqual(6_500);
    const code = read("bellwire.js").toString();
    expect(code).not.toMatch(/sourceMappingURL|\bimport\s*[{*"']/);
    expect(code.match(/export\s*\{([^}]*)\}/)[1]).toMatch(/^\s*\w+ as init\s*$/);
  });

  it("does no harm where there is no window, as on a server that renders pages", () => {
    const script = `
      import { init } from ${JSON.stringify(new URL("../dist/bellwire.js", import.meta.url))};
      const bellwire = init({ app: "shop", userId: null });
      const off = bellwire.on("change", () => {});
      const told = [await bellwire.ready, await bellwire.subscribe(), await bellwire.login("ann", "signed"), await bellwire.logout()];
      told.push(await bellwire.setTopics([]), await bellwire.prompt(), await bellwire.credentials(), off());
      console.log(JSON.stringify(told));`;
    const told = JSON.parse(execFileSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8" }));
    const state = { state: "no-window" };
    const failed = { ok: false, status: state, reason: "no-window", message: expect.any(String), retrying: false };
    expect(told).toEqual([state, failed, failed, failed, failed, { answer: "not-needed" }, null, null]);
  });

  it("makes the worker a classic script with one global, also when it is imported twice", () => {
    const listeners = [];
    const self = {
      location: new URL("https://shop.example/sw.js?app=shop"),
      registration: { scope: "https://shop.example/" },
      addEventListener: (type) => listeners.push(type),
    };
    const context = vm.createContext({ self, URL, Map, Set, Promise });
    const before = Object.keys(context);
    const script = new vm.Script(read("service-worker.js").toString());
    script.runInContext(context);
    script.runInContext(context);
    expect(Object.keys(context)).toEqual(before);
    expect(Object.keys(self)).toEqual(["location", "registration", "addEventListener", "bellwire"]);
    const events = ["push", "notificationclick", "notificationclose", "pushsubscriptionchange", "message", "sync"];
    expect(listeners).toEqual(events);
  });

  it("names the types that it ships", () => {
    expect(read("bellwire.d.ts").toString()).toContain("function init(options: Options): Client");
    expect(read("api.d.ts").toString()).toContain("./types.js");
    expect(read("worker/api.d.ts").toString()).toContain("interface Bellwire");
  });
});
