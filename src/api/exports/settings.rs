//! Settings of an app as lines: each has the members that the route for setting it accepts.

use serde_json::{Value, json};
use uuid::Uuid;

use super::super::ApiState;
use super::super::campaigns::plan_for_export;
use super::super::caps::CapSettings;
use super::giving::{Broken, Giving};
use super::record::APP;
use crate::api::campaigns::calendar::CalendarSettings;
use crate::api::identity::keys::{Algorithm, algorithm_of};
use crate::hooks::Secret;
use bellwire_core::base64url;
use bellwire_core::delivery::Tier;
use bellwire_core::hook::WebhookState;
use bellwire_core::id::AppId;
use bellwire_rules::policy::PolicyLevel;
use bellwire_store::audience::segments;
use bellwire_store::campaigns;
use bellwire_store::keys::apps::{self, App};
use bellwire_store::keys::identity_keys;
use bellwire_store::keyset::{Keyset, Towards, key_of};
use bellwire_store::operations::exports;
use bellwire_store::outcomes::slas;
use bellwire_store::queue::{calendars, caps, flows, guards, policies};
use bellwire_vault::{IDENTITY_SECRET, TEMPLATE, VAPID_PRIVATE, WEBHOOK_SECRET, WEBHOOK_URL};

/// Version of the format. A server reads files of its own and earlier versions.
const VERSION: u32 = 1;
/// Rows read per statement.
const PAGE: i64 = 100;
/// First page of a list, from the oldest row on.
const OLDEST: Keyset = Keyset { towards: Towards::Newer, beyond: Uuid::nil(), limit: PAGE };

/// Writes all settings. An object comes before those that refer to it.
pub(super) async fn give(to: &mut Giving, state: &ApiState, app: &App) -> Result<(), Broken> {
    let first = json!({
        "version": VERSION, "exported_at": state.clock.now(), "slug": app.slug, "name": app.name, "origins": app.origins,
        "allow_other_gateways": app.allow_other_gateways, "browsers_may": app.browsers_may, "max_retries": app.max_retries,
        "weight": app.weight,
    });
    to.line(APP, &first).await?;
    keys(to, state, app.id).await?;
    limits(to, state, app.id).await?;
    topics_and_policies(to, state, app.id).await?;
    segments(to, state, app.id).await?;
    templates(to, state, app.id).await?;
    webhooks(to, state, app.id).await?;
    campaigns(to, state, app).await
}

async fn keys(to: &mut Giving, state: &ApiState, app: AppId) -> Result<(), Broken> {
    for key in exports::vapid_keys(&state.pool, app).await? {
        let private = zeroize::Zeroizing::new(state.vault.open(VAPID_PRIVATE, key.id, &key.private_key)?);
        let private_key = base64url::encode(&*private);
        to.line("vapid_key", &json!({"private_key": private_key, "subject": key.subject, "state": key.state})).await?;
    }
    let mut keys = identity_keys::list(&state.pool, app).await?;
    keys.reverse();
    for key in keys {
        let algorithm = algorithm_of(&key);
        let mut line = json!({"name": key.name, "algorithm": algorithm, "form": key.form});
        match algorithm {
            Algorithm::Hs256 => {
                let secret = state.vault.open(IDENTITY_SECRET, key.id, &key.secret.unwrap_or_default())?;
                line["secret"] = String::from_utf8(secret).map_err(|_| Broken::Stored)?.into();
            }
            Algorithm::Es256 => {
                let point = key.public_key.filter(|point| point.len() == 65).ok_or(Broken::Stored)?;
                let [x, y] = [&point[1..33], &point[33..]].map(base64url::encode);
                line["public_key"] = json!({"kty": "EC", "crv": "P-256", "x": x, "y": y});
            }
        }
        to.line("identity_key", &line).await?;
    }
    Ok(())
}

/// Writes the prompt settings, and the limits on send times and message numbers.
async fn limits(to: &mut Giving, state: &ApiState, app: AppId) -> Result<(), Broken> {
    let pool = &state.pool;
    if let Some(prompt) = apps::read_prompt(pool, app).await? {
        to.line("prompt", &prompt).await?;
    }
    to.line("calendar", &CalendarSettings::from(calendars::read(pool, app).await?)).await?;
    to.line("frequency_caps", &CapSettings::from(&caps::read(pool, app).await?)).await?;
    let slas = slas::read(pool, app).await?;
    let seconds: serde_json::Map<String, Value> =
        slas.into_iter().map(|(tier, seconds)| (tier.name().to_owned(), seconds.into())).collect();
    to.line("slas", &seconds).await?;
    let guard = guards::read(pool, app).await?;
    to.line("guard", &json!({"factor": guard.factor, "floor": guard.floor})).await?;
    if let Some(flow) =
        flows::find(pool, app, None).await?.filter(|flow| flow.rate.is_some() || flow.parallelism.is_some())
    {
        let mut line = json!({"parallelism": flow.parallelism});
        if let Some(rate) = flow.rate {
            (line["rate"], line["period"]) = (rate.n.into(), rate.period.as_secs_f64().into());
        }
        to.line("flow", &line).await?;
    }
    Ok(())
}

async fn topics_and_policies(to: &mut Giving, state: &ApiState, app: AppId) -> Result<(), Broken> {
    for (tier, policy) in Tier::ALL.into_iter().zip(policies::tiers(&state.pool, app).await?) {
        if let Some(policy) = policy {
            let line = json!({"level": PolicyLevel::Tier.name(), "name": tier.name(), "policy": policy});
            to.line("policy", &line).await?;
        }
    }
    let mut after = 0;
    loop {
        let topics = exports::topics(&state.pool, app, after, PAGE).await?;
        let Some(last) = topics.last() else { return Ok(()) };
        after = last.id;
        for topic in topics {
            to.line("topic", &json!({"name": topic.name, "join": topic.join, "display": topic.display})).await?;
            if let Some(policy) = topic.policy {
                let line = json!({"level": PolicyLevel::Topic.name(), "name": topic.name, "policy": policy});
                to.line("policy", &line).await?;
            }
        }
    }
}

async fn segments(to: &mut Giving, state: &ApiState, app: AppId) -> Result<(), Broken> {
    let mut page = OLDEST;
    loop {
        let segments = segments::list(&state.pool, app, None, page).await?;
        let Some(last) = segments.last() else { return Ok(()) };
        page.beyond = key_of(last.id);
        for segment in segments {
            let line =
                json!({"name": segment.name, "expression": segment.expression, "description": segment.description});
            to.line("segment", &line).await?;
        }
    }
}

async fn templates(to: &mut Giving, state: &ApiState, app: AppId) -> Result<(), Broken> {
    let mut after = Uuid::nil();
    loop {
        let templates = exports::templates(&state.pool, app, after, PAGE).await?;
        let Some(last) = templates.last() else { return Ok(()) };
        after = last.id;
        for template in templates {
            let plain = zeroize::Zeroizing::new(state.vault.open(TEMPLATE, template.id, &template.content)?);
            let content: Value = serde_json::from_slice(&plain)?;
            to.line("template", &json!({"name": template.name, "template": content})).await?;
        }
    }
}

async fn webhooks(to: &mut Giving, state: &ApiState, app: AppId) -> Result<(), Broken> {
    for hook in exports::webhooks(&state.pool, app).await? {
        let url = state.vault.open(WEBHOOK_URL, hook.id, &hook.url)?;
        let secret = Secret::from_octets(state.vault.open(WEBHOOK_SECRET, hook.id, &hook.secret)?);
        let line = json!({
            "name": hook.name, "url": String::from_utf8_lossy(&url), "events": hook.events, "max_events": hook.max_events,
            "policy": hook.policy, "enabled": hook.state == WebhookState::Active, "secret": *secret.write(),
        });
        to.line("webhook", &line).await?;
    }
    Ok(())
}

async fn campaigns(to: &mut Giving, state: &ApiState, app: &App) -> Result<(), Broken> {
    let mut page = OLDEST;
    loop {
        let campaigns = campaigns::list(&state.pool, app.id, None, page).await?;
        let Some(last) = campaigns.last() else { return Ok(()) };
        page.beyond = last.id.into();
        for campaign in campaigns {
            if let Some(plan) = plan_for_export(state, app, &campaign).await? {
                to.line("campaign", &json!({"state": campaign.state, "plan": plan})).await?;
            }
        }
    }
}
