import { describe, expect, it } from "vitest";
import {
  entriesOf,
  entryFault,
  parameterFault,
  parametersFault,
  parametersOf,
  parametersText,
} from "../src/lib/link-parameters";

const TEXT = "utm_source=push\n\n  ref = a=b \n";

describe("parameters of links", () => {
  it("are lines of name and value", () => {
    expect(parametersOf(TEXT)).toEqual({ utm_source: "push", ref: "a=b" });
    expect(parametersText(parametersOf(TEXT))).toBe("utm_source=push\nref=a=b");
    expect([parametersOf(""), parametersText({})]).toEqual([{}, ""]);
  });

  it.each([
    ["", undefined],
    [TEXT, undefined],
    ["a=1\n\nb", "line 3 must be a name and a value, such as `utm_source=push`"],
    ["=1", "line 1 must be a name and a value, such as `utm_source=push`"],
    ["a=", "line 1 must be a name and a value, such as `utm_source=push`"],
    ["a=1\na=2", "line 2 repeats the name `a`"],
  ])("%j has the fault %s", (text, fault) => expect(parametersFault(text)).toBe(fault));

  it("show faults of the server with lines", () => {
    const problem = { faults: [{ where: "/link_parameters/a~1b", detail: "must have a name" }] };
    expect(parameterFault(problem, "/link_parameters", "c=1\n\na/b=2")).toBe("line 3 must have a name");
    expect(parameterFault(problem, "/link_parameters", "c=1")).toBe("must have a name");
    expect([parameterFault(undefined, "/link_parameters", ""), parameterFault(problem, "/other", "")]).toEqual([
      undefined,
      undefined,
    ]);
  });
});

describe("hosts", () => {
  it("are the lines that are not empty", () => {
    expect(entriesOf("a.example\n\n *.b.example ")).toEqual(["a.example", "*.b.example"]);
    const problem = { faults: [{ where: "/link_tags/hosts/1", detail: "must be a host" }] };
    expect(entryFault(problem, "/link_tags/hosts", "a.example\n\nb:80")).toBe("line 3 must be a host");
    const whole = { faults: [{ where: "/link_tags/hosts", detail: "must be 1 to 50 hosts" }] };
    expect(entryFault(whole, "/link_tags/hosts", "a.example")).toBe("must be 1 to 50 hosts");
  });
});
