import { readFileSync } from "node:fs";
import vm from "node:vm";
import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";

const read = (name) => readFileSync(new URL(`../dist/${name}`, import.meta.url));

describe("what is built", () => {
  it("keeps the SDK within its budget, as one module that exports init", () => {
    expect(gzipSync(read("bellwire.js"), { level: 9 }).length).toBeLessThanOrEqual(6_100);
    const code = read("bellwire.js").toString();
    expect(code).not.toMatch(/sourceMappingURL|\bimport\s*[{*"']/);
    expect(code.match(/export\s*\{([^}]*)\}/)[1]).toMatch(/^\s*\w+ as init\s*$/);
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
