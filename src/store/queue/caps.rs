//! What counts towards frequency caps: kept for each person, reserved before the first POST.
//!
//! A message that a worker is about to send takes its place in the person's count once: whoever comes with it again, another
//! browser of theirs, a retry, another worker after a crash, a replay, finds it there and may go. One that was held back stays
//! so for all browsers of a user. What takes its place keeps it, also if no push service accepts the message in the end: to
//! give it back somebody would have to look for the person's other browsers at every failure.

use std::collections::{HashMap, HashSet};

use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use crate::model::clock::Timestamp;
use crate::model::id::{AppId, MessageId};
use crate::model::person::Person;
use crate::policy::caps::{Caps, Counted, Group, Refusal, WINDOW_MAX};
use crate::store::BEGIN_BY_INDEX;
use crate::store::operations::retrying::retrying;

/// So many messages that were held back are remembered for each user, so that none of their browsers gets them.
const REFUSED_KEPT: i32 = 8;
/// Rows that retention looks at in one transaction.
const CHUNK: i64 = 10_000;

/// An app's caps.
pub(crate) async fn read(pool: &PgPool, app: AppId) -> sqlx::Result<Caps> {
    let stored = sqlx::query_scalar!("SELECT caps FROM apps WHERE id = $1", app.0).fetch_one(pool).await?;
    Ok(Caps::restore(stored))
}

/// Replaces them. What counted before goes on counting.
pub(crate) async fn write(executor: impl PgExecutor<'_>, app: AppId, caps: &Caps) -> sqlx::Result<()> {
    let written = caps.written();
    let stored = (!written.is_empty()).then(|| serde_json::json!(written));
    sqlx::query!("UPDATE apps SET caps = $2 WHERE id = $1", app.0, stored).execute(executor).await.map(drop)
}

/// A message that wants to be sent to a person, whichever of their browsers it goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Wish {
    /// To whom.
    pub person: Person,
    /// What: the message, or the one that it replays.
    pub root: MessageId,
}

impl Wish {
    /// The order in which rows are locked, and messages of one person take their places.
    fn key(&self) -> (i16, Uuid, MessageId) {
        (self.person.shard(), self.person.id(), self.root)
    }
}

/// Lets messages to persons through, or says why not, each as often as it comes. All wishes are for messages of one app to
/// which the same caps apply: `caps`, one or more of them.
pub(crate) async fn reserve(
    pool: &PgPool,
    app: AppId,
    caps: &[Counted],
    wishes: &[Wish],
    now: Timestamp,
) -> sqlx::Result<Vec<Option<Refusal>>> {
    retrying(|| async move {
        let mut tx = pool.begin().await?;
        let mut left = wishes.to_vec();
        left.sort_unstable_by_key(Wish::key);
        left.dedup();
        let mut refusals = HashMap::new();
        // A statement changes a row once: further messages to the same person have their turn after it.
        while !left.is_empty() {
            let mut again = Vec::new();
            left.dedup_by(|next, first| {
                let is_same = next.person == first.person;
                again.extend(is_same.then_some(*next));
                is_same
            });
            refusals.extend(reserve_one_each(&mut tx, app, caps, left, now).await?);
            left = again;
        }
        tx.commit().await?;
        Ok(wishes.iter().map(|it| refusals.get(it).copied()).collect())
    })
    .await
}

/// The same for one message to each of several persons, in the order of their keys. Returns who is refused.
async fn reserve_one_each(
    conn: &mut PgConnection,
    app: AppId,
    caps: &[Counted],
    wishes: Vec<Wish>,
    now: Timestamp,
) -> sqlx::Result<Vec<(Wish, Refusal)>> {
    let (mut open, mut refused) = (wishes, Vec::new());
    for (n, counted) in caps.iter().enumerate() {
        let row = Rows { app, counted };
        let reserved = row.reserve(conn, &open, now).await?;
        let left: Vec<Wish> = open.iter().filter(|it| !reserved.contains(&it.person.id())).copied().collect();
        // What is known was let through before, by all caps there were.
        let full = if left.is_empty() { Vec::new() } else { row.refuse(conn, &left, now).await? };
        let rejected: Vec<Wish> = full.iter().map(|(it, _)| *it).collect();
        for before in &caps[..n] {
            Rows { app, counted: before }.give_back(conn, &rejected).await?;
        }
        refused.extend(full);
        open.retain(|it| reserved.contains(&it.person.id()));
        if open.is_empty() {
            break;
        }
    }
    Ok(refused)
}

/// The rows of an app that count the same tiers together.
struct Rows<'a> {
    app: AppId,
    counted: &'a Counted,
}

impl Rows<'_> {
    /// Gives each message a place with its person, if that has one left and does not know the message. Returns whose got one.
    /// Rows of the others are locked from now on, too.
    async fn reserve(&self, conn: &mut PgConnection, wishes: &[Wish], now: Timestamp) -> sqlx::Result<HashSet<Uuid>> {
        let [a, b, c, d] = self.counted.limits(now);
        let rows = sqlx::query_scalar!(
            "INSERT INTO cap_uses AS c (app, shard, person, tiers, at, roots)
             SELECT $1, g.shard, g.person, $2, ARRAY[$3::timestamptz], ARRAY[g.root]
             FROM unnest($4::smallint[], $5::uuid[], $6::uuid[]) AS g (shard, person, root)
             ON CONFLICT (app, shard, person, tiers) DO UPDATE
             SET at = greatest($3, c.at[1]) || c.at[1:$7], roots = excluded.roots || c.roots[1:$7]
             WHERE excluded.roots[1] <> ALL (c.roots) AND excluded.roots[1] <> ALL (c.refused)
               AND (c.at[$8::integer] > $12 OR c.at[$9::integer] > $13 OR c.at[$10::integer] > $14
                    OR c.at[$11::integer] > $15) IS NOT TRUE
             RETURNING person",
            self.app.0,
            self.counted.group.code(),
            now,
            &shards(wishes),
            &persons(wishes),
            &roots(wishes) as &[MessageId],
            self.counted.kept() - 1,
            a.0,
            b.0,
            c.0,
            d.0,
            a.1,
            b.1,
            c.1,
            d.1,
        )
        .fetch_all(conn)
        .await?;
        Ok(rows.into_iter().collect())
    }

    /// Of messages that got no place, whose rows are locked, those that had none before, each with what refuses it.
    async fn refuse(
        &self,
        conn: &mut PgConnection,
        wishes: &[Wish],
        now: Timestamp,
    ) -> sqlx::Result<Vec<(Wish, Refusal)>> {
        let rows = sqlx::query!(
            r#"SELECT g.person AS "person!", c.at, g.root = ANY (c.roots) AS "is_known!", g.root = ANY (c.refused) AS "is_refused!"
               FROM unnest($3::smallint[], $4::uuid[], $5::uuid[]) AS g (shard, person, root)
               JOIN cap_uses c ON c.app = $1 AND c.shard = g.shard AND c.person = g.person AND c.tiers = $2"#,
            self.app.0,
            self.counted.group.code(),
            &shards(wishes),
            &persons(wishes),
            &roots(wishes) as &[MessageId],
        )
        .fetch_all(&mut *conn)
        .await?;
        let by_person: HashMap<Uuid, Wish> = wishes.iter().map(|it| (it.person.id(), *it)).collect();
        let (mut refused, mut remembered) = (Vec::new(), Vec::new());
        for row in rows.iter().filter(|row| !row.is_known) {
            let Some(it) = by_person.get(&row.person) else { continue };
            refused.push((*it, self.counted.refusal(&row.at, now).unwrap_or(Refusal::AsElsewhere)));
            remembered.extend((it.person.is_user() && !row.is_refused).then_some(*it));
        }
        if !remembered.is_empty() {
            self.remember(conn, &remembered).await?;
        }
        Ok(refused)
    }

    /// Remembers that these messages were held back.
    async fn remember(&self, conn: &mut PgConnection, wishes: &[Wish]) -> sqlx::Result<()> {
        sqlx::query!(
            "UPDATE cap_uses c SET refused = g.root || c.refused[1:$6]
             FROM unnest($3::smallint[], $4::uuid[], $5::uuid[]) AS g (shard, person, root)
             WHERE c.app = $1 AND c.shard = g.shard AND c.person = g.person AND c.tiers = $2",
            self.app.0,
            self.counted.group.code(),
            &shards(wishes),
            &persons(wishes),
            &roots(wishes) as &[MessageId],
            REFUSED_KEPT - 1,
        )
        .execute(conn)
        .await
        .map(drop)
    }

    /// Takes places back that were given to these messages in this transaction, since other caps refuse them.
    async fn give_back(&self, conn: &mut PgConnection, wishes: &[Wish]) -> sqlx::Result<()> {
        if wishes.is_empty() {
            return Ok(());
        }
        sqlx::query!(
            "UPDATE cap_uses c SET at = c.at[2:], roots = c.roots[2:]
             FROM unnest($3::smallint[], $4::uuid[], $5::uuid[]) AS g (shard, person, root)
             WHERE c.app = $1 AND c.shard = g.shard AND c.person = g.person AND c.tiers = $2 AND c.roots[1] = g.root",
            self.app.0,
            self.counted.group.code(),
            &shards(wishes),
            &persons(wishes),
            &roots(wishes) as &[MessageId],
        )
        .execute(conn)
        .await
        .map(drop)
    }
}

fn shards(wishes: &[Wish]) -> Vec<i16> {
    wishes.iter().map(|it| it.person.shard()).collect()
}

fn persons(wishes: &[Wish]) -> Vec<Uuid> {
    wishes.iter().map(|it| it.person.id()).collect()
}

fn roots(wishes: &[Wish]) -> Vec<MessageId> {
    wishes.iter().map(|it| it.root).collect()
}

/// What counts towards caps of a person: of each group of tiers, when sending messages to them began, the newest first.
pub(crate) async fn of(
    executor: impl PgExecutor<'_>,
    app: AppId,
    person: Person,
) -> sqlx::Result<Vec<(Group, Vec<Timestamp>)>> {
    let rows = sqlx::query!(
        "SELECT tiers, at FROM cap_uses WHERE app = $1 AND shard = $2 AND person = $3 ORDER BY tiers",
        app.0,
        person.shard(),
        person.id()
    )
    .fetch_all(executor)
    .await?;
    let group = |code| Group::ALL.into_iter().find(|group| group.code() == code);
    Ok(rows.into_iter().filter_map(|row| Some((group(row.tiers)?, row.at))).collect())
}

/// Forgets what a person was sent.
pub(crate) async fn forget(executor: impl PgExecutor<'_>, app: AppId, person: Person) -> sqlx::Result<()> {
    sqlx::query!(
        "DELETE FROM cap_uses WHERE app = $1 AND shard = $2 AND person = $3",
        app.0,
        person.shard(),
        person.id()
    )
    .execute(executor)
    .await
    .map(drop)
}

/// Where retention is in the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    app: Uuid,
    shard: i16,
    person: Uuid,
    tiers: i16,
}

impl Place {
    /// Before the first row.
    pub(crate) const START: Self = Self { app: Uuid::nil(), shard: i16::MIN, person: Uuid::nil(), tiers: i16::MIN };
}

/// Looks at a chunk of the persons after one of them, and forgets those to whom nothing was sent that any cap may count still.
/// Returns the last one it looked at; none: there are no more. An index by time would make every message cost more.
pub(crate) async fn clear(pool: &PgPool, now: Timestamp, after: Place) -> sqlx::Result<Option<Place>> {
    let mut tx = pool.begin_with(BEGIN_BY_INDEX).await?;
    let last = sqlx::query_as!(
        Place,
        "WITH looked AS (
           SELECT app, shard, person, tiers, at[1] AS last_at FROM cap_uses
           WHERE (app, shard, person, tiers) > ($1, $2, $3, $4)
           ORDER BY app, shard, person, tiers LIMIT $6 FOR UPDATE SKIP LOCKED),
         deleted AS (
           DELETE FROM cap_uses c USING looked l
           WHERE c.app = l.app AND c.shard = l.shard AND c.person = l.person AND c.tiers = l.tiers
             AND (l.last_at >= $5) IS NOT TRUE)
         SELECT app, shard, person, tiers FROM looked
         ORDER BY app DESC, shard DESC, person DESC, tiers DESC LIMIT 1",
        after.app,
        after.shard,
        after.person,
        after.tiers,
        now - WINDOW_MAX,
        CHUNK
    )
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(last)
}
