//! Lines of an export. Members have the names that import and the settings routes use.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::http::csv_cells::{NEUTRALISED, neutralise};
use bellwire_core::base64url;
use bellwire_core::id::SubscriptionId;
use bellwire_core::subscription::SubscriptionState;
use bellwire_store::operations::exports::SubscriptionOut;
use bellwire_vault::{ADDRESS, Unopenable, Vault};

pub(crate) const SUBSCRIPTION: &str = "subscription";
/// Type of the last line. A file without it is incomplete.
pub(crate) const END: &str = "end";
pub(crate) const APP: &str = "app";
/// All line types, in the order of an export.
pub(crate) const KINDS: [&str; 17] = [
    APP,
    "vapid_key",
    "identity_key",
    "prompt",
    "calendar",
    "frequency_caps",
    "slas",
    "guard",
    "flow",
    "topic",
    "policy",
    "segment",
    "template",
    "webhook",
    "campaign",
    SUBSCRIPTION,
    END,
];

/// Bytes of the public key with which a stored address begins.
const P256DH_LEN: usize = 65;
const AUTH_LEN: usize = 16;

#[derive(Debug, Serialize)]
struct ExportedKeys {
    p256dh: String,
    auth: String,
}

#[derive(Debug, Serialize)]
struct ConsentOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
}

/// A subscription as a line of an export, in the form that `POST …/imports` reads.
#[derive(Serialize)]
pub(super) struct SubscriptionLine<'a> {
    r#type: &'static str,
    id: SubscriptionId,
    endpoint: Cow<'a, str>,
    keys: ExportedKeys,
    /// Public VAPID key of the subscription. Key ids differ between servers.
    vapid_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    topics: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    locale: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    muted_until: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consent: Option<ConsentOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unsubscribed_at: Option<DateTime<Utc>>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum NoLine {
    #[error(transparent)]
    Sealed(#[from] Unopenable),
    #[error("stored JSON cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Csv(#[from] csv::Error),
}

impl<'a> SubscriptionLine<'a> {
    /// Returns the line of a row. `None`: not exported. Active subscriptions are exported, and unsubscribed ones, so that an
    /// import cannot revive them. Gone, replaced, expired and suspended subscriptions are unreachable, and erased ones have no
    /// data.
    pub(super) fn of(row: &'a SubscriptionOut, vault: &Vault) -> Result<Option<Self>, NoLine> {
        let unsubscribed_at = match row.state {
            SubscriptionState::Active => None,
            SubscriptionState::Unsubscribed => row.ended_at,
            _ => return Ok(None),
        };
        let address = vault.open(ADDRESS, row.id, &row.address)?;
        let Some((p256dh, rest)) = address.split_at_checked(P256DH_LEN) else { return Ok(None) };
        let Some((auth, endpoint)) = rest.split_at_checked(AUTH_LEN) else { return Ok(None) };
        let attributes = Some(row.attributes.as_str()).filter(|attributes| *attributes != "{}");
        Ok(Some(Self {
            r#type: SUBSCRIPTION,
            id: row.id,
            endpoint: String::from_utf8_lossy(endpoint).into_owned().into(),
            keys: ExportedKeys { p256dh: base64url::encode(p256dh), auth: base64url::encode(auth) },
            vapid_key: base64url::encode(&row.vapid_key),
            user_id: row.user_id.as_deref(),
            tags: &row.tags,
            attributes: attributes.map(serde_json::from_str).transpose()?,
            topics: &row.topics,
            locale: row.locale.as_deref(),
            timezone: row.timezone.as_deref(),
            expires_at: row.expires_at,
            policy: row.policy.as_deref().map(serde_json::from_str).transpose()?,
            muted_until: row.muted_until,
            created_at: row.created_at,
            consent: (row.consent_at.is_some() || row.consent_source.is_some())
                .then_some(ConsentOut { at: row.consent_at, source: row.consent_source.as_deref() }),
            state: unsubscribed_at.map(|_| SubscriptionState::Unsubscribed.name()),
            unsubscribed_at,
        }))
    }

    pub(super) fn write_json(&self, out: &mut Vec<u8>) -> Result<(), NoLine> {
        serde_json::to_writer(&mut *out, self)?;
        out.push(b'\n');
        Ok(())
    }

    /// Writes a row in the order of [`columns`]. Without `raw`, formulas are neutralised with an apostrophe.
    pub(super) fn write_csv(&self, out: &mut csv::Writer<Vec<u8>>, raw: bool) -> Result<(), NoLine> {
        let list = |items: &[String]| if items.is_empty() { String::new() } else { Value::from(items).to_string() };
        let at = |at: Option<DateTime<Utc>>| at.map(|at| at.to_rfc3339()).unwrap_or_default();
        let json = |json: Option<&'a RawValue>| json.map_or("", RawValue::get);
        let cells = [
            self.r#type.to_owned(),
            self.id.to_string(),
            self.endpoint.to_string(),
            self.keys.p256dh.clone(),
            self.keys.auth.clone(),
            self.vapid_key.clone(),
            self.user_id.unwrap_or_default().to_owned(),
            list(self.tags),
            json(self.attributes).to_owned(),
            list(self.topics),
            self.locale.unwrap_or_default().to_owned(),
            self.timezone.unwrap_or_default().to_owned(),
            at(self.expires_at),
            json(self.policy).to_owned(),
            at(self.muted_until),
            at(Some(self.created_at)),
            at(self.consent.as_ref().and_then(|consent| consent.at)),
            self.consent.as_ref().and_then(|consent| consent.source).unwrap_or_default().to_owned(),
            self.state.unwrap_or_default().to_owned(),
            at(self.unsubscribed_at),
        ];
        match raw {
            true => out.write_record(cells)?,
            false => out.write_record(cells.map(neutralise).iter().map(String::as_str).chain(["true"]))?,
        }
        Ok(())
    }
}

/// Names of the cells that [`SubscriptionLine::write_csv`] writes.
pub(super) fn columns(raw: bool) -> impl Iterator<Item = &'static str> {
    COLUMNS.into_iter().chain((!raw).then_some(NEUTRALISED))
}

const COLUMNS: [&str; 20] = [
    "type",
    "id",
    "endpoint",
    "p256dh",
    "auth",
    "vapid_key",
    "user_id",
    "tags",
    "attributes",
    "topics",
    "locale",
    "timezone",
    "expires_at",
    "policy",
    "muted_until",
    "created_at",
    "consent_at",
    "consent_source",
    "state",
    "unsubscribed_at",
];
