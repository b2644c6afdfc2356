//! Writes the dead letters of all kinds of endings.

use serde_json::Value;
use sqlx::PgConnection;

use super::closing::Closing;
use crate::outcomes::events::{DeadLetterCreated, Event, EventData};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Ending;
use bellwire_core::id::{AppId, DeadLetterId, LaneId, MessageId, SubscriptionId};
use bellwire_rules::classify::DeadReason;

#[derive(Debug, Clone, Copy)]
pub(super) enum Cause {
    Dead(DeadReason),
    Gone,
    Expired,
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Cause::Dead(reason) => reason.name(),
            Cause::Gone => Ending::Gone.name(),
            Cause::Expired => Ending::Expired.name(),
        }
    }
}

#[derive(Debug)]
pub(super) struct DeadLetter<'a> {
    pub id: DeadLetterId,
    /// App of the dead letter. `None`: the app of its message.
    pub app: Option<AppId>,
    pub message: MessageId,
    pub subscription: SubscriptionId,
    pub lane: LaneId,
    pub tier: i16,
    pub cause: Cause,
    pub status: Option<i16>,
    pub detail: Option<&'a str>,
    pub retries: i32,
    pub policy: Option<&'a Value>,
    pub at: Timestamp,
}

#[derive(Default)]
pub(super) struct DeadLetters<'a>(Vec<DeadLetter<'a>>);

impl<'a> DeadLetters<'a> {
    /// Adds a dead letter and its event.
    pub(super) fn push(&mut self, dead: DeadLetter<'a>, closing: &mut Closing) {
        if let (Cause::Dead(reason), Some(app)) = (dead.cause, dead.app) {
            let body = EventData::DeadLetterCreated(DeadLetterCreated {
                reason: reason.name().to_owned(),
                dead_letter: dead.id,
            });
            closing.tell([Event { app, body, n: 1 }]);
        }
        self.0.push(dead);
    }

    /// Writes the dead letters. Gone and expired ones are closed from the start, because they cannot be replayed.
    pub(super) async fn write(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        execute!(
            conn,
            r#"
            INSERT INTO dead_letters
                (app, id, shard, message, subscription, lane, tier, reason, status, detail, retries, policy, at, state)
            SELECT coalesce(l.app, (SELECT app FROM messages WHERE id = l.message)), l.id, l.shard, l.message,
                   l.subscription, l.lane, l.tier, l.reason, l.status, l.detail, l.retries, l.policy, l.at,
                   CASE WHEN l.reason IN ('gone', 'expired') THEN 'closed' ELSE 'open' END
            FROM unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::uuid[], $5::uuid[], $6::integer[], $7::smallint[],
                        $8::text[], $9::smallint[], $10::text[], $11::integer[], $12::jsonb[], $13::timestamptz[])
                AS l (app, id, shard, message, subscription, lane, tier, reason, status, detail, retries, policy, at)
            "#,
            self.0,
            |it| (it.app, it.id, it.subscription.shard(), it.message, it.subscription, it.lane, it.tier),
            |it| (it.cause.name(), it.status, it.detail, it.retries, it.policy, it.at)
        )
    }
}
