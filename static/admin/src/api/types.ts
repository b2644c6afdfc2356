/** Names for what the API shows. `schema.d.ts` is made from the server's description; a test compares the two. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Alert = Schemas["AlertView"];
export type AppView = Schemas["AppView"];
export type Calendar = Schemas["CalendarView"];
export type Chart = Schemas["ChartView"];
export type Counts = Schemas["Counts"];
export type DeadLetter = Schemas["DeadLetterView"];
export type DryRun = Schemas["DryRun"];
export type Flow = Schemas["FlowView"];
export type Group = Schemas["Group"];
export type Handled = Schemas["Handled"];
export type Lane = Schemas["LaneView"];
export type Message = Schemas["MessageView"];
export type MessageProgress = Schemas["MessageProgress"];
export type MessageState = Schemas["SendState"];
export type Methods = Schemas["Methods"];
export type NewMessage = Schemas["NewMessageBody"];
export type Notification = Schemas["Notification"];
export type Origin = Schemas["OriginView"];
export type PolicyPreview = Schemas["Preview"];
export type Preset = Schemas["PresetView"];
export type ProblemBody = Schemas["Problem"];
export type Reading = Schemas["Reading"];
export type Reliability = Schemas["MetricsView"];
export type Role = Schemas["Role"];
export type Said = Schemas["ContentView"];
export type Sent = Schemas["Accepted"];
export type Session = Schemas["SessionView"];
export type Tier = Schemas["Tier"];
export type Timetable = Schemas["Timetable"];
export type Topic = Schemas["TopicView"];
