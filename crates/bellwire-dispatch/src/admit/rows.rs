//! Checks of a claimed row: it is genuine, its subscription is active, and its retry token has not expired.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::{debug, warn};
use uuid::Uuid;

use super::Admission;
use crate::message::{LaneInfo, Message};
use bellwire_core::delivery::Ending;
use bellwire_core::id::{DeadLetterId, MessageId, SubscriptionId};
use bellwire_rules::classify::DeadReason;
use bellwire_rules::policy::reliability::ReliabilityCount;
use bellwire_store as store;
use bellwire_store::outcomes::ledger::forged::Forged;
use bellwire_store::queue::claims::{ClaimedRow, Sendability};
use bellwire_telemetry::metrics::TokenFault;
use bellwire_vault::retry_token::Queued;

/// A claimed row with its message and lane.
pub(super) struct ClaimedEntry {
    pub row: ClaimedRow,
    pub message: Arc<Message>,
    pub lane: Arc<LaneInfo>,
}

impl ClaimedEntry {
    pub(super) fn queued(&self) -> Queued {
        let ClaimedRow { message, retries, scheduled_at, .. } = self.row;
        Queued { message, subscription: self.row.recipient.subscription, retries, scheduled_at }
    }

    pub(super) fn key(&self) -> (SubscriptionId, MessageId) {
        (self.row.recipient.subscription, self.row.message)
    }
}

impl Admission {
    /// Removes rows that no worker wrote. They are never sent, and become dead letters with an alert.
    pub(super) async fn without_forged(&self, entries: Vec<ClaimedEntry>, lease: Uuid) -> Vec<ClaimedEntry> {
        let mut genuine = Vec::with_capacity(entries.len());
        for entry in entries {
            let (fault, reason) =
                if !entry.queued().fits(&entry.row.token, &self.shared.vault) || !entry.row.is_in_place {
                    (TokenFault::Tampered, DeadReason::Tampered)
                } else if entry.row.is_recorded {
                    (TokenFault::Replayed, DeadReason::Replayed)
                } else {
                    genuine.push(entry);
                    continue;
                };
            self.shared.metrics.token_fault(fault, 1);
            self.shared.reliability.count(entry.lane.id, Some(entry.message.tier), ReliabilityCount::TokenFailures, 1);
            self.end_forged(&entry, lease, reason).await;
            self.shared.progress.finished(1);
        }
        genuine
    }

    async fn end_forged(&self, entry: &ClaimedEntry, lease: Uuid, reason: DeadReason) {
        let subscription = entry.row.recipient.subscription;
        debug!(subscription = self.shared.label(subscription), reason = reason.name(), "a queue row was forged");
        let forged = Forged {
            lease,
            subscription,
            message: entry.message.id,
            app: entry.message.app,
            lane: entry.lane.id,
            tier: entry.message.tier,
            reason,
            letter: DeadLetterId(self.shared.clock.uuid()),
        };
        match store::outcomes::ledger::forged::end(&self.shared.pool, &forged, self.shared.clock.now()).await {
            Ok(_) => self.shared.metrics.ended(Ending::Dead, entry.message.tier, 1),
            // Its lease runs out, and it is found again.
            Err(failed) => warn!(error = %failed, "a queue row that was changed by hand could not be ended"),
        }
    }

    /// Moves deliveries of replaced subscriptions to the successors, where they are due at once.
    pub(super) async fn without_replaced(&self, entries: Vec<ClaimedEntry>, lease: Uuid) -> Vec<ClaimedEntry> {
        let is_replaced = |entry: &ClaimedEntry| entry.row.recipient.standing == Sendability::Replaced;
        let (replaced, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_replaced);
        let mut messages = BTreeMap::<_, Vec<_>>::new();
        for (subscription, message) in replaced.iter().map(ClaimedEntry::key) {
            messages.entry(subscription).or_default().push(message);
        }
        for (old, messages) in messages {
            let now = self.shared.clock.now();
            match store::audience::replacement::follow(
                &self.shared.pool,
                &self.shared.vault,
                lease,
                old,
                &messages,
                now,
            )
            .await
            {
                Ok(()) => self.shared.progress.finished(messages.len()),
                Err(failed) => {
                    warn!(error = %failed, "deliveries could not be handed on to a new subscription; they are put back");
                    self.settling.give_back(messages.into_iter().map(|message| (old, message)).collect(), lease);
                }
            }
        }
        if !replaced.is_empty() {
            self.kicked.notify_one();
        }
        others
    }

    /// Reads and signs rows again whose retry token expired during a long wait, for example after an outage of the server or a
    /// push service.
    pub(super) async fn without_late(&self, entries: Vec<ClaimedEntry>, lease: Uuid) -> Vec<ClaimedEntry> {
        let now = self.shared.clock.now();
        let is_late = |entry: &ClaimedEntry| entry.queued().is_late(now, entry.message.policy.settings.retry_token_ttl);
        let late: Vec<_> = entries.iter().filter(|entry| is_late(entry)).map(ClaimedEntry::queued).collect();
        if late.is_empty() {
            return entries;
        }
        self.shared.metrics.token_fault(TokenFault::Late, late.len() as u64);
        for entry in entries.iter().filter(|entry| is_late(entry)) {
            self.shared.reliability.count(entry.lane.id, Some(entry.message.tier), ReliabilityCount::TokensLate, 1);
        }
        let signed = store::queue::claims::sign_again(&self.shared.pool, &self.shared.vault, lease, &late).await;
        if let Err(failed) = &signed {
            warn!(error = %failed, "late retries could not be signed again; they are requeued");
        }
        // What must not be sent is settled by its standing at the claim; what changed since comes back with its lease.
        let stays = |entry: &ClaimedEntry| {
            entry.row.recipient.standing != Sendability::Sendable
                || !is_late(entry)
                || signed.as_ref().is_ok_and(|standing| standing.contains(&entry.key()))
        };
        let (stay, gone): (Vec<_>, Vec<_>) = entries.into_iter().partition(stays);
        match signed {
            Ok(_) => self.shared.progress.finished(gone.len()),
            Err(_) => self.settling.give_back(gone.iter().map(ClaimedEntry::key).collect(), lease),
        }
        stay
    }
}
