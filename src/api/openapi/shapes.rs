//! Bounds of strings and numbers by the names of members and parameters. A name has the same bounds everywhere. Handlers check
//! them; this module documents them for generated clients and forms.

use serde_json::{Map, Value, json};

use bellwire_core::id::UUID_PATTERN;

/// Largest integer that a JSON number represents exactly: 2^53 - 1.
const EXACT_MAX: i64 = 9_007_199_254_740_991;
/// Upper bound for the length of any string in a response.
const TEXT_MAX: u32 = 65_536;

/// Constraint of a string.
enum Text {
    /// Minimum and maximum number of characters.
    Long(u32, u32),
    /// Id with this prefix.
    Id(&'static str),
    /// Regular expression of the text.
    Like(&'static str),
}
use Text::{Id, Like, Long};

const TOPIC: Text = Like("^[A-Za-z0-9_.~%-]{1,128}$");
const SEGMENT: Text = Like("^[a-z0-9][a-z0-9-]{0,63}$");
const TEMPLATE: Text = Like("^[a-z0-9][a-z0-9-]{0,63}$");
const SLUG: Text = Like("^[a-z0-9][a-z0-9-]{0,62}$");
const CLOCK: Text = Like("^[0-2][0-9]:[0-5][0-9]$");
const BASE64URL: Text = Like("^[A-Za-z0-9_-]+$");

/// Texts by `Schema.member`, or by the member's or parameter's name.
const TEXTS: &[(&[&str], Text)] = &[
    // What an app may be named by in a path, and what it is called in an answer.
    (&["path.app", "query.app"], Like("^(app_[0-9a-f-]{36}|[a-z0-9][a-z0-9-]{0,62})$")),
    (&["app"], Id("app_")),
    (&["path.alert"], Id("al_")),
    (&["path.api_key"], Id("ak_")),
    (&["path.dead_letter", "dead_letter"], Id("dl_")),
    (&["path.erasure"], Id("ers_")),
    (&["path.code"], Long(8, 32)),
    (&["Diagnosis.code"], Like("^[0-9A-HJKMNP-TV-Z]{8}$")),
    (&["DiagnosisCheck.name"], Long(1, 40)),
    (&["found", "advice"], Long(1, 1_000)),
    (&["path.identity_key"], Id("ik_")),
    (&["path.import"], Id("imp_")),
    (&["format"], Like("^(ndjson|csv|json)$")),
    (&["SampleCell.field", "WebhookAttempt.reason"], Long(1, 300)),
    (&["ImportFault.field", "ignored"], Long(0, 300)), // a member of a line may have an empty name
    (&["query.map"], Long(0, 8_192)),
    (&["query.charset"], Long(1, 40)),
    (&["ImportSampleRow.outcome"], Like("^(read|left_out|refused)$")),
    (&["SampleCell.column"], Long(0, 64)),
    (&["SampleCell.value"], Long(0, 100)),
    (&["query.after", "subscription", "subscriptions", "ReplacedSubscription.id", "replaced_by"], Id("sub_")),
    (&["Export.by", "created_by", "changed_by"], Like("^((ak|tm)_[0-9a-f-]{36}|local)$")),
    (&["ImportFault.reason"], Long(1, 1_000)),
    (&["path.webhook"], Id("wh_")),
    (&["webhook_delivery"], Id("whd_")),
    (&["NewWebhook.url", "WebhookChange.url", "WebhookResponse.url"], Long(9, 2_048)),
    (&["message", "messages", "replay", "replay_of"], Id("msg_")),
    (&["vapid_key", "vapid_key_id"], Id("vk_")),
    (&["id"], Like("^[a-z]{2,3}_[0-9a-f-]{36}$")),
    (&["sent_by"], Like("^(ak|tm)_[0-9a-f-]{36}$")),
    (&["actor"], Like("^((ak|tm)_[0-9a-f-]{36}|local|nobody)$")),
    // Campaigns, and what senders call messages.
    (&["path.campaign"], Like("^(cmp_[0-9a-f-]{36}|[a-z0-9][a-z0-9-]{0,63})$")),
    (&["campaign"], Id("cmp_")),
    (&["Campaign.slug", "TriggerEntry.slug"], SEGMENT),
    (&["CampaignLinks.plan", "CampaignLinks.runs", "CampaignLinks.locales"], Long(1, 2_048)),
    (&["CampaignLinks.gateways", "CampaignLinks.start"], Long(1, 2_048)),
    (&["PreferencesLinkRequest.expires_in"], Like("^[0-9]+[smhd]$")),
    (&["PreferencesLinkResponse.link"], Long(1, 8_192)),
    (&["PromptVariant.texts"], Long(1, 300)),
    (&["PromptFunnelGroup.value"], Long(1, 200)),
    (&["LinkTags.hosts", "LinkParameters.hosts"], Long(1, 253)),
    (&["link_parameters", "parameters"], Long(1, 200)),
    (&["ResultGroup.group", "GroupConversions.group"], Long(0, 64)),
    (&["AppResult.quarter"], Like("^[0-9]{4}-Q[1-4]$")),
    (&["MeasurementSettings.window"], Like("^[0-9]+[smhd]$")),
    (&["CampaignResult.summary"], Long(0, TEXT_MAX)),
    (&["currency"], Like("^[A-Z]{3}$")),
    (&["winner", "UserEvent.id", "TrackedEvent.id"], Long(1, 64)),
    (&["CampaignUnless"], Long(1, 70)),
    (&["TriggerEntry.cause"], Long(1, 140)),
    (&["CampaignTriggerTrial.examples"], Long(1, 300)),
    (&["TimetableCut.by"], Long(1, 32)),
    (&["CampaignVariantResponse.name", "CampaignDryRunMessage.variant"], Long(0, 64)),
    (&["path.key", "MessageRequest.key", "MessageResponse.key"], Long(1, 255)),
    // The team.
    (&["teammate"], Id("tm_")),
    (&["path.session"], Id("ses_")),
    (&["SignIn.api_key", "SignIn.link", "LinkRequest.link"], Long(1, 256)),
    (&["LinkCheckResponse.failure"], Long(1, 32)),
    (&["NewGrant.app"], Like("^(app_[0-9a-f-]{36}|[a-z0-9][a-z0-9-]{0,62})$")),
    (&["path.passkey"], Id("pk_")),
    (&["NewPasskey.name", "PasskeyChange.name", "PasskeyResponse.name", "label", "query.error"], Long(1, 64)),
    (&["transports"], Like("^(usb|nfc|ble|smart-card|hybrid|internal)$")),
    (&["email"], Long(3, 254)),
    (&["password", "current_password"], Long(1, 512)),
    (&["new_password"], Long(12, 512)),
    (&["path"], Long(1, 2_048)),
    (&["browser"], Long(1, 200)),
    (&["query.code"], Long(1, 4_096)),
    (&["prober", "breaker_of"], Long(36, 36)),
    // What sites choose.
    (&["slug", "PersonSummary.app", "confirm"], SLUG),
    (&["topic", "topics", "TopicResponse.name"], TOPIC),
    (&["path.segment", "SegmentResponse.name"], SEGMENT),
    (&["segment", "expression", "user_token", "Sentence.text"], Long(1, 4_096)),
    (&["MessageResponse.segment"], Long(1, TEXT_MAX)),
    (&["SegmentRequest.description"], Long(0, 500)),
    (&["description"], Long(1, 500)),
    (&["TopicDisplay.title", "TopicText.title", "OfferedTopic.title"], Long(1, 300)),
    (&["TopicDisplay.description", "TopicText.description", "OfferedTopic.description"], Long(1, 300)),
    (&["PromptSettings.texts"], Long(1, 300)),
    (&["PromptSettings.event"], Long(1, 64)),
    (&["PolicyResponse.name"], Long(1, 128)),
    (&["TemplateResponse.name", "path.template", "template", "TemplateRef"], TEMPLATE),
    (&["name", "ConsentResponse.source", "NewConsent.source", "collapse_key", "reason", "held_note"], Long(1, 200)),
    (&["LogLevelRequest.filter", "LogLevelResponse.filter", "ReceiptResponse.action", "Report.action"], Long(1, 200)),
    (&["Notification.title"], Long(1, 200)),
    (&["user", "users", "user_id", "Idempotency-Key"], Long(1, 255)),
    (&["endpoint_origin"], Long(9, 2_048)),
    (&["tag", "tags", "timezone", "CheckResult.check", "receipt"], Long(1, 64)),
    (&["Notification.tag"], Long(0, 200)),
    (&["locale", "lang"], Long(1, 35)),
    (&["subject"], Long(1, 2_048)),
    (&["origins", "add_origins", "remove_origins"], Long(8, 2_048)),
    (&["advice", "line"], Long(1, 1_000)),
    (&["Action.action", "Action.title"], Long(1, 100)),
    (&["body"], Long(0, 2_000)),
    (&["url", "icon", "image", "badge"], Long(0, 2_048)),
    (&["Payload"], Long(0, 3_993)),
    (&["base64"], Like("^[A-Za-z0-9+/_=-]*$")),
    (&["Last-Event-ID"], Like("^[0-9]{1,20}-[0-9]{1,20}$")),
    (&["kinds", "Bellwire-Retry-Delay"], Long(1, 1_024)),
    (&["iterator", "prev_iterator"], Like("^[A-Za-z0-9_-]{1,64}$")),
    // Keys and addresses of browsers.
    (&["endpoint"], Long(9, 2_048)),
    (&["origin"], Long(1, 2_048)),
    (&["p256dh", "secret"], Long(1, 256)),
    (&["auth"], Long(1, 64)),
    (&["application_server_key"], BASE64URL),
    (&["public_key", "PublicKeyInput", "private_key", "private_key_pem"], Long(1, 4_096)),
    (&["token"], Long(1, 128)),
    (&["hint"], Long(1, 16)),
    (&["Hours.from", "Hours.to", "from", "to"], CLOCK),
    (&["Cap.window"], Like("^[0-9]+[smhd]$")),
    (&["Period"], Like("^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$")),
    // Words of answers.
    (&["breaker"], Like("^(closed|open|half_open)$")),
    (&["query.state", "state", "status", "confirmation", "actor_kind", "form", "held_reason"], Long(1, 32)),
    (&["dropped"], Long(1, 32)),
    (&["kind", "code", "action", "presets"], Long(1, 64)),
    (&["key"], Long(0, 128)),
    (&["address"], Long(1, 45)),
    (&["topic_header"], BASE64URL),
    (&["header"], Long(1, 128)),
    (&["parameter"], Long(0, 8_192)), // the name of one that is not known, too
    (&["title", "request_id"], Long(1, 128)),
    (&["type"], Like("^/docs/problems/[a-z0-9_]+$")),
    (&["instance"], Long(1, 8_192)),
    (&["pointer"], Long(0, 8_192)),
    (&["detail"], Long(0, TEXT_MAX)),
    (&["target", "AlertResponse.subject"], Long(0, 512)),
    (&["request", "retry", "throttle"], Long(1, 64)),
    (&["cancel", "deliveries", "pause", "resume", "self", "withdraw"], Long(1, 2_048)),
    (&["path.tier"], Like("^(transactional|promotional|engagement|[123])$")),
    // Figures over time.
    (&["since", "until"], Long(1, 64)),
    (&["step"], Long(1, 8)),
    (&["measures", "by"], Long(1, 32)),
    (&["app"], Like("^(app_[0-9a-f-]{36}|[a-z0-9][a-z0-9-]{0,62})$")),
    (&["gateway", "tier", "outcome", "status", "reason"], Long(1, 16)),
    (&["message"], Id("msg_")),
    (&["property"], Long(1, 128)),
    (&["text/plain"], Long(1, TEXT_MAX)),
    (&["image/svg+xml"], Long(1, 1 << 24)),
    (&["text/event-stream", "text/csv", "application/x-ndjson"], Long(0, i32::MAX as u32)),
];

/// Integers by the same names. All others are counts, 0 to 2^53 - 1.
const NUMBERS: &[(&[&str], i64, i64)] = &[
    (&["Problem.status"], 400, 599),
    (&["status"], 100, 999),
    (&["limit"], 0, 65_535),
    (&["query.limit"], 1, 250),
    (&["days"], 1, 366),
    (&["cap"], 1, 100_000),
    (&["Cap.max"], 1, 50),
    (&["GuardResponse.limit", "SentDeliveries.transactional"], 0, EXACT_MAX),
    (&["LogLevelRequest.seconds"], 60, 86_400),
    (&["PromptSettings.visits"], 1, 100),
    (&["PromptSettings.seconds"], 0, 3_600),
    (&["PromptSettings.scroll_percent", "PromptSettings.share_percent"], 0, 100),
    (&["PromptSettings.no_days"], 1, 3_650),
    (&["PromptSettings.not_now_days"], 1, 365),
    (&["PromptVariant.weight"], 1, 1_000),
    (&["TopicDisplay.position"], 0, 1_000),
    (&["factor", "max_retries", "Bellwire-Retries", "PersonHabits.unclicked"], 0, 1_000),
    (&["floor"], 0, 1_000_000_000),
    (&["ttl"], 0, 2_419_200),
    (&["retries"], 0, 100_015),
    (&["rate", "parallelism", "CampaignPace.per_minute"], 1, 1_000_000),
    (&["seconds", "transactional", "promotional", "engagement", "sla_seconds"], 1, 2_592_000),
    (&["lane", "path.run"], 1, i32::MAX as i64),
    (&["TierRef"], 1, 3),
    (&["payload_max"], 0, 3_993),
    (&["app_badge", "age"], 0, u32::MAX as i64),
    (&["timestamp"], 0, 8_640_000_000_000_000),
    (&["vibrate"], 0, 10_000),
    (&["CampaignVariant.weight"], 1, 1_000),
    (&["max_events"], 1, 500),
    (&["clicks_by_hour"], 0, 255),
    (&["overlap_hours"], 0, 168),
    (&["own_hour"], 0, 23),
    (&["CampaignPace.spread_over", "CampaignTest.after", "CampaignFollow.after"], 60, 2_419_200),
    (&["CampaignRunChange.targeted", "CampaignRunChange.accepted"], -EXACT_MAX, EXACT_MAX),
];

/// Adds bounds to each string, integer and array in the description that has none.
pub(super) fn bound(description: &mut Value) {
    let schemas = description.pointer_mut("/components/schemas").and_then(Value::as_object_mut);
    for (owner, schema) in schemas.into_iter().flatten() {
        bound_schema(schema, owner, owner);
    }
    let items = description["paths"].as_object_mut().into_iter().flatten();
    for operation in items.flat_map(|(_, item)| item.as_object_mut().into_iter().flatten().map(|(_, value)| value)) {
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            let place = parameter["in"].as_str().unwrap_or_default().to_owned();
            let name = parameter["name"].as_str().unwrap_or_default().to_owned();
            bound_schema(&mut parameter["schema"], &place, &name);
        }
        let mut bodies: Vec<&mut Value> = Vec::new();
        let Some(operation) = operation.as_object_mut() else { continue };
        for (name, part) in operation {
            match name.as_str() {
                "requestBody" => bodies.push(part),
                "responses" => bodies.extend(part.as_object_mut().into_iter().flatten().map(|(_, response)| response)),
                _ => {}
            }
        }
        for (media_type, content) in
            bodies.into_iter().filter_map(|body| body.get_mut("content")?.as_object_mut()).flatten()
        {
            content.get_mut("schema").into_iter().for_each(|schema| bound_schema(schema, "body", media_type));
        }
    }
}

/// Adds bounds to the schema `name`, or to member `name` of schema `owner`.
pub(in crate::api) fn bound_schema(schema: &mut Value, owner: &str, name: &str) {
    let Some(schema) = schema.as_object_mut() else { return };
    let kinds: Vec<String> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind.clone()],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let is = |kind: &str| kinds.iter().any(|known| known == kind);
    let says = |schema: &Map<String, Value>, any: &[&str]| any.iter().any(|keyword| schema.contains_key(*keyword));
    if is("integer") {
        let (from, to) = number_of(owner, name).unwrap_or((0, EXACT_MAX));
        // That of an unsigned type is 0.
        let own = schema.get("minimum").and_then(Value::as_i64).unwrap_or(from);
        schema.insert("minimum".into(), own.max(from).into());
        schema.entry("maximum").or_insert(to.into());
    }
    if is("object") && !says(schema, &["properties", "additionalProperties", "allOf", "oneOf", "anyOf"]) {
        schema.insert("additionalProperties".into(), true.into());
    }
    if is("string")
        && !says(schema, &["maxLength", "pattern", "enum", "format"])
        && let Some(text) = text_of(owner, name)
    {
        schema.extend(keywords(text));
    }
    for (word, below) in schema.iter_mut() {
        match word.as_str() {
            "properties" => {
                for (member, schema) in below.as_object_mut().into_iter().flatten() {
                    bound_schema(schema, owner, member);
                }
            }
            "items" | "additionalProperties" => bound_schema(below, owner, name),
            "propertyNames" => bound_schema(below, owner, "property"),
            "oneOf" | "anyOf" | "allOf" => {
                below.as_array_mut().into_iter().flatten().for_each(|schema| bound_schema(schema, owner, name));
            }
            _ => {}
        }
    }
}

fn text_of(owner: &str, name: &str) -> Option<&'static Text> {
    let full = format!("{owner}.{name}");
    let find = |wanted: &str| TEXTS.iter().find(|(names, _)| names.contains(&wanted)).map(|(_, text)| text);
    find(&full).or_else(|| find(name))
}

fn number_of(owner: &str, name: &str) -> Option<(i64, i64)> {
    let full = format!("{owner}.{name}");
    let find =
        |wanted: &str| NUMBERS.iter().find(|(names, ..)| names.contains(&wanted)).map(|(_, from, to)| (*from, *to));
    find(&full).or_else(|| find(name))
}

fn keywords(text: &Text) -> Map<String, Value> {
    let keywords = match text {
        Long(from, to) => json!({"minLength": from, "maxLength": to}),
        Id(prefix) => json!({"pattern": format!("^{prefix}{UUID_PATTERN}$")}),
        Like(pattern) => json!({"pattern": pattern}),
    };
    match keywords {
        Value::Object(keywords) => keywords,
        _ => Map::new(),
    }
}
