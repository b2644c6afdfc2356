//! Makes an app's settings of an export's lines, by the routes that set them. Made once more, nothing of them is doubled.

use anyhow::Context as _;
use axum::http::Method;
use serde_json::{Map, Value, json};

use super::fault;
use crate::api::http::problem::ProblemCode;
use crate::cli::client::{ApiRequest, Client, path};
use crate::cli::output::{rows, text};
use crate::cli::refusal::{ArgumentNames, CommandError};

const NAMES: &ArgumentNames = &[("/slug", "the app's name"), ("app", "--app")];

/// Whether an app with this slug or id exists.
pub(super) async fn exists(client: &Client, app: &str) -> anyhow::Result<bool> {
    match client.get(path(["apps", app])).await {
        Ok(_) => Ok(true),
        Err(error) if CommandError::is(&error, &[ProblemCode::NotFound]) => Ok(false),
        Err(error) => Err(error),
    }
}

/// An app whose settings are being created.
pub(super) struct Making<'a> {
    client: &'a Client,
    app: &'a str,
    exists: bool,
    /// Members of the app line, until the line of its VAPID key follows.
    waiting: Option<Map<String, Value>>,
    made: usize,
    faults: Vec<Value>,
}

impl<'a> Making<'a> {
    pub(super) fn new(client: &'a Client, app: &'a str, exists: bool) -> Self {
        Self { client, app, exists, waiting: None, made: 0, faults: Vec::new() }
    }

    /// Stores the app's own line.
    pub(super) fn begin(&mut self, members: Map<String, Value>) {
        self.waiting = Some(members);
    }

    /// Processes the next line. A refusal is recorded.
    ///
    /// # Errors The app cannot be created, or the database failed.
    pub(super) async fn take(&mut self, line: usize, kind: &str, members: Map<String, Value>) -> anyhow::Result<()> {
        let members = Value::Object(members);
        if let Some(app) = self.waiting.take() {
            let key = (kind == "vapid_key").then_some(&members);
            self.make_app(&app.into(), key).await?;
            self.made += 1;
            if !self.exists {
                self.made += 1;
                return Ok(());
            }
        }
        match self.make(kind, &members).await {
            Ok(()) => self.made += 1,
            Err(error) if error.is::<CommandError>() => self.faults.push(fault(line, kind, &error.to_string())),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the number of lines created, and the faults of the others.
    pub(super) fn finish(self) -> anyhow::Result<(usize, Vec<Value>)> {
        if self.waiting.is_some() {
            anyhow::bail!("the file ends after its first line");
        }
        Ok((self.made, self.faults))
    }

    async fn ask(&self, method: Method, at: String, body: Value) -> anyhow::Result<Value> {
        self.client.ask(&ApiRequest::new(method, at).body(body).names(NAMES)).await
    }

    /// Sends a request. Returns `false` if the API refuses it with code `there`, which means that the object exists.
    async fn ask_unless(&self, method: Method, at: String, body: Value, there: ProblemCode) -> anyhow::Result<bool> {
        match self.ask(method, at, body).await {
            Ok(_) => Ok(true),
            Err(error) if CommandError::is(&error, &[there]) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn at<const N: usize>(&self, more: [&str; N]) -> String {
        path(["apps", self.app]) + &path(more)["/v1".len()..]
    }

    /// Creates the app with its VAPID key, so that it gets no other, or changes the existing app.
    async fn make_app(&self, app: &Value, key: Option<&Value>) -> anyhow::Result<()> {
        if !self.exists {
            let key = key.context("the active VAPID key must follow the first line")?;
            let mut new = pick(app, &["name", "origins", "allow_other_gateways", "browsers_may"]);
            new["slug"] = self.app.into();
            (new["subject"], new["private_key"]) = (key["subject"].clone(), key["private_key"].clone());
            self.ask(Method::POST, path(["apps"]), new).await?;
        }
        let members = ["name", "origins", "allow_other_gateways", "browsers_may", "max_retries", "weight"];
        self.ask(Method::PATCH, self.at([]), pick(app, &members)).await?;
        Ok(())
    }

    async fn make(&self, kind: &str, it: &Value) -> anyhow::Result<()> {
        let name = text(it, "/name");
        let without = |members: &[&str]| without(it, members);
        match kind {
            "vapid_key" => {
                self.ask_unless(Method::POST, self.at(["vapid-keys"]), without(&[]), ProblemCode::VapidKeyKnown)
                    .await?;
            }
            "identity_key" => self.make_identity_key(it).await?,
            "prompt" => drop(self.ask(Method::PUT, self.at(["prompt"]), without(&[])).await?),
            "calendar" => drop(self.ask(Method::PUT, self.at(["calendar"]), without(&[])).await?),
            "frequency_caps" => drop(self.ask(Method::PUT, self.at(["caps"]), without(&[])).await?),
            "slas" => drop(self.ask(Method::PUT, self.at(["slas"]), without(&[])).await?),
            "guard" => drop(self.ask(Method::PUT, self.at(["guard"]), without(&[])).await?),
            "flow" => drop(self.ask(Method::PUT, self.at(["flow"]), without(&[])).await?),
            "topic" => self.make_topic(it, &name).await?,
            "policy" => {
                let place = if it["level"] == "tier" { "tiers" } else { "topics" };
                self.ask(Method::PUT, self.at(["policies", place, &name]), it["policy"].clone()).await?;
            }
            "segment" => drop(self.ask(Method::PUT, self.at(["segments", &name]), without(&["name"])).await?),
            "template" => drop(self.ask(Method::PUT, self.at(["templates", &name]), it["template"].clone()).await?),
            "webhook" => self.make_webhook(it).await?,
            "campaign" => self.make_campaign(it).await?,
            _ => {}
        }
        Ok(())
    }

    /// Whether a list contains an object with equal values in these members.
    async fn has(&self, list: &str, it: &Value, members: &[&str]) -> anyhow::Result<bool> {
        let there = self.client.get(self.at([list])).await?;
        Ok(rows(&there).any(|row| members.iter().all(|member| row[member] == it[member])))
    }

    async fn make_identity_key(&self, it: &Value) -> anyhow::Result<()> {
        if !self.has("identity-keys", it, &["name", "algorithm", "form"]).await? {
            self.ask(Method::POST, self.at(["identity-keys"]), without(it, &[])).await?;
        }
        Ok(())
    }

    async fn make_topic(&self, it: &Value, name: &str) -> anyhow::Result<()> {
        self.ask(Method::PUT, self.at(["topics", name]), without(it, &["name"])).await.map(drop)
    }

    async fn make_webhook(&self, it: &Value) -> anyhow::Result<()> {
        if self.has("webhooks", it, &["name", "url"]).await? {
            return Ok(());
        }
        let made = self.ask(Method::POST, self.at(["webhooks"]), without(it, &["enabled"])).await?;
        if it["enabled"] == false {
            let at = self.at(["webhooks", &text(&made, "/id")]);
            self.ask(Method::PATCH, at, json!({"enabled": false})).await?;
        }
        Ok(())
    }

    /// Creates a campaign as a draft, or replaces an existing draft. A started campaign is unchanged.
    async fn make_campaign(&self, it: &Value) -> anyhow::Result<()> {
        let plan = &it["plan"];
        if !self.ask_unless(Method::POST, self.at(["campaigns"]), plan.clone(), ProblemCode::CampaignExists).await? {
            let at = self.at(["campaigns", &text(plan, "/slug")]);
            self.ask_unless(Method::PUT, at, plan.clone(), ProblemCode::CampaignStarted).await?;
        }
        Ok(())
    }
}

/// Returns only these members, if present.
fn pick(it: &Value, members: &[&str]) -> Value {
    members
        .iter()
        .filter_map(|member| Some(((*member).to_owned(), it.get(member)?.clone())))
        .collect::<Map<_, _>>()
        .into()
}

/// Returns all other members, except the line's `type`.
fn without(it: &Value, members: &[&str]) -> Value {
    let all = it.as_object().into_iter().flatten();
    let kept = all.filter(|(name, _)| *name != "type" && !members.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>().into()
}
