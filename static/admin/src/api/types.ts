/** Names for what the API shows. `schema.d.ts` is made from the server's description; a test compares the two. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type AppView = Schemas["AppView"];
export type Alert = Schemas["AlertView"];
export type Chart = Schemas["ChartView"];
export type DeadLetter = Schemas["DeadLetterView"];
export type Flow = Schemas["FlowView"];
export type Group = Schemas["Group"];
export type Handled = Schemas["Handled"];
export type Lane = Schemas["LaneView"];
export type Methods = Schemas["Methods"];
export type Origin = Schemas["OriginView"];
export type Finding = Schemas["Finding"];
export type OpenedLetter = Schemas["Opened"];
/** A delivery policy as it was written. */
export type Policy = Record<string, unknown>;
export type PolicyOverview = Schemas["Overview"];
export type PolicyPlace = Schemas["Place"];
export type PolicyView = Schemas["PolicyView"];
export type Preset = Schemas["PresetView"];
export type Preview = Schemas["Preview"];
export type PreviewBody = Schemas["PreviewBody"];
export type PreviewRow = Schemas["Row"];
export type ProblemBody = Schemas["Problem"];
export type Reading = Schemas["Reading"];
export type Reliability = Schemas["MetricsView"];
export type Role = Schemas["Role"];
export type Simulation = Schemas["Simulation"];
export type Tier = Schemas["Tier"];
export type Timetable = Schemas["Timetable"];
export type Session = Schemas["SessionView"];
