use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use axum::http::Method;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{ArgGroup, Args};
use serde_json::{Map, Value, json};

use super::a_tier;
use super::local::{Ask, Local, path};
use super::output::{Output, text};
use super::refusal::ArgumentNames;
use bellwire_core::base64url;
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_core::duration;

const NAMES: &ArgumentNames = &[
    ("/to", "--all, --topic, --segment, --user or --subscription"),
    ("/to/topic", "--topic"),
    ("/to/segment", "--segment"),
    ("/to/users", "--user"),
    ("/to/subscriptions", "--subscription"),
    ("/sunset", "--unclicked, --unclicked-for"),
    ("/sunset/unclicked", "--unclicked"),
    ("/sunset/unclicked_for", "--unclicked-for"),
    ("/sunset/welcome", "--welcome"),
    ("/content", "the notification"),
    ("/content/title", "--title"),
    ("/content/body", "--body"),
    ("/content/url", "--url"),
    ("/content/icon", "--icon"),
    ("/content/image", "--image"),
    ("/content/tag", "--tag"),
    ("/payload", "--payload"),
    ("/template", "--template"),
    ("/data", "--data"),
    ("/envelope", "--no-envelope"),
    ("/ttl", "--ttl"),
    ("/collapse_key", "--collapse-key"),
    ("/send_at", "--at"),
    ("/timezone", "--timezone"),
    ("/key", "--key"),
    ("Idempotency-Key", "--idempotency-key"),
];

/// Arguments of `bellwire send`.
#[derive(Debug, Args)]
#[group(skip)] // the verb has the same name
#[command(group = ArgGroup::new("recipients").required(true).multiple(true)
    .args(["all", "topic", "users", "subscriptions", "message", "segment"]))]
#[command(after_help = "Examples:
  bellwire send --app shop --user 42 --tier transactional --title 'Your parcel is here'
  bellwire send --app shop --topic news --title 'New in' --url https://shop.example.com/new --dry-run
  bellwire send --app shop --segment 'plan = \"pro\" and last_seen < 30d' --title 'For you'
  bellwire send --app shop --topic news --unclicked 10 --unclicked-for 60d --title 'New in'
  bellwire send --app shop --topic news --template welcome --data '{\"city\": \"Linz\"}'
  bellwire send --app shop --user 42 --title 'Your table is booked for 19:00' --at 2026-12-01T17:00 --timezone Europe/Vienna --key booking-7
  bellwire send --app shop --message message.json

Prints the message's id. `bellwire message show` shows the progress.")]
pub(super) struct Send {
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    app: String,
    #[command(flatten)]
    to: RecipientArgs,
    /// To those alone of everyone, or of a topic, who belong to this segment: its name, or an expression.
    #[arg(long, conflicts_with_all = ["users", "subscriptions", "message"])]
    segment: Option<String>,
    #[command(flatten)]
    sunset: Sunset,
    #[command(flatten)]
    content: Content,
    /// Decides retries, weight and defaults; promotional by default.
    #[arg(long, value_parser = a_tier())]
    tier: Option<Tier>,
    /// Time that push services may keep the message: seconds, or a duration such as 30m, 12h, 7d; by default the tier's.
    #[arg(long, value_parser = seconds)]
    ttl: Option<u64>,
    /// Urgency: push services use it to decide whether to wake a device; by default the tier's.
    #[arg(long, value_parser = PossibleValuesParser::new(Urgency::ALL.map(Urgency::name)))]
    urgency: Option<String>,
    /// Push services keep only the newest message of this key for a browser that is away.
    #[arg(long, value_name = "KEY")]
    collapse_key: Option<String>,
    /// Time to send: such as 2026-12-01T09:00:00Z, at most 90 days ahead; without an offset with --timezone.
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// The IANA time zone of --at, such as Europe/Vienna.
    #[arg(long, value_name = "ZONE", requires = "at")]
    timezone: Option<String>,
    /// Your own name for it, by which it can be cancelled: `bellwire message cancel --app … --key KEY`.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The same key sends the same message only once.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[arg(long)]
    dry_run: bool,
}

/// Exclusion of inactive subscriptions: those that meet all conditions.
#[derive(Debug, Args)]
struct Sunset {
    /// Leave out who was shown so many messages, 1 to 100, since they last clicked one.
    #[arg(long, value_name = "N", conflicts_with_all = ["users", "subscriptions", "message"])]
    unclicked: Option<u16>,
    /// Leave out who was shown messages for so long, such as 60d, and clicked none.
    #[arg(long, value_name = "SPAN", conflicts_with_all = ["users", "subscriptions", "message"])]
    unclicked_for: Option<String>,
    /// But not who subscribed less long ago than that; 30d by default.
    #[arg(long, value_name = "SPAN")]
    welcome: Option<String>,
}

impl Sunset {
    /// The sunset rule as JSON. `None` excludes no subscription.
    fn rule(&self) -> Option<Value> {
        let Self { unclicked, unclicked_for, welcome } = self;
        let members = [
            ("unclicked", unclicked.map(Value::from)),
            ("unclicked_for", unclicked_for.clone().map(Value::from)),
            ("welcome", welcome.clone().map(Value::from)),
        ];
        let given = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let rule = Map::from_iter(given);
        (!rule.is_empty()).then_some(Value::Object(rule))
    }
}

/// Audience: exactly one of these, or a segment.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct RecipientArgs {
    /// To every subscription of the app.
    #[arg(long)]
    all: bool,
    /// To everyone in this topic.
    #[arg(long)]
    topic: Option<String>,
    /// To every subscription of this user; repeatable.
    #[arg(long = "user", value_name = "USER")]
    users: Vec<String>,
    /// To this subscription; repeatable.
    #[arg(long = "subscription", value_name = "ID")]
    subscriptions: Vec<String>,
    /// A whole message in JSON, as the API takes it; - for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["Content", "Sunset", "tier", "ttl", "urgency", "collapse_key", "at", "timezone", "key"])]
    message: Option<PathBuf>,
}

/// Content of the message.
#[derive(Debug, Args)]
struct Content {
    /// First line of the notification.
    #[arg(long)]
    title: Option<String>,
    /// Text below the title.
    #[arg(long, requires = "title")]
    body: Option<String>,
    /// URL that a click opens.
    #[arg(long, requires = "title")]
    url: Option<String>,
    /// URL of a small picture.
    #[arg(long, value_name = "URL", requires = "title")]
    icon: Option<String>,
    /// URL of a large picture.
    #[arg(long, value_name = "URL", requires = "title")]
    image: Option<String>,
    /// A notification replaces one shown earlier under the same tag.
    #[arg(long, requires = "title")]
    tag: Option<String>,
    /// Instead of a notification: the name of a template, which is filled in for each recipient.
    #[arg(long, value_name = "NAME", conflicts_with = "title")]
    template: Option<String>,
    /// Data for the template: a JSON object, or @FILE.
    #[arg(long, value_name = "JSON", requires = "template")]
    data: Option<String>,
    /// Instead of a notification: text for the page's own push handler.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["title", "template"])]
    payload: Option<String>,
    /// The same from a file, of any octets; - for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["title", "payload", "template"])]
    payload_file: Option<PathBuf>,
    /// Send the payload untouched, without the envelope that receipts need.
    #[arg(long)]
    no_envelope: bool,
}

impl Send {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let body = match &self.to.message {
            Some(file) => serde_json::from_slice(&read(file)?)
                .with_context(|| format!("--message: {} is not JSON", file.display()))?,
            None => Value::Object(self.body()?),
        };
        let at = format!("{}?dry_run={}", path(["apps", &self.app, "messages"]), self.dry_run);
        let sent = local
            .ask(Ask {
                body,
                idempotency_key: self.idempotency_key.as_deref(),
                // In a whole message the pointers say it better.
                names: if self.to.message.is_some() { &[] } else { NAMES },
                ..Ask::new(Method::POST, at)
            })
            .await?;
        let count = format!("{} to send to, {} out of reach", count(&sent), text(&sent, "/unreachable"));
        for warning in sent["warnings"].as_array().into_iter().flatten() {
            out.note(&format!("Note: {}: {}", text(warning, "/pointer"), text(warning, "/detail")));
        }
        if self.dry_run {
            return Ok(out.say(&sent, &format!("Nothing was sent: {count}."))?);
        }
        let id = text(&sent, "/id");
        out.say(&sent, &id)?;
        out.note(&format!("{count}. How it goes: bellwire message show --app {} {id}", self.app));
        if !local.delivers().await? {
            out.note("No server is running that delivers: it goes out as soon as one does.");
        }
        Ok(())
    }

    fn body(&self) -> anyhow::Result<Map<String, Value>> {
        let Content { title, template, data, payload, payload_file, .. } = &self.content;
        if title.is_none() && template.is_none() && payload.is_none() && payload_file.is_none() {
            bail!(
                "no content given: use --title for a notification, --template, --payload for the page's own handler, or --message"
            );
        }
        let RecipientArgs { all, topic, users, subscriptions, .. } = &self.to;
        let mut to = match topic {
            _ if *all => json!({"all": true}),
            Some(topic) => json!({"topic": topic}),
            None if !users.is_empty() => json!({"users": users}),
            None if subscriptions.is_empty() => json!({}),
            None => json!({"subscriptions": subscriptions}),
        };
        if let Some(segment) = &self.segment {
            to["segment"] = segment.as_str().into();
        }
        let mut body = Map::from_iter([("to".to_owned(), to)]);
        let mut put = |name: &str, value: Option<Value>| body.extend(value.map(|value| (name.to_owned(), value)));
        put("sunset", self.sunset.rule());
        put("content", self.content.notification());
        put("template", template.clone().map(Value::from));
        put("data", data.as_deref().map(|given| given_json("--data", given)).transpose()?);
        put("payload", self.content.payload()?);
        put("envelope", self.content.no_envelope.then_some(Value::Bool(false)));
        put("tier", self.tier.map(|tier| tier.name().into()));
        put("ttl", self.ttl.map(Value::from));
        put("urgency", self.urgency.clone().map(Value::from));
        put("collapse_key", self.collapse_key.clone().map(Value::from));
        put("send_at", self.at.clone().map(Value::from));
        put("timezone", self.timezone.clone().map(Value::from));
        put("key", self.key.clone().map(Value::from));
        Ok(body)
    }
}

impl Content {
    fn notification(&self) -> Option<Value> {
        let Self { title, body, url, icon, image, tag, .. } = self;
        title.as_ref()?;
        let members = [("title", title), ("body", body), ("url", url), ("icon", icon), ("image", image), ("tag", tag)];
        let given = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?.into())));
        Some(Value::Object(given.collect()))
    }

    fn payload(&self) -> anyhow::Result<Option<Value>> {
        Ok(match (&self.payload, &self.payload_file) {
            (Some(text), _) => Some(text.as_str().into()),
            (None, Some(file)) => Some(json!({"base64": base64url::encode(read(file)?)})),
            (None, None) => None,
        })
    }
}

fn count(sent: &Value) -> String {
    match sent["audience_estimate"].as_i64() {
        Some(1) => "1 subscription".to_owned(),
        n => format!("{} subscriptions", n.unwrap_or(0)),
    }
}

pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let parsed = text.parse().ok().or_else(|| duration::parse(text).map(|duration| duration.as_secs()));
    parsed.ok_or_else(|| "must be a number of seconds, or such as 30m, 12h, 7d".to_owned())
}

/// The JSON that an argument stands for: itself, or @FILE.
pub(super) fn given_json(argument: &str, given: &str) -> anyhow::Result<Value> {
    let octets = match given.strip_prefix('@') {
        Some(file) => read(Path::new(file))?,
        None => given.as_bytes().to_vec(),
    };
    serde_json::from_slice(&octets).with_context(|| format!("{argument} is not JSON"))
}

pub(super) fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut octets = Vec::new();
    let done = if file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut octets).map(drop)
    } else {
        std::fs::read(file).map(|read| octets = read)
    };
    done.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(octets)
}
