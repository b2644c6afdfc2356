/** Names for what the API shows. `schema.d.ts` is made from the server's description; a test compares the two. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Alert = Schemas["AlertView"];
export type AppView = Schemas["AppView"];
export type Attempt = Schemas["AttemptView"];
export type Calendar = Schemas["CalendarView"];
export type Campaign = Schemas["Campaign"];
export type CampaignCounts = Schemas["CampaignCounts"];
export type CampaignHour = Schemas["CampaignHour"];
export type CampaignLocale = Schemas["CampaignLocaleView"];
/** A campaign as its author writes it. */
export type CampaignPlan = Schemas["CampaignBody"];
export type CampaignProgress = Schemas["CampaignProgress"];
export type CampaignRun = Schemas["CampaignRunView"];
export type CampaignRunFigures = Schemas["CampaignRunFigures"];
export type CampaignSchedule = Schemas["CampaignSchedule"];
export type CampaignStanding = Schemas["CampaignStanding"];
export type CampaignVariant = Schemas["CampaignVariantView"];
export type Cap = Schemas["Cap"];
export type Chart = Schemas["ChartView"];
export type Counts = Schemas["MessageCounts"];
export type DeadLetter = Schemas["DeadLetterView"];
export type Delivery = Schemas["DeliveryView"];
export type DeliveryState = Schemas["DeliveryState"];
/** A report of a browser about itself, for support. */
export type Diagnosis = Schemas["Diagnosis"];
export type DryRun = Schemas["DryRun"];
export type Engagement = Schemas["EngagementView"];
/** Engagement at one push service. */
export type EngagementAt = Schemas["GatewayView"];
export type Erasure = Schemas["ErasureView"];
export type Explanation = Schemas["ExplanationView"];
/** Something that was taken out of an app. */
export type Export = Schemas["Export"];
export type Finding = Schemas["Finding"];
export type Flow = Schemas["FlowView"];
export type Found = Schemas["FoundDelivery"];
export type Gateway = Schemas["Gateway"];
export type FoundPage = Schemas["FoundDeliveries"];
export type Group = Schemas["DeadLetterGroup"];
export type Guard = Schemas["GuardView"];
export type Handled = Schemas["Handled"];
export type Import = Schemas["Import"];
export type ImportFault = Schemas["ImportFault"];
export type SampleRow = Schemas["SampleRow"];
export type Lane = Schemas["LaneView"];
export type Message = Schemas["MessageView"];
export type MessageProgress = Schemas["MessageProgress"];
export type MessageState = Schemas["SendState"];
export type Methods = Schemas["Methods"];
export type NewMessage = Schemas["NewMessageBody"];
export type NewWebhook = Schemas["NewWebhook"];
export type Notification = Schemas["Notification"];
export type OpenedLetter = Schemas["DeadLetterDetail"];
export type Origin = Schemas["OriginView"];
/** A delivery policy as it was written. */
export type Policy = Record<string, unknown>;
export type PolicyOverview = Schemas["Overview"];
export type PolicyPlace = Schemas["PolicyLevel"];
export type PolicyView = Schemas["PolicyView"];
export type Preset = Schemas["PresetView"];
export type Preview = Schemas["Preview"];
export type PreviewBody = Schemas["PreviewBody"];
export type PreviewRow = Schemas["RetrySpan"];
export type ProblemBody = Schemas["Problem"];
export type Reading = Schemas["MetricReading"];
export type Reliability = Schemas["MetricsView"];
export type Role = Schemas["Role"];
export type Said = Schemas["ContentView"];
export type Sent = Schemas["Accepted"];
export type Segment = Schemas["SegmentView"];
export type SegmentPreview = Schemas["SegmentPreview"];
export type Session = Schemas["SessionView"];
export type Simulation = Schemas["Simulation"];
export type StoredTemplate = Schemas["TemplateView"];
export type StorySentence = Schemas["Sentence"];
export type Subscription = Schemas["SubscriptionView"];
export type SunsetRule = Schemas["SunsetRule"];
export type Template = Schemas["Template"];
export type TemplateCheck = Schemas["TemplateCheck"];
export type TemplateCheckBody = Schemas["TemplateCheckBody"];
export type TemplatePreview = Schemas["TemplatePreview"];
export type TemplatePreviewBody = Schemas["TemplatePreviewBody"];
export type Tier = Schemas["Tier"];
export type Timetable = Schemas["Timetable"];
export type Topic = Schemas["TopicView"];
export type VapidKey = Schemas["VapidKeyView"];
export type Webhook = Schemas["WebhookView"];
export type WebhookChange = Schemas["WebhookChange"];
export type WebhookEvent = Schemas["EventType"];
/** A request to a webhook's receiver. */
export type WebhookRequest = Schemas["WebhookDeliveryView"];
/** The same with its tries. */
export type WebhookStory = Schemas["WebhookDeliveryStory"];
export type WebhookTry = Schemas["WebhookAttempt"];
