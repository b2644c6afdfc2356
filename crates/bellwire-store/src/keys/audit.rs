//! Audit log: actions of people, by key, session or command line. An entry is written in the transaction of its action, so both
//! exist or neither. It is never changed: the database refuses it.

use std::fmt::Display;
use std::net::IpAddr;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::{FromRow, PgConnection, PgPool, QueryBuilder};
use uuid::Uuid;

use crate::keyset::Keyset;
use crate::transactions::begin;
use bellwire_core::clock::{Timestamp, first_uuid_of, uuid_of};
use bellwire_core::id::{ApiKeyId, AppId, EntryId, TeammateId};
use bellwire_core::named;

/// Actor of the command line, which needs no key.
pub const LOCAL: &str = "local";
/// Actor without proof of identity.
pub const NOBODY: &str = "nobody";
const TEAMMATE: &str = "teammate";

/// Entries that one transaction deletes.
const CHUNK: i64 = 10_000;

named! {
    /// An action that the audit log names. Names never change; each route that changes something has one.
    pub enum AuditAction {
        /// An app was made.
        AppCreated = "app.created",
        /// An app's name, origins or the like were changed.
        AppChanged = "app.changed",
        /// An app was deleted.
        AppDeleted = "app.deleted",
        /// An API key was made.
        ApiKeyCreated = "api_key.created",
        /// An API key was revoked, and what descended from it.
        ApiKeyRevoked = "api_key.revoked",
        /// A key for user tokens was made.
        IdentityKeyCreated = "identity_key.created",
        /// A key for user tokens was removed.
        IdentityKeyRemoved = "identity_key.removed",
        /// A VAPID key was made.
        VapidKeyCreated = "vapid_key.created",
        /// A VAPID key was imported.
        VapidKeyImported = "vapid_key.imported",
        /// A VAPID key became the one that new subscribers get.
        VapidKeyActivated = "vapid_key.activated",
        /// A VAPID key's contact was changed.
        VapidKeyChanged = "vapid_key.changed",
        /// A VAPID private key was taken out.
        VapidKeyExported = "vapid_key.exported",
        /// An app, or its subscriptions, began to be taken out.
        AppExported = "app.exported",
        /// An import of subscriptions began.
        ImportBegun = "import.begun",
        /// A file of subscriptions was taken in to its end.
        ImportFinished = "import.finished",
        /// Subscriptions that their push service called gone were restored.
        SubscriptionsRestored = "subscriptions.restored",
        /// Dead letters were sent again.
        DeadLettersReplayed = "dead_letters.replayed",
        /// Dead letters were put aside.
        DeadLettersDiscarded = "dead_letters.discarded",
        /// Dead letters were taken out.
        DeadLettersExported = "dead_letters.exported",
        /// A message was paused.
        MessagePaused = "message.paused",
        /// A message was resumed.
        MessageResumed = "message.resumed",
        /// A message was cancelled.
        MessageCancelled = "message.cancelled",
        /// A campaign was made.
        CampaignCreated = "campaign.created",
        /// The plan of a draft was changed.
        CampaignChanged = "campaign.changed",
        /// A campaign was deleted that was a draft, or over.
        CampaignDeleted = "campaign.deleted",
        /// A campaign was started.
        CampaignStarted = "campaign.started",
        /// A campaign was paused.
        CampaignPaused = "campaign.paused",
        /// A campaign was resumed.
        CampaignResumed = "campaign.resumed",
        /// A campaign was cancelled.
        CampaignCancelled = "campaign.cancelled",
        /// A topic was made.
        TopicCreated = "topic.created",
        /// The callers that may join a topic were changed.
        TopicChanged = "topic.changed",
        /// A topic was removed.
        TopicRemoved = "topic.removed",
        /// A segment was created or changed.
        SegmentSet = "segment.set",
        /// A segment was removed.
        SegmentRemoved = "segment.removed",
        /// A template was created or replaced.
        TemplateSet = "template.set",
        /// A template was removed.
        TemplateRemoved = "template.removed",
        /// A webhook was made.
        WebhookCreated = "webhook.created",
        /// A webhook was changed, enabled or disabled.
        WebhookChanged = "webhook.changed",
        /// A webhook was removed.
        WebhookRemoved = "webhook.removed",
        /// A webhook was given another secret.
        WebhookSecretRotated = "webhook.secret_rotated",
        /// Requests to a webhook's receiver that had failed were made again.
        WebhookReplayed = "webhook.replayed",
        /// A delivery policy was set.
        PolicySet = "policy.set",
        /// A delivery policy was taken away.
        PolicyRemoved = "policy.removed",
        /// An app's calendar was changed.
        CalendarChanged = "calendar.changed",
        /// An app's SLAs were changed.
        SlasChanged = "slas.changed",
        /// An app's frequency caps were changed.
        CapsChanged = "caps.changed",
        /// An app's runaway guard was changed.
        GuardChanged = "guard.changed",
        /// An app that the runaway guard held was released.
        AppReleased = "app.released",
        /// Flow control was set.
        FlowSet = "flow.set",
        /// Flow control was taken away.
        FlowRemoved = "flow.removed",
        /// An app or a lane was paused.
        FlowPaused = "flow.paused",
        /// An app or a lane was resumed.
        FlowResumed = "flow.resumed",
        /// The period of a flow began anew.
        FlowReset = "flow.reset",
        /// A lane was held.
        LaneHeld = "lane.held",
        /// A lane was released.
        LaneReleased = "lane.released",
        /// A lane's breaker was opened.
        LaneOpened = "lane.opened",
        /// A lane's breaker was closed.
        LaneClosed = "lane.closed",
        /// A lane was ordered to probe.
        LaneProbed = "lane.probed",
        /// The erasure of a user was requested, with the number of subscriptions.
        UserErased = "user.erased",
        /// An erased user is no longer named anywhere. With the caller of the request.
        UserErasureCompleted = "user.erasure_completed",
        /// The data of a user were exported.
        UserExported = "user.exported",
        /// All data of a subscription's browser were erased.
        SubscriptionErased = "subscription.erased",
        /// The database was brought back from a backup.
        DatabaseRestored = "database.restored",
        /// The master key was replaced.
        MasterKeyRotated = "master_key.rotated",
        /// A seal key was added, under which all that is sealed is sealed anew.
        SealKeyAdded = "seal_key.added",
        /// The log level was set for a while.
        LogLevelSet = "log_level.set",
        /// The log level was reset to that of each process's start.
        LogLevelReset = "log_level.reset",
        /// An alert was resolved.
        AlertResolved = "alert.resolved",
        /// A teammate was invited.
        TeammateInvited = "teammate.invited",
        /// The roles of a teammate were changed, or the teammate was enabled or disabled.
        TeammateChanged = "teammate.changed",
        /// A teammate's password was forgotten, their sessions were ended, and a new link was made.
        TeammateReset = "teammate.reset",
        /// A teammate was removed.
        TeammateRemoved = "teammate.removed",
        /// A person with an account at the OpenID provider became a teammate without an invitation.
        TeammateJoined = "teammate.joined",
        /// A teammate's account at the OpenID provider was linked, when they first signed in with it.
        TeammateLinked = "teammate.linked",
        /// A teammate's account at the OpenID provider was unlinked.
        TeammateUnlinked = "teammate.unlinked",
        /// A teammate set a password.
        PasswordSet = "password.set",
        /// A teammate added a passkey.
        PasskeyAdded = "passkey.added",
        /// A teammate renamed a passkey.
        PasskeyRenamed = "passkey.renamed",
        /// A teammate removed a passkey.
        PasskeyRemoved = "passkey.removed",
        /// All passkeys of a teammate were removed by another person, and their sessions were ended.
        PasskeysReset = "passkeys.reset",
        /// A person signed in.
        SessionBegun = "session.begun",
        /// A sign-in or change of password was refused for lack of proof.
        SessionRefused = "session.refused",
        /// A person signed out, or a session was ended.
        SessionEnded = "session.ended",
    }
}

/// Identity of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// With that key of an app.
    ApiKey(ApiKeyId),
    /// With that operator's key.
    Operator(ApiKeyId),
    /// Signed in as that teammate.
    Teammate(TeammateId),
    /// At the command line, with database and master key at hand.
    Local,
    /// Without having proved who they are.
    Nobody,
}

impl Who {
    fn kind(self) -> &'static str {
        match self {
            Self::ApiKey(_) => "api_key",
            Self::Operator(_) => "operator",
            Self::Teammate(_) => TEAMMATE,
            Self::Local => LOCAL,
            Self::Nobody => NOBODY,
        }
    }

    /// The API key, if it is done with one.
    pub fn key(self) -> Option<ApiKeyId> {
        match self {
            Self::ApiKey(key) | Self::Operator(key) => Some(key),
            Self::Teammate(_) | Self::Local | Self::Nobody => None,
        }
    }

    /// The teammate, if it is done by one.
    pub fn teammate(self) -> Option<TeammateId> {
        if let Self::Teammate(id) = self { Some(id) } else { None }
    }

    /// The id of the API key or the teammate, as it is stored.
    pub fn id(self) -> Option<Uuid> {
        self.key().map(Uuid::from).or(self.teammate().map(Uuid::from))
    }

    /// The id of the API key or the teammate; `local` or `nobody` without one.
    pub fn name(self) -> String {
        name_of(self.kind(), self.id())
    }
}

/// Returns the name of an actor of that kind in a row.
fn name_of(kind: &str, actor: Option<Uuid>) -> String {
    match actor {
        None => kind.to_owned(),
        Some(id) if kind == TEAMMATE => TeammateId(id).to_string(),
        Some(id) => ApiKeyId(id).to_string(),
    }
}

/// Actor, with the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actor {
    /// Identity of the actor.
    pub who: Who,
    /// The client's address, if there is one.
    pub address: Option<IpAddr>,
}

impl Actor {
    /// Actor at the command line.
    pub const LOCAL: Self = Self { who: Who::Local, address: None };
}

/// Action to write into the log.
#[derive(Debug, Clone)]
#[must_use = "it has to be recorded"]
pub struct AuditEntry {
    /// Actor of the action.
    pub actor: Actor,
    /// The app it is done to; none: the server.
    pub app: Option<AppId>,
    /// Kind of the action.
    pub action: AuditAction,
    /// Object of the action: a typed id, or a name. Never a secret, nor a user of the app.
    pub target: String,
    /// Further details, a small JSON object. Never a secret, nor a user of the app.
    pub detail: Value,
}

impl AuditEntry {
    /// An entry without details.
    pub fn new(actor: Actor, app: Option<AppId>, action: AuditAction, target: impl Display) -> Self {
        Self { actor, app, action, target: target.to_string(), detail: json!({}) }
    }

    /// Adds details to the entry.
    pub fn with(self, detail: Value) -> Self {
        Self { detail, ..self }
    }

    /// Writes it, within the transaction that does it to `n` things.
    pub async fn record(&self, conn: &mut PgConnection, n: i64, now: Timestamp) -> sqlx::Result<()> {
        execute!(
            conn,
            "INSERT INTO audit_log (id, at, app, actor_kind, actor, address, action, target, n, detail)
             VALUES ($1, $2, $3, $4, $5, $6::text::inet, $7, $8, $9, $10)",
            (uuid_of(now), now, self.app.map(|app| app.0), self.actor.who.kind(), self.actor.who.id()),
            (self.actor.address.map(|address| address.to_canonical().to_string()), self.action.name(), self.target, n),
            (self.detail)
        )
    }
}

/// Writes an entry for what follows from an earlier one of an app, done at that time: by the same actor to the same target.
pub async fn repeat(
    conn: &mut PgConnection,
    app: AppId,
    (earlier, at): (AuditAction, Timestamp),
    action: AuditAction,
    detail: Value,
    now: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        conn,
        "INSERT INTO audit_log (id, at, app, actor_kind, actor, address, action, target, n, detail)
         SELECT $1, $2, app, actor_kind, actor, address, $3, target, 1, $4 FROM audit_log
         WHERE app = $5 AND id >= $6 AND at = $7 AND action = $8 AND detail ->> 'erasure' = $4::jsonb ->> 'erasure' ORDER BY id LIMIT 1",
        (uuid_of(now), now, action.name(), detail, app.0, first_uuid_of(at), at, earlier.name())
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActorFilter {
    Id(Uuid),
    /// Actor without an id: [`LOCAL`] or [`NOBODY`].
    Kind(&'static str),
}

/// Filter of entries, which match all of it.
#[derive(Debug, Default)]
pub struct AuditFilter {
    pub app: Option<AppId>,
    pub actor: Option<ActorFilter>,
    pub action: Option<AuditAction>,
    pub target: Option<String>,
    /// At this time or later, to the millisecond.
    pub since: Option<DateTime<Utc>>,
    /// End of the time, excluded.
    pub until: Option<DateTime<Utc>>,
}

#[derive(Debug, FromRow)]
pub struct AuditRow {
    /// Id of the entry, a UUIDv7 of its time.
    pub id: EntryId,
    pub at: Timestamp,
    /// Only what was done to this app.
    pub app: Option<AppId>,
    /// `api_key`, `operator`, `teammate`, `local` or `nobody`.
    pub actor_kind: String,
    pub actor: Option<Uuid>,
    pub address: Option<String>,
    /// Name from [`AuditAction::name`].
    pub action: String,
    pub target: String,
    pub n: i64,
    /// Further details.
    pub detail: Value,
}

impl AuditRow {
    /// Returns the actor: the id of an API key or a teammate, `local` or `nobody`.
    pub fn actor(&self) -> String {
        name_of(&self.actor_kind, self.actor)
    }
}

/// Entries with ids beyond the page's key, the nearest first.
pub async fn list(pool: &PgPool, filter: &AuditFilter, page: Keyset) -> sqlx::Result<Vec<AuditRow>> {
    let mut query = QueryBuilder::new(
        "SELECT id, at, app, actor_kind, actor, host(address) AS address, action, target, n, detail FROM audit_log",
    );
    query.push(" WHERE id").push(page.towards.comparison()).push_bind(page.beyond);
    if let Some(app) = filter.app {
        query.push(" AND app = ").push_bind(app);
    }
    match filter.actor {
        Some(ActorFilter::Id(id)) => drop(query.push(" AND actor = ").push_bind(id)),
        // The first condition is what the index knows.
        Some(ActorFilter::Kind(kind)) => drop(query.push(" AND actor IS NULL AND actor_kind = ").push_bind(kind)),
        None => {}
    }
    if let Some(action) = filter.action {
        query.push(" AND action = ").push_bind(action.name());
    }
    if let Some(target) = &filter.target {
        query.push(" AND target = ").push_bind(target);
    }
    if let Some(since) = filter.since {
        query.push(" AND id >= ").push_bind(first_uuid_of(since));
    }
    if let Some(until) = filter.until {
        query.push(" AND id < ").push_bind(first_uuid_of(until));
    }
    query.push(" ORDER BY id").push(page.towards.order()).push("LIMIT ").push_bind(page.limit);
    query.build_query_as().persistent(false).fetch_all(pool).await
}

/// Deletes a chunk of entries older than `cutoff`, and returns their number. Only this function sets the permission to do so.
pub async fn clear(pool: &PgPool, cutoff: Timestamp) -> sqlx::Result<u64> {
    let mut tx = begin(pool).await?;
    execute!(&mut *tx, "SET LOCAL bellwire.audit_log_retention = 'on'")?;
    let done = rows_affected!(
        &mut *tx,
        "DELETE FROM audit_log WHERE id = ANY (ARRAY(SELECT id FROM audit_log WHERE id < $1 ORDER BY id LIMIT $2))",
        (first_uuid_of(cutoff), CHUNK)
    )?;
    tx.commit().await?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_names_are_dotted_and_unique() {
        for (i, action) in AuditAction::ALL.iter().enumerate() {
            let (what, done) = action.name().split_once('.').unwrap();
            let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(plain(what) && plain(done), "{action:?}");
            assert_eq!(serde_json::to_value(action).unwrap(), action.name());
            assert!(AuditAction::ALL[..i].iter().all(|other| other.name() != action.name()), "{action:?}");
        }
    }
}
