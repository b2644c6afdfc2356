/** Requests of the policy pages. */
import { api, told } from "../../api/client";
import { tagOf, type Condition } from "../../api/edit";
import { Refusal } from "../../api/problem";
import type {
  FlowResponse,
  Policy,
  PolicyOverview,
  PolicyResponse,
  PolicyResponsePage,
  PolicyPreset,
  PolicyPreviewResponse,
  PolicyPreviewRequest,
  Simulation,
  Tier,
} from "../../api/types";
import type { Scenario } from "../../lib/policies";

export const TIERS: readonly Tier[] = ["transactional", "promotional", "engagement"];

/** Places that have policies of their own, by how addresses name them. */
export const PLACES = { tiers: "tier", topics: "topic", subscriptions: "subscription" } as const;
export type PlaceName = keyof typeof PLACES;

export const loadOverview = (app: string, signal: AbortSignal): Promise<PolicyOverview> =>
  told(api.GET("/v1/apps/{app}/policies", { params: { path: { app } }, signal }));

export const loadTopics = (
  app: string,
  iterator: string | undefined,
  signal: AbortSignal,
  limit = 50,
): Promise<PolicyResponsePage> =>
  told(api.GET("/v1/apps/{app}/policies/topics", { params: { path: { app }, query: { limit, iterator } }, signal }));

/** Default policy of each tier. */
export const loadTiers = (app: string, signal: AbortSignal): Promise<PolicyPreviewResponse[]> =>
  Promise.all(TIERS.map((tier) => preview(app, { tier }, signal)));

export const loadPresets = async (app: string, signal: AbortSignal): Promise<PolicyPreset[]> =>
  (await told(api.GET("/v1/apps/{app}/policies/presets", { params: { path: { app } }, signal }))).data;

export const preview = async (
  app: string,
  body: PolicyPreviewRequest,
  signal: AbortSignal,
): Promise<PolicyPreviewResponse> =>
  (await told(
    api.POST("/v1/apps/{app}/policies/preview", { params: { path: { app } }, body, signal }),
  )) as PolicyPreviewResponse;

export const simulate = (app: string, scenario: Scenario, body: PolicyPreviewRequest): Promise<Simulation> =>
  told(api.POST("/v1/apps/{app}/policies/simulate", { params: { path: { app }, query: { scenario } }, body }));

/** Policy of a level. */
export async function loadPlace(
  app: string,
  place: PlaceName,
  name: string,
  signal: AbortSignal,
): Promise<PolicyResponse> {
  switch (place) {
    case "tiers":
      return told(api.GET("/v1/apps/{app}/policies/tiers/{tier}", { params: { path: { app, tier: name } }, signal }));
    case "topics":
      return told(
        api.GET("/v1/apps/{app}/policies/topics/{topic}", { params: { path: { app, topic: name } }, signal }),
      ).catch((thrown: unknown) => {
        // A topic may have a policy before anybody has joined it.
        if (thrown instanceof Refusal && thrown.status === 404)
          return { level: PLACES[place], name, policy: null, warnings: [] };
        throw thrown;
      });
    case "subscriptions":
      return told(
        api.GET("/v1/apps/{app}/policies/subscriptions/{subscription}", {
          params: { path: { app, subscription: name } },
          signal,
        }),
      );
  }
}

/** Policy at the start of an edit. Undefined: a topic without a policy. */
export const begunOf = (view: PolicyResponse): PolicyResponse | undefined => (tagOf(view) ? view : undefined);

/** Due deliveries of the app, which a change of policy affects. */
export const loadFlow = (app: string, signal: AbortSignal): Promise<FlowResponse> =>
  told(api.GET("/v1/apps/{app}/flow", { params: { path: { app } }, signal }));

/** Sets a policy; null takes it away. It stands in the audit log. */
export async function set(
  app: string,
  place: PlaceName,
  name: string,
  policy: Policy | null,
  header: Condition,
): Promise<void> {
  switch (place) {
    case "tiers": {
      const to = { params: { path: { app, tier: name }, header } };
      await (policy
        ? told(api.PUT("/v1/apps/{app}/policies/tiers/{tier}", { ...to, body: policy }))
        : told(api.DELETE("/v1/apps/{app}/policies/tiers/{tier}", to)));
      return;
    }
    case "topics": {
      const to = { params: { path: { app, topic: name }, header } };
      await (policy
        ? told(api.PUT("/v1/apps/{app}/policies/topics/{topic}", { ...to, body: policy }))
        : told(api.DELETE("/v1/apps/{app}/policies/topics/{topic}", to)));
      return;
    }
    case "subscriptions": {
      const to = { params: { path: { app, subscription: name }, header } };
      await (policy
        ? told(api.PUT("/v1/apps/{app}/policies/subscriptions/{subscription}", { ...to, body: policy }))
        : told(api.DELETE("/v1/apps/{app}/policies/subscriptions/{subscription}", to)));
      return;
    }
  }
}

/** Delivery for which a policy is previewed: of that tier, topic or subscription. A topic without a policy need not exist. */
export function about(
  place: PlaceName,
  name: string,
  tier: Tier,
  policy: Policy | undefined,
  isSet: boolean,
): PolicyPreviewRequest {
  const tried = policy ? { policy, level: PLACES[place] } : {};
  switch (place) {
    case "tiers":
      return { tier: name as Tier, ...tried };
    case "topics":
      return policy || isSet ? { tier, topic: name, ...tried } : { tier };
    case "subscriptions":
      return { tier, subscription: name, ...tried };
  }
}
