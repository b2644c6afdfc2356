// @vitest-environment happy-dom
import { act, createElement, createRef, type RefObject } from "react";
import { createRoot } from "react-dom/client";
import { renderToString } from "react-dom/server";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { createApp, createSSRApp, h, shallowRef } from "vue";
import { renderToString as renderVue } from "vue/server-renderer";
import type { Client, Status } from "../../src/bellwire";
import * as react from "../../src/react";
import type { BellwirePromptElement } from "../../src/ui";
import * as vue from "../../src/vue";
import { countListeners } from "./listeners";
import { PROMPT } from "../ui/support";

type Found = HTMLElement & { client?: Client };
interface Mounted {
  element: Found;
  /** Element that the site's `ref` holds. */
  held(): Found | null;
  render(attributes: object): Promise<void>;
  end(): void;
}

const COMPONENTS = ["BellwirePrompt", "BellwireBell", "BellwirePreferences"] as const;
type Component = (typeof COMPONENTS)[number];
const tagOf = (component: Component) =>
  component.replace("B", "b").replace(/[A-Z]/, (letter) => `-${letter.toLowerCase()}`);

/** Client of a browser without a subscription. */
function fakeClient() {
  const listeners = new Set<unknown>();
  const status: Status = { state: "unsubscribed", permission: "default" };
  const client = {
    options: { app: "shop", server: "https://push.example" },
    ready: Promise.resolve(status),
    status: async () => status,
    on: (_: string, listener: unknown) => (listeners.add(listener), () => listeners.delete(listener)),
  };
  return { client: client as unknown as Client, listeners };
}

async function mountReact(component: Component, props: { client: Client }): Promise<Mounted> {
  const box = document.body.appendChild(document.createElement("div"));
  const root = createRoot(box);
  const ref = createRef<never>() as RefObject<Found | null>;
  const render = (attributes: object) =>
    act(async () => root.render(createElement(react[component] as never, { ...props, ...attributes, ref })));
  await render({ layout: "bar", id: "mine", className: "wide" });
  return {
    element: box.querySelector<Found>(tagOf(component))!,
    held: () => ref.current,
    render,
    end: () => act(() => root.unmount()),
  };
}

async function mountVue(component: Component, props: { client: Client }): Promise<Mounted> {
  const box = document.body.appendChild(document.createElement("div"));
  const ref = shallowRef<{ $el: Found } | null>(null);
  const attributes = shallowRef<object>({ layout: "bar", id: "mine", class: "wide" });
  const app = createApp({ setup: () => () => h(vue[component], { ...props, ...attributes.value, ref }) });
  app.mount(box);
  return {
    element: box.querySelector<Found>(tagOf(component))!,
    held: () => ref.value?.$el ?? null,
    render: async (next) => void (attributes.value = next),
    end: () => app.unmount(),
  };
}

beforeEach(() => {
  Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true });
  document.body.replaceChildren();
  localStorage.clear();
  vi.stubGlobal("fetch", async () => Response.json({}));
});

describe.each([
  ["react", mountReact],
  ["vue", mountVue],
] as const)("components of %s", (_, mount) => {
  it.each(COMPONENTS)("give the element client and attributes: %s", async (component) => {
    const [first, second] = [fakeClient(), fakeClient()];
    const { element, render } = await mount(component, first);
    expect([element.getAttribute("layout"), element.id, element.className]).toEqual(["bar", "mine", "wide"]);
    await vi.waitFor(() => expect(element.client).toBe(first.client));
    await render({ client: second.client, page: "/cart" });
    await vi.waitFor(() => expect(element.client).toBe(second.client));
    expect(element.getAttribute("page")).toBe("/cart");
  });

  it.each(COMPONENTS)("give the site the element: %s", async (component) => {
    const { element, held, end } = await mount(component, fakeClient());
    expect(element.localName).toBe(tagOf(component));
    expect(held()).toBe(element);
    end();
    expect(held()).toBeNull();
  });

  it("let the site show the prompt", async () => {
    const { client } = fakeClient();
    const { element, held } = await mount("BellwirePrompt", { client });
    await vi.waitFor(() => expect(element.client).toBe(client));
    expect(await (held() as BellwirePromptElement).show()).toBe(true);
    expect(element.shadowRoot!.querySelector(".bar")).not.toBeNull();
  });

  it.each(COMPONENTS)("leave no listener: %s", async (component) => {
    vi.stubGlobal("fetch", async () => Response.json({ prompt: PROMPT }));
    const fake = fakeClient();
    const globals = countListeners();
    const counts = [];
    for (let round = 0; round < 3; round++) {
      const { element, end } = await mount(component, fake);
      await vi.waitFor(() => expect(element.client).toBe(fake.client));
      await vi.waitFor(() => expect(fake.listeners.size).toBeGreaterThan(1));
      end();
      counts.push([fake.listeners.size, globals()]);
    }
    const [first] = counts;
    expect(first![0]).toBe(1); // it follows the client for all elements
    expect(counts).toEqual([first, first, first]);
  });
});

describe("the ref of a React component", () => {
  it("may be a function", async () => {
    const { client } = fakeClient();
    const held: unknown[] = [];
    const root = createRoot(document.body.appendChild(document.createElement("div")));
    const ref = (element: HTMLElement | null) => void held.push(element);
    await act(async () => root.render(createElement(react.BellwireBell, { client, ref })));
    const element = document.querySelector("bellwire-bell");
    await vi.waitFor(() => expect(element!.client).toBe(client));
    act(() => root.unmount());
    expect(held).toEqual([element, null]);
  });
});

describe("components on a server", () => {
  it.each(COMPONENTS)("render without loading the elements: %s", async (component) => {
    const { client } = fakeClient();
    const [tag, html] = [tagOf(component), { id: "mine" }];
    const rendered = `<${tag} id="mine"></${tag}>`;
    expect(renderToString(createElement(react[component] as never, { client, ...html }))).toBe(rendered);
    const app = createSSRApp({ render: () => h(vue[component], { client, ...html }) });
    expect(await renderVue(app)).toBe(rendered);
  });
});
