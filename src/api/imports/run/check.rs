//! Checks a record with the same code as a registration request.

use serde_json::Value;

use super::super::super::http::extract::{USER_ID_RULE, is_user_id};
use super::super::super::http::problem::{Faults, FieldError, Problem};
use super::super::super::policies::of_new;
use super::super::entry::{RecordInput, Wrong};
use super::{CheckedRecord, ImportSource, KEYS_MAX};
use crate::api::subscriptions::consent::check_source;
use crate::api::subscriptions::input::{SubscriptionInput, zone_warning};
use crate::api::subscriptions::push_address::{PushKeys, PushSubscription, check_address};
use bellwire_core::base64url;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::VapidKeyId;
use bellwire_core::permission::Speaker;
use bellwire_core::subscription::Consent;
use bellwire_rules::policy::PolicyLevel;
use bellwire_store::audience::subscriptions::{Changes, Merge};
use bellwire_store::keys::vapid_keys;

impl ImportSource<'_> {
    /// Checks a record with the same code as a registration request. Optional values that are omitted or unknown are added to `warnings`.
    pub(super) async fn check(
        &mut self, line: i64, entry: RecordInput, warnings: &mut Vec<Wrong>,
    ) -> Result<Result<CheckedRecord, Vec<Wrong>>, Problem> {
        let (mut faults, mut details) = (Faults::default(), Faults::default());
        let (now, stated) = (self.state.clock.now(), entry.vapid_key.is_some());
        for (there, field) in [(&entry.endpoint, "/endpoint"), (&entry.p256dh, "/p256dh"), (&entry.auth, "/auth")] {
            faults.require(there.is_some(), field, "is missing");
        }
        let (Some(endpoint), Some(p256dh), Some(auth)) = (entry.endpoint, entry.p256dh, entry.auth) else {
            return Ok(Err(wrong(faults)));
        };
        let mut past = |at: Option<Timestamp>, field| {
            details.require(at.is_none_or(|at| at <= now), field, "must not be in the future");
            at.filter(|at| *at <= now)
        };
        let (created_at, consent_at) = (past(entry.created_at, "/created_at"), past(entry.consent_at, "/consent_at"));
        let unsubscribed_at = entry.unsubscribed_at;
        faults.require(unsubscribed_at.is_none_or(|at| at <= now), "/unsubscribed_at", "must not be in the future");
        let consent =
            Consent { at: consent_at, source: check_source(entry.consent_source, "/consent_source", &mut details) };
        let user_id = entry.user_id.filter(|user| {
            details.require(is_user_id(user), "/user_id", USER_ID_RULE);
            is_user_id(user)
        });
        let said = SubscriptionInput {
            by: Speaker::Server,
            user_id: user_id.map(Some),
            tags: entry.tags.map(Value::from),
            attributes: entry.attributes.map(Value::from),
            topics: entry.topics.map(Value::from),
            locale: entry.locale.map(Value::from),
            timezone: entry.timezone.map(Value::from),
            muted: None,
        };
        let muted_until = entry.muted_until.filter(|until| *until > now);
        let wanted = Changes { muted_until: muted_until.map(Some), ..said.check(Merge::Replace, now, &mut details) };
        if let Some(FieldError { pointer, detail, .. }) = zone_warning(wanted.timezone.as_ref()) {
            details.refuse(pointer.unwrap_or_default(), detail);
        }
        let vapid_key = match entry.vapid_key {
            Some(named) => self.key(named).await?,
            None => Some(self.active),
        };
        faults.require(vapid_key.is_some(), "/vapid_key", "names a VAPID key that does not exist in this app");
        let mut unfit = Faults::default();
        let policy =
            of_new(PolicyLevel::Subscription, entry.policy, self.app, Some(self.caller), &mut unfit).map_err(|why| {
                unfit.refuse("/policy", why.detail.clone());
            });
        let unfit = wrong(unfit);
        let policy = policy.ok().and_then(|(policy, _)| policy).filter(|_| unfit.is_empty());
        let expiration_time = entry.expires_at.map(|at| at.timestamp_millis().into());
        let given = PushSubscription { endpoint, expiration_time, keys: PushKeys { p256dh, auth } };
        let noted = (&mut faults, &mut details);
        let address = check_address(&given, self.app, self.state, &mut self.hosts, noted).await;
        let wrongs = wrong(faults);
        let (Some(address), Some(vapid_key), true) = (address, vapid_key, wrongs.is_empty()) else {
            return Ok(Err(wrongs));
        };
        warnings.extend(wrong(details).into_iter().chain(unfit));
        // Who agreed then was there by then.
        let (id, created_at) = (self.state.clock.uuid(), created_at.or(consent.at));
        let consent = Some(consent).filter(Consent::is_known);
        Ok(Ok(CheckedRecord {
            line,
            id,
            address,
            vapid_key,
            stated,
            wanted,
            created_at,
            consent,
            unsubscribed_at,
            policy,
        }))
    }

    async fn key(&mut self, named: String) -> Result<Option<VapidKeyId>, Problem> {
        if let Some(known) = self.keys.get(&named) {
            return Ok(*known);
        }
        let found = match (named.parse::<VapidKeyId>(), base64url::decode_any(&named)) {
            (Ok(id), _) => vapid_keys::find(&self.state.pool, self.app.id, id).await?.map(|key| key.id),
            (_, Some(public)) => vapid_keys::find_public(&self.state.pool, self.app.id, &public).await?,
            _ => None,
        };
        if self.keys.len() >= KEYS_MAX {
            self.keys.clear();
        }
        self.keys.insert(named, found);
        Ok(found)
    }
}

/// Converts faults to the field names of the file.
fn wrong(faults: Faults) -> Vec<Wrong> {
    let wrong = |FieldError { pointer, detail, .. }| {
        let pointer = pointer.unwrap_or_default();
        let within = pointer.strip_prefix("/subscription").unwrap_or(&pointer);
        let field = within.strip_prefix("/keys").unwrap_or(within).trim_start_matches('/');
        Wrong::new(if field == "expirationTime" { "expires_at" } else { field }, detail)
    };
    faults.into_errors().into_iter().map(wrong).collect()
}
