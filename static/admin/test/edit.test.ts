import { describe, expect, it, vi } from "vitest";
import { Changed, differences, Edit, keepTag, type Condition } from "../src/api/edit";
import { Refusal } from "../src/api/problem";

interface Thing {
  text: string;
  /** Changes by itself. */
  waiting: number;
}

/** A server with one thing on it. */
class Server {
  asked: Condition[] = [];
  constructor(public thing: Thing | undefined) {}

  read = async (): Promise<Thing> => {
    if (!this.thing) throw new Refusal(404, { code: "not_found" });
    const told = { ...this.thing };
    keepTag(told, new Headers({ etag: JSON.stringify(this.thing) }));
    return told;
  };

  put = (text: string) => async (condition: Condition) => {
    this.asked.push(condition);
    const now = this.thing && JSON.stringify(this.thing);
    const holds = condition["If-None-Match"]
      ? now === undefined
      : condition["If-Match"] === undefined || condition["If-Match"] === now;
    if (!holds) throw new Refusal(412, { code: "precondition_failed", detail: "It has been changed." });
    this.thing = { text, waiting: this.thing?.waiting ?? 0 };
    return text;
  };

  async begin(more: { begun?: Thing | undefined; isLive?: boolean; reload?: () => void } = {}): Promise<Edit<Thing>> {
    const begun = "begun" in more ? more.begun : await this.read();
    return new Edit<Thing>({ load: this.read, written: ({ text }) => ({ text }), reload: () => {}, ...more, begun });
  }
}

const thrownBy = async (work: Promise<unknown>): Promise<unknown> =>
  work.then(() => undefined).catch((thrown: unknown) => thrown);

describe("a change", () => {
  it("is sent with the ETag of its beginning", async () => {
    const server = new Server({ text: "a", waiting: 0 });
    const edit = await server.begin();
    expect(await edit.save(server.put("b"))).toBe("b");
    expect(server.asked).toEqual([{ "If-Match": '{"text":"a","waiting":0}' }]);
  });

  it("shows a conflict and overwrites on request", async () => {
    const server = new Server({ text: "a", waiting: 0 });
    const reload = vi.fn();
    const edit = await server.begin({ reload });
    server.thing = { text: "theirs", waiting: 0 };
    const changed = (await thrownBy(edit.save(server.put("b")))) as Changed;
    expect(changed).toBeInstanceOf(Changed);
    expect([changed.status, changed.differs, server.thing.text]).toEqual([
      412,
      [{ member: "text", theirs: "theirs" }],
      "theirs",
    ]);
    changed.reload();
    expect(reload).toHaveBeenCalledOnce();
    changed.accept();
    // But not over a third one's.
    server.thing = { text: "third", waiting: 0 };
    expect(await thrownBy(edit.save(server.put("b")))).toBeInstanceOf(Changed);
    server.thing = { text: "theirs", waiting: 0 };
    await edit.save(server.put("b"));
    expect(server.thing.text).toBe("b");
  });

  it("ignores volatile members and stops after several attempts", async () => {
    const server = new Server({ text: "a", waiting: 0 });
    const edit = await server.begin();
    server.thing = { text: "a", waiting: 7 };
    await edit.save(server.put("b"));
    expect([server.thing, server.asked.length]).toEqual([{ text: "b", waiting: 7 }, 2]);

    const restless = await server.begin();
    const put = server.put("c");
    const gaveUp = await thrownBy(restless.save(async (condition) => ((server.thing!.waiting += 1), put(condition))));
    expect([gaveUp instanceof Refusal && gaveUp.status, gaveUp instanceof Changed]).toEqual([412, false]);
  });

  it("of volatile members uses a fresh ETag", async () => {
    const server = new Server({ text: "a", waiting: 0 });
    const edit = await server.begin({ begun: { text: "a", waiting: 3 }, isLive: true });
    await edit.save(server.put("b"));
    expect(server.asked.length).toBe(1);
    const late = await server.begin({ begun: { text: "a", waiting: 3 }, isLive: true });
    expect(await thrownBy(late.save(server.put("c")))).toBeInstanceOf(Changed);
    expect(server.asked.length).toBe(1);
  });

  it("creates only what does not exist", async () => {
    const server = new Server(undefined);
    await (await server.begin({ begun: undefined })).save(server.put("new"));
    expect(server.asked).toEqual([{ "If-None-Match": "*" }]);
    const second = await thrownBy((await server.begin({ begun: undefined })).save(server.put("mine")));
    expect((second as Changed).differs).toEqual([{ member: "text", theirs: "new" }]);
    expect(server.thing).toMatchObject({ text: "new" });
  });

  it("passes on other errors, deletion included", async () => {
    const server = new Server({ text: "a", waiting: 0 });
    const edit = await server.begin();
    const busy = new Refusal(503, {});
    expect(await thrownBy(edit.save(() => Promise.reject(busy)))).toBe(busy);
    server.thing = undefined;
    expect(await thrownBy(edit.save(server.put("b")))).toMatchObject({ status: 404 });
  });
});

it("compares members by value, ignoring order and null", () => {
  expect(differences({ a: { x: 1, y: 2 }, b: null, c: [1, 2] }, { a: { y: 2, x: 1 }, c: [2, 1], d: "new" })).toEqual([
    { member: "c", theirs: [2, 1] },
    { member: "d", theirs: "new" },
  ]);
  expect(differences({ a: 1 }, {})).toEqual([{ member: "a", theirs: undefined }]);
});
