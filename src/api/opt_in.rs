//! `/v1/apps/{app}/prompt`: settings of the prompt that asks visitors for notifications, and texts of topics in the
//! preferences.

pub(super) mod funnel;
pub(super) mod steps;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::ApiState;
use super::http::auth::{MayChangeSettings, MayRead, Server};
use super::http::draft::Draft;
use super::http::extract::is_plain_text;
use super::http::problem::{Faults, Problem, pointer_segment};
use super::http::routes::routes;
use super::subscriptions::input::check_topics;
use bellwire_core::message::is_language_tag;
use bellwire_core::user_event::{EVENT_NAME_RULE, is_event_name};
use bellwire_store::keys::apps;
use bellwire_store::keys::audit::AuditAction;
use utoipa_axum::router::OpenApiRouter;

const LANGUAGES_MAX: usize = 40;
const TEXT_MAX: usize = 300;
/// Maximum characters of all texts of a prompt. Every page of the site loads them.
const TEXTS_MAX: usize = 20_000;
const EVENT_MAX: usize = 64;
const VARIANTS_MAX: usize = 5;

/// Built-in texts of the elements, by name.
static TEXTS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../static/sdk/src/ui/texts/en.json")).expect("an object of strings")
});

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show, change, delete)).merge(funnel::routes())
}

/// Form of the prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PromptLayout {
    /// Card in a corner of the page.
    #[default]
    Card,
    /// Bar at the bottom of the page.
    Bar,
    /// Dialog in front of the page.
    Dialog,
}

/// Variant of a prompt. The choice of a browser is stable.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromptVariant {
    /// Name in the funnel: 1 to 64 letters, digits, `_`, `-` or `.`.
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    /// Relative share of the browsers, 1 to 1,000.
    #[serde(default = "one")]
    weight: i64,
    /// Form of the variant. Null: that of the prompt.
    layout: Option<PromptLayout>,
    /// Texts that replace those of the prompt, by language tag and text name.
    #[serde(default)]
    texts: BTreeMap<String, BTreeMap<String, String>>,
}

fn one() -> i64 {
    1
}

/// Settings of `<bellwire-prompt>`, which asks visitors before the browser's own prompt. It appears when all conditions are
/// met.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PromptSettings {
    /// Whether the prompt appears by itself.
    enabled: bool,
    /// Form of the prompt.
    layout: PromptLayout,
    /// Topics to which an accepted prompt subscribes.
    topics: Vec<String>,
    /// Minimum number of visits, 1 to 100. A visit ends after 30 minutes without a page view.
    visits: i64,
    /// Minimum seconds on the page, 0 to 3,600.
    seconds: i64,
    /// Minimum scroll depth of the page, in percent.
    scroll_percent: i64,
    /// Name of an event that the page must report with `suggest()`, at most 64 characters. Null: no event is needed.
    event: Option<String>,
    /// Percentage of browsers that are asked. The choice of a browser is stable.
    share_percent: i64,
    /// Days without the prompt after the visitor declined, 1 to 3,650.
    no_days: i64,
    /// Days without the prompt after the visitor chose "not now", 1 to 365.
    not_now_days: i64,
    /// Texts that replace built-in ones, by language tag and text name: at most 40 languages, 300 characters per text, 20,000
    /// characters in total.
    pub(super) texts: BTreeMap<String, BTreeMap<String, String>>,
    /// Variants to compare in the funnel, at most 5. Empty: all browsers get the same prompt.
    #[schema(max_items = 5)]
    variants: Vec<PromptVariant>,
}

impl Default for PromptSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            layout: PromptLayout::default(),
            topics: Vec::new(),
            visits: 1,
            seconds: 0,
            scroll_percent: 0,
            event: None,
            share_percent: 100,
            no_days: 90,
            not_now_days: 7,
            texts: BTreeMap::new(),
            variants: Vec::new(),
        }
    }
}

impl PromptSettings {
    /// Reads stored settings. Without stored settings, the prompt is disabled.
    pub(crate) fn restore(stored: Option<Value>) -> Self {
        stored
            .and_then(|value| serde_json::from_value(value).ok())
            .unwrap_or_else(|| Self { enabled: false, ..Self::default() })
    }

    fn check(&mut self, faults: &mut Faults) {
        self.topics = check_topics(std::mem::take(&mut self.topics), faults);
        for (pointer, value, least, most) in [
            ("/visits", self.visits, 1, 100),
            ("/seconds", self.seconds, 0, 3_600),
            ("/scroll_percent", self.scroll_percent, 0, 100),
            ("/share_percent", self.share_percent, 0, 100),
            ("/no_days", self.no_days, 1, 3_650),
            ("/not_now_days", self.not_now_days, 1, 365),
        ] {
            faults.require((least..=most).contains(&value), pointer, &format!("must be {least} to {most}"));
        }
        let is_event = self.event.as_ref().is_none_or(|event| is_plain_text(event, EVENT_MAX));
        faults.require(is_event, "/event", "must be 1 to 64 characters without control characters");
        check_texts("/texts", &self.texts, faults);
        faults.require(self.variants.len() <= VARIANTS_MAX, "/variants", "may have at most 5 items");
        let variants = || self.variants.iter().take(VARIANTS_MAX);
        for (place, variant) in variants().enumerate() {
            let at = |member: &str| format!("/variants/{place}/{member}");
            faults.require(is_event_name(&variant.name), &at("name"), EVENT_NAME_RULE);
            let is_first = self.variants[..place].iter().all(|before| before.name != variant.name);
            faults.require(is_first, &at("name"), "is the name of another variant");
            faults.require((1..=1_000).contains(&variant.weight), &at("weight"), "must be 1 to 1000");
            check_texts(&at("texts"), &variant.texts, faults);
        }
        let all = std::iter::once(&self.texts).chain(variants().map(|variant| &variant.texts));
        let all = all.flat_map(BTreeMap::values).flat_map(BTreeMap::values);
        let total: usize = all.map(|text| text.chars().count()).sum();
        let detail = format!("have {total} characters with those of the variants; at most {TEXTS_MAX} are allowed");
        faults.require(total <= TEXTS_MAX, "/texts", &detail);
    }

    /// Whether a browser may report this variant. Empty: none.
    fn has_variant(&self, name: &str) -> bool {
        name.is_empty() || self.variants.iter().any(|variant| variant.name == name)
    }
}

/// Checks texts by language and name.
fn check_texts(pointer: &str, texts: &BTreeMap<String, BTreeMap<String, String>>, faults: &mut Faults) {
    check_languages(pointer, texts, faults);
    for (language, texts) in texts {
        for (name, text) in texts {
            let at = format!("{pointer}/{}/{}", pointer_segment(language), pointer_segment(name));
            if TEXTS.contains_key(name) {
                check_text(&at, text, faults);
            } else {
                let names: Vec<&str> = TEXTS.keys().map(String::as_str).collect();
                faults.refuse(at, format!("must be one of the text names: {}", names.join(", ")));
            }
        }
    }
}

fn check_languages<T>(pointer: &str, texts: &BTreeMap<String, T>, faults: &mut Faults) {
    faults.require(texts.len() <= LANGUAGES_MAX, pointer, "may have at most 40 languages");
    for language in texts.keys().filter(|language| !is_language_tag(language)) {
        faults.refuse(
            format!("{pointer}/{}", pointer_segment(language)),
            "must be a language tag such as `de` or `pt-BR`",
        );
    }
}

fn check_text(pointer: &str, text: &str, faults: &mut Faults) {
    faults.require(is_plain_text(text, TEXT_MAX), pointer, "must be 1 to 300 characters without control characters");
}

/// Title and description of a topic.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopicText {
    /// Display name of the topic, at most 300 characters.
    title: String,
    /// Description for visitors, at most 300 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

impl TopicText {
    fn check(&self, pointer: &str, faults: &mut Faults) {
        check_text(&format!("{pointer}/title"), &self.title, faults);
        if let Some(description) = &self.description {
            check_text(&format!("{pointer}/description"), description, faults);
        }
    }
}

/// Entry of a topic in `<bellwire-preferences>`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopicDisplay {
    /// Display name of the topic, at most 300 characters.
    title: String,
    /// Description for visitors, at most 300 characters.
    description: Option<String>,
    /// Sort position among the app's topics, 0 to 1,000, ascending. Equal positions are sorted by title.
    #[serde(default)]
    position: i64,
    /// Texts in other languages, by language tag; at most 40.
    #[serde(default)]
    texts: BTreeMap<String, TopicText>,
}

impl TopicDisplay {
    pub(super) fn check(&self, faults: &mut Faults) {
        let own = TopicText { title: self.title.clone(), description: self.description.clone() };
        own.check("/display", faults);
        faults.require((0..=1_000).contains(&self.position), "/display/position", "must be 0 to 1000");
        check_languages("/display/texts", &self.texts, faults);
        for (language, text) in &self.texts {
            text.check(&format!("/display/texts/{}", pointer_segment(language)), faults);
        }
    }
}

/// Topic that pages offer in the preferences.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OfferedTopic {
    /// Name of the topic.
    name: String,
    /// Display name of the topic.
    title: String,
    /// Description for visitors.
    description: Option<String>,
    /// Texts in other languages, by language tag.
    texts: BTreeMap<String, TopicText>,
}

impl OfferedTopic {
    pub(in crate::api) fn name(&self) -> &str {
        &self.name
    }

    /// Returns title and description by a language tag, its language, or else in the topic's own language.
    pub(in crate::api) fn texts_in(&self, tag: &str, language: &str) -> (&str, Option<&str>) {
        match self.texts.get(tag).or_else(|| self.texts.get(language)) {
            Some(text) => (&text.title, text.description.as_deref()),
            None => (&self.title, self.description.as_deref()),
        }
    }
}

/// Returns the topics that pages offer, in display order.
pub(super) fn offered(rows: Vec<(String, Value)>) -> Vec<OfferedTopic> {
    let read = |(name, display)| Some((name, serde_json::from_value::<TopicDisplay>(display).ok()?));
    let mut topics: Vec<(String, TopicDisplay)> = rows.into_iter().filter_map(read).collect();
    topics.sort_by(|(_, a), (_, b)| (a.position, &a.title).cmp(&(b.position, &b.title)));
    let offer = |(name, display)| {
        let TopicDisplay { title, description, texts, .. } = display;
        OfferedTopic { name, title, description, texts }
    };
    topics.into_iter().map(offer).collect()
}

/// Returns the settings of the prompt.
#[utoipa::path(get, path = "/v1/apps/{app}/prompt", tag = "Apps", responses((status = 200, body = PromptSettings)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>,
) -> Result<axum::Json<PromptSettings>, Problem> {
    Ok(axum::Json(PromptSettings::restore(apps::read_prompt(&state.pool, server.app.id).await?)))
}

/// Replaces the settings of the prompt. Pages use them within a minute.
#[utoipa::path(put, path = "/v1/apps/{app}/prompt", tag = "Apps", request_body = PromptSettings,
    responses((status = 200, body = PromptSettings)))]
pub(crate) async fn change(
    server: Server<MayChangeSettings>, State(state): State<ApiState>,
    Draft(mut settings, mut faults, _): Draft<PromptSettings>,
) -> Result<axum::Json<PromptSettings>, Problem> {
    settings.check(&mut faults);
    faults.finish()?;
    write(&server, &state, Some(json!(settings))).await?;
    Ok(axum::Json(settings))
}

/// Deletes the settings of the prompt. It then appears only if a page calls `show()`.
#[utoipa::path(delete, path = "/v1/apps/{app}/prompt", tag = "Apps", responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MayChangeSettings>, State(state): State<ApiState>,
) -> Result<StatusCode, Problem> {
    write(&server, &state, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn write(server: &Server<MayChangeSettings>, state: &ApiState, settings: Option<Value>) -> Result<(), Problem> {
    let app = server.app.id;
    let mut tx = state.begin().await?;
    apps::write_prompt(&mut *tx, app, settings.as_ref()).await?;
    let entry = server.did(AuditAction::AppChanged, app).with(json!({"prompt": settings}));
    entry.record(&mut tx, 1, state.clock.now()).await?;
    Ok(tx.commit().await?)
}
