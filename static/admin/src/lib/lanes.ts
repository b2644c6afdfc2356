/** Meaning of a lane's state, and effect of an order, as texts. Pure. */
import type { FlowResponse, LaneResponse, GatewayOrigin } from "../api/types";
import { atLeast, capital, clockTime, duration, things, type Zone } from "./format";
import { serviceName, type Tone } from "./words";

/** Origins' states, from the gravest. */
export const STATES = ["held", "open", "probing", "flowing"] as const;
export type LaneState = (typeof STATES)[number];

export const STATE_WORDS: Record<LaneState, { word: string; tone: Tone }> = {
  held: { word: "Held", tone: "retrying" },
  open: { word: "Open", tone: "lost" },
  probing: { word: "Probing", tone: "waiting" },
  flowing: { word: "Healthy", tone: "accepted" },
};

export function originState(origin: GatewayOrigin): LaneState {
  if (origin.held_until) return "held";
  if (origin.breaker === "open") return "open";
  if (origin.breaker === "half_open") return "probing";
  return "flowing";
}

/** The origin that is worst off; none: nothing is in force anywhere. */
export function worstOrigin(lane: LaneResponse): GatewayOrigin | undefined {
  const gravity = (origin: GatewayOrigin) => STATES.indexOf(originState(origin));
  return [...lane.origins].sort((a, b) => gravity(a) - gravity(b) || until(b) - until(a))[0];
}

/** Origins to list: those in the hold of all origins repeat it, unless something else holds them, too. */
export function originsOf({ origins }: LaneResponse): GatewayOrigin[] {
  const all = origins.find(({ origin }) => origin === "*");
  const repeats = (one: GatewayOrigin) =>
    one.breaker === "closed" && one.held_until === all?.held_until && one.held_reason === all?.held_reason;
  return origins.filter((one) => one === all || !all?.held_until || !repeats(one));
}

const until = (origin: GatewayOrigin) => Date.parse(origin.held_until ?? origin.open_until ?? "") || 0;

/** State of a lane's worst origin, which needs the action. */
export function laneState(lane: LaneResponse): LaneState {
  const worst = worstOrigin(lane);
  return worst ? originState(worst) : "flowing";
}

/** A push service with its lanes: one for each app and VAPID key. */
export interface Service {
  gateway: string;
  /** The worst state first, then by subscriptions. */
  lanes: LaneResponse[];
  subscriptions: number;
}

const byGravity = (a: LaneResponse, b: LaneResponse) =>
  STATES.indexOf(laneState(a)) - STATES.indexOf(laneState(b)) || b.subscriptions - a.subscriptions;

/** Push services, the worst state first. */
export function services(lanes: readonly LaneResponse[]): Service[] {
  const byName = new Map<string, Service>();
  for (const lane of [...lanes].sort(byGravity)) {
    const service = byName.get(lane.gateway) ?? { gateway: lane.gateway, lanes: [], subscriptions: 0 };
    service.lanes.push(lane);
    service.subscriptions += lane.subscriptions;
    byName.set(lane.gateway, service);
  }
  return [...byName.values()];
}

/** State of several lanes: the worst, with the number of lanes in trouble, `Held for 2 of 5`. */
export function stateOf(lanes: readonly LaneResponse[]): { word: string; tone: Tone } {
  const ill = lanes.filter((lane) => laneState(lane) !== "flowing");
  const worst = ill.map(laneState).sort((a, b) => STATES.indexOf(a) - STATES.indexOf(b))[0] ?? "flowing";
  const { word, tone } = STATE_WORDS[worst];
  return {
    word: ill.length === 0 || ill.length === lanes.length ? word : `${word} for ${ill.length} of ${lanes.length}`,
    tone,
  };
}

/** Reason of the state: `Mozilla asked for a pause until 14:32`. `app`: name of the lane's app, if others are not affected. */
export function because(lane: LaneResponse, now: Date, zone: Zone, app?: string): string {
  const reason = reasonOf(lane, now, zone);
  return app ? `${app}: ${reason.replace(/^An /, "an ")}` : capital(reason);
}

function reasonOf(lane: LaneResponse, now: Date, zone: Zone): string {
  const gateway = serviceName(lane.gateway);
  const origin = worstOrigin(lane);
  const at = (time: string | null | undefined) => (time ? ` until ${clockTime(new Date(time), now, zone)}` : "");
  switch (origin ? originState(origin) : "flowing") {
    case "held":
      if (origin?.held_reason === "operator") {
        return `An operator holds ${gateway}${at(origin.held_until)}${origin.held_note ? `: ${origin.held_note}` : ""}`;
      }
      if (origin?.held_reason === "key_refused")
        return `${gateway} refuses the VAPID key; on hold${at(origin.held_until)}`;
      if (origin?.held_reason === "mass_gone")
        return `${gateway} suddenly reports many subscriptions as gone; on hold${at(origin.held_until)}, none is pruned yet`;
      return `${gateway} asked for a pause${at(origin?.held_until)}`;
    case "open":
      return `${gateway} kept failing; nothing is sent${at(origin?.open_until)}, then one probe`;
    case "probing":
      return `${gateway} is being probed; sending resumes after the first success`;
    default:
      return `${gateway} accepts deliveries`;
  }
}

export const ORDERS = ["hold", "release", "open", "close", "probe"] as const;
export type Order = (typeof ORDERS)[number];

interface OrderWords {
  title: string;
  /** Whether it takes a length of time, and a reason. */
  lasts: boolean;
  reasoned: boolean;
}

export const ORDER_WORDS: Record<Order, OrderWords> = {
  hold: { title: "Hold", lasts: true, reasoned: true },
  release: { title: "Release", lasts: false, reasoned: false },
  open: { title: "Open the breaker", lasts: true, reasoned: false },
  close: { title: "Close the breaker", lasts: false, reasoned: false },
  probe: { title: "Probe", lasts: false, reasoned: false },
};

/** Orders that have an effect in this state. */
export function sensible(state: LaneState): readonly Order[] {
  switch (state) {
    case "held":
      return ["release", "hold"];
    case "open":
    case "probing":
      return ["close", "hold"];
    default:
      return ["hold", "open", "probe"];
  }
}

/** Effect of an order, with counts. */
export function consequence(
  order: Order,
  lane: LaneResponse,
  flow: Pick<FlowResponse, "waiting" | "waiting_or_more"> | undefined,
): string {
  const gateway = serviceName(lane.gateway);
  const many =
    flow &&
    `${flow.waiting_or_more ? atLeast(flow.waiting, true) : things(flow.waiting, "delivery", "deliveries")}${flow.waiting_or_more ? " deliveries" : ""}`;
  const now = many
    ? `${capital(many)} ${flow.waiting === 1 ? "waits" : "wait"} there now.`
    : "The number of waiting deliveries is unknown at the moment.";
  const reach = `The lane has ${things(lane.subscriptions, "active subscription")}.`;
  switch (order) {
    case "hold":
      return `Nothing is sent to ${gateway} until the hold ends or an operator releases it. Waiting deliveries keep waiting, and expire if their time to live ends first. ${now} ${reach}`;
    case "release":
      return `The hold ends, and sending to ${gateway} resumes within a second. ${now} If the push service asks for another pause, Bellwire waits again.`;
    case "open":
      return `The breaker stays open for the given time: nothing is sent to ${gateway}, then one probe goes first. ${now} ${reach}`;
    case "close":
      return `One probe is sent to ${gateway} now. If it succeeds, sending resumes. ${now}`;
    case "probe":
      return `Only single probes are sent to ${gateway} until one succeeds; then sending resumes. ${now}`;
  }
}

/** Lengths that an order can be given, in seconds. */
export const LENGTHS = [900, 3_600, 14_400, 86_400] as const;
export const lengthWords = (seconds: number): string => duration(seconds);

/** Choices of how long ago subscriptions to restore were pruned, in seconds. */
export const PRUNED_WITHIN = [3_600, 6 * 3_600, 86_400, 7 * 86_400] as const;

/** Number of subscriptions that a restore would restore, or has restored. */
export const restoreWords = (found: number, restored: number | undefined): string =>
  restored === undefined
    ? `${things(found, "subscription")} would be active again.`
    : `${things(restored, "subscription")} ${restored === 1 ? "is" : "are"} active again.`;
