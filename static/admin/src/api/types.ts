/** Names for what the API shows. `schema.d.ts` is made from the server's description; a test compares the two. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Alert = Schemas["AlertView"];
export type AppView = Schemas["AppView"];
export type Attempt = Schemas["AttemptView"];
export type Calendar = Schemas["CalendarView"];
export type Chart = Schemas["ChartView"];
export type DeadLetter = Schemas["DeadLetterView"];
export type Delivery = Schemas["DeliveryView"];
export type DeliveryState = Schemas["DeliveryState"];
export type Erasure = Schemas["ErasureView"];
export type Explanation = Schemas["ExplanationView"];
export type Flow = Schemas["FlowView"];
export type Found = Schemas["FoundDelivery"];
export type FoundPage = Schemas["FoundDeliveries"];
export type Group = Schemas["Group"];
export type Handled = Schemas["Handled"];
export type Lane = Schemas["LaneView"];
export type Methods = Schemas["Methods"];
export type Origin = Schemas["OriginView"];
export type ProblemBody = Schemas["Problem"];
export type Reading = Schemas["Reading"];
export type Reliability = Schemas["MetricsView"];
export type Role = Schemas["Role"];
export type Session = Schemas["SessionView"];
export type StorySentence = Schemas["Sentence"];
export type Subscription = Schemas["SubscriptionView"];
export type VapidKey = Schemas["VapidKeyView"];
