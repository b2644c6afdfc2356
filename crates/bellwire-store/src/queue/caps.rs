//! Counts for frequency caps: stored for each person, and reserved before the first POST.
//!
//! A message that a worker is about to send is counted once for the person. Another browser of theirs, a retry, another worker
//! after a crash, or a replay finds the reservation and may send. A message that was refused is refused for all browsers of a
//! user. A reservation stays even if no push service accepts the message: returning it would require a check of the person's
//! other browsers at each failure.

use std::collections::{HashMap, HashSet};

use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use crate::operations::retrying::retrying;
use crate::transactions::{begin, begin_by_index};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, MessageId};
use bellwire_core::person::Person;
use bellwire_rules::policy::caps::{CapRefusal, CapSet, Caps, TierGroup, WINDOW_MAX};

/// Number of messages held back by a cap that are stored per user, so that no browser of the user gets them.
const REFUSED_KEPT: i32 = 8;
/// Maximum repetitions of a transaction after concurrent changes. Two are rare.
const ROUNDS_MAX: usize = 8;
/// Rows that retention looks at in one transaction.
const CHUNK: i64 = 10_000;

pub async fn read(pool: &PgPool, app: AppId) -> sqlx::Result<Caps> {
    let stored = fetch_one!(pool, scalar, "SELECT caps FROM apps WHERE id = $1", (app.0))?;
    Ok(Caps::restore(stored))
}

/// Replaces the caps. Earlier counts stay.
pub async fn write(executor: impl PgExecutor<'_>, app: AppId, caps: &Caps) -> sqlx::Result<()> {
    let written = caps.written();
    let stored = (!written.is_empty()).then(|| serde_json::json!(written));
    execute!(executor, "UPDATE apps SET caps = $2 WHERE id = $1", (app.0, stored))
}

/// A message that wants to be sent to a person, whichever of their browsers it goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wish {
    pub person: Person,
    /// The message, or the one that it replays.
    pub root: MessageId,
}

impl Wish {
    /// The order in which rows are locked, and messages of one person take their places.
    fn key(&self) -> (Uuid, MessageId) {
        (self.person.id(), self.root)
    }

    /// Returns the number of the message in a person's row: the second half of its id, with 62 random bits, so that no two of 50
    /// in a row are equal. It is negative, unlike a time.
    fn root(&self) -> i64 {
        let half = self.root.0.as_bytes().last_chunk().expect("an id has 16 octets");
        i64::from_be_bytes(*half)
    }
}

/// Reserves messages for persons, or returns the reason against it. Each may occur several times. All requests are for messages
/// of one app with the same caps: `caps`, one or more.
pub async fn reserve(
    pool: &PgPool,
    app: AppId,
    caps: &[CapSet],
    wishes: &[Wish],
    now: Timestamp,
) -> sqlx::Result<Vec<Option<CapRefusal>>> {
    retrying(|| async move {
        let mut tx = begin(pool).await?;
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
    caps: &[CapSet],
    wishes: Vec<Wish>,
    now: Timestamp,
) -> sqlx::Result<Vec<(Wish, CapRefusal)>> {
    let (mut open, mut refused) = (wishes, Vec::new());
    for (n, counted) in caps.iter().enumerate() {
        let Reserved { placed, full } = Rows { app, counted }.reserve(conn, open, now).await?;
        let rejected: Vec<Wish> = full.iter().map(|(it, _)| *it).collect();
        for before in &caps[..n] {
            Rows { app, counted: before }.give_back(conn, &rejected).await?;
        }
        refused.extend(full);
        open = placed;
        if open.is_empty() {
            break;
        }
    }
    Ok(refused)
}

/// The rows of an app that count the same tiers together.
struct Rows<'a> {
    app: AppId,
    counted: &'a CapSet,
}

/// Result of messages whose reservation was requested, except those reserved before: all current caps allowed them.
#[derive(Default)]
struct Reserved {
    placed: Vec<Wish>,
    /// Those for which there is none.
    full: Vec<(Wish, CapRefusal)>,
}

/// Next step for a message without a reservation at first.
enum CapStep {
    Go,
    /// It is held back, and was before or needs not be remembered.
    Refuse(CapRefusal),
    /// It is held back, which the person's other browsers have to learn.
    Remember(CapRefusal),
    /// Another transaction made or cleared the row in between, or there is none.
    Ask,
}

impl Rows<'_> {
    /// Reserves a place for each message with its person, if one is free and the message has none. The first statement is almost
    /// always enough, and is the whole cost of most deliveries. It does not lock rows that it does not change.
    async fn reserve(&self, conn: &mut PgConnection, wishes: Vec<Wish>, now: Timestamp) -> sqlx::Result<Reserved> {
        let (mut open, mut reserved) = (wishes, Reserved::default());
        for _ in 0..ROUNDS_MAX {
            let taken = self.take(conn, &open, now).await?;
            open = reserved.place(open, &taken);
            if open.is_empty() {
                return Ok(reserved);
            }
            let known = self.look(conn, &open, now).await?;
            let (mut new, mut told) = (Vec::new(), Vec::new());
            for it in open {
                match known.get(&it.person.id()).unwrap_or(&CapStep::Ask) {
                    CapStep::Go => {}
                    CapStep::Refuse(refusal) => reserved.full.push((it, *refusal)),
                    CapStep::Remember(refusal) => told.push((it, *refusal)),
                    CapStep::Ask => new.push(it),
                }
            }
            let remembered = self.remember(conn, &told).await?;
            let (full, again): (Vec<_>, Vec<_>) =
                told.into_iter().partition(|(it, _)| remembered.contains(&it.person.id()));
            reserved.full.extend(full);
            let made = self.make(conn, &new, now).await?;
            open = reserved.place(new, &made);
            // Rows that another transaction changed meanwhile are read again.
            open.extend(again.into_iter().map(|(it, _)| it));
            open.sort_unstable_by_key(Wish::key);
            if open.is_empty() {
                return Ok(reserved);
            }
        }
        Err(sqlx::Error::Protocol("rows of frequency caps change faster than they are read".to_owned()))
    }

    /// Adds messages to the rows of persons with room who do not have them. Returns these persons.
    async fn take(&self, conn: &mut PgConnection, wishes: &[Wish], now: Timestamp) -> sqlx::Result<HashSet<Uuid>> {
        let [a, b, c, d] = self.counted.limits(now).map(|(place, since)| (index(place), since.timestamp_micros()));
        let rows = fetch_all!(
            conn,
            scalar,
            "UPDATE cap_uses AS c SET uses = ARRAY[greatest($1, c.uses[1]), g.root] || c.uses[1:$2]
             FROM unnest($3::uuid[], $4::bigint[]) AS g (person, root)
             WHERE c.person = g.person AND c.tiers = $5
               AND g.root <> ALL (c.uses) AND (c.refused IS NULL OR g.root <> ALL (c.refused))
               AND (c.uses[$6::integer] > $10 OR c.uses[$7::integer] > $11 OR c.uses[$8::integer] > $12
                    OR c.uses[$9::integer] > $13) IS NOT TRUE
             RETURNING c.person",
            (now.timestamp_micros(), 2 * (self.counted.kept() - 1), &persons(wishes), &roots(wishes)),
            (self.counted.group.code(), a.0, b.0, c.0, d.0, a.1, b.1, c.1, d.1)
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Makes the rows of persons who have none, with their first message. Returns who these are.
    async fn make(&self, conn: &mut PgConnection, wishes: &[Wish], now: Timestamp) -> sqlx::Result<HashSet<Uuid>> {
        if wishes.is_empty() {
            return Ok(HashSet::new());
        }
        let rows = fetch_all!(
            conn,
            scalar,
            "INSERT INTO cap_uses (person, app, tiers, uses)
             SELECT g.person, $1, $2, ARRAY[$3, g.root] FROM unnest($4::uuid[], $5::bigint[]) AS g (person, root)
             ON CONFLICT DO NOTHING RETURNING person",
            (self.app.0, self.counted.group.code(), now.timestamp_micros(), &persons(wishes), &roots(wishes))
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Why messages found no place, by the persons who have a row. It locks none: a message keeps its place and stays refused, and
    /// who has had enough has no more room at the same time later.
    async fn look(
        &self,
        conn: &mut PgConnection,
        wishes: &[Wish],
        now: Timestamp,
    ) -> sqlx::Result<HashMap<Uuid, CapStep>> {
        let rows = fetch_all!(
            conn,
            r#"SELECT c.person, c.uses, g.root = ANY (c.uses) AS "is_known!",
                      c.refused IS NOT NULL AND g.root = ANY (c.refused) AS "is_refused!"
               FROM unnest($1::uuid[], $2::bigint[]) AS g (person, root)
               JOIN cap_uses c ON c.person = g.person AND c.tiers = $3"#,
            (&persons(wishes), &roots(wishes), self.counted.group.code())
        )?;
        let users: HashSet<Uuid> = wishes.iter().filter(|it| it.person.is_user()).map(|it| it.person.id()).collect();
        let next = rows.into_iter().map(|row| {
            let refusal = self.counted.refusal(&times(&row.uses), now);
            let next = match refusal {
                _ if row.is_known => CapStep::Go,
                _ if row.is_refused => CapStep::Refuse(refusal.unwrap_or(CapRefusal::AsElsewhere)),
                Some(refusal) if users.contains(&row.person) => CapStep::Remember(refusal),
                Some(refusal) => CapStep::Refuse(refusal),
                None => CapStep::Ask,
            };
            (row.person, next)
        });
        Ok(next.collect())
    }

    /// Remembers that these messages were held back, but for those that got a place by now. Returns whose are remembered.
    async fn remember(&self, conn: &mut PgConnection, held: &[(Wish, CapRefusal)]) -> sqlx::Result<HashSet<Uuid>> {
        if held.is_empty() {
            return Ok(HashSet::new());
        }
        let wishes: Vec<Wish> = held.iter().map(|(it, _)| *it).collect();
        let rows = fetch_all!(
            conn,
            scalar,
            "UPDATE cap_uses c SET refused = g.root || c.refused[1:$4]
             FROM unnest($1::uuid[], $2::bigint[]) AS g (person, root)
             WHERE c.person = g.person AND c.tiers = $3
               AND g.root <> ALL (c.uses) AND (c.refused IS NULL OR g.root <> ALL (c.refused))
             RETURNING c.person",
            (&persons(&wishes), &roots(&wishes), self.counted.group.code(), REFUSED_KEPT - 1)
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Removes reservations that this transaction made for these messages, because other caps refuse them.
    async fn give_back(&self, conn: &mut PgConnection, wishes: &[Wish]) -> sqlx::Result<()> {
        if wishes.is_empty() {
            return Ok(());
        }
        execute!(
            conn,
            "UPDATE cap_uses c SET uses = c.uses[3:]
             FROM unnest($1::uuid[], $2::bigint[]) AS g (person, root)
             WHERE c.person = g.person AND c.tiers = $3 AND c.uses[2] = g.root",
            (&persons(wishes), &roots(wishes), self.counted.group.code())
        )
    }
}

impl Reserved {
    /// Notes which of these messages got a place. Returns the others.
    fn place(&mut self, wishes: Vec<Wish>, persons: &HashSet<Uuid>) -> Vec<Wish> {
        let (placed, others) = wishes.into_iter().partition(|it| persons.contains(&it.person.id()));
        self.placed.extend::<Vec<Wish>>(placed);
        others
    }
}

fn persons(wishes: &[Wish]) -> Vec<Uuid> {
    wishes.iter().map(|it| it.person.id()).collect()
}

fn roots(wishes: &[Wish]) -> Vec<i64> {
    wishes.iter().map(Wish::root).collect()
}

/// Index in a row of the time at a place, from 1.
fn index(place: i32) -> i32 {
    place.saturating_mul(2).saturating_sub(1)
}

fn times(uses: &[i64]) -> Vec<Timestamp> {
    uses.iter().step_by(2).filter_map(|at| Timestamp::from_timestamp_micros(*at)).collect()
}

/// Reads the counts of a person: for each group of tiers, the start times of messages to them, the newest time first.
pub async fn of(executor: impl PgExecutor<'_>, person: Person) -> sqlx::Result<Vec<(TierGroup, Vec<Timestamp>)>> {
    let rows =
        fetch_all!(executor, "SELECT tiers, uses FROM cap_uses WHERE person = $1 ORDER BY tiers", (person.id()))?;
    let group = |code| TierGroup::ALL.into_iter().find(|group| group.code() == code);
    Ok(rows.into_iter().filter_map(|row| Some((group(row.tiers)?, times(&row.uses)))).collect())
}

pub async fn forget(executor: impl PgExecutor<'_>, person: Person) -> sqlx::Result<()> {
    execute!(executor, "DELETE FROM cap_uses WHERE person = $1", (person.id()))
}

#[derive(Debug, Clone, Copy)]
pub struct CapKey {
    person: Uuid,
    tiers: i16,
}

impl CapKey {
    /// Before the first row.
    pub const START: Self = Self { person: Uuid::nil(), tiers: i16::MIN };
}

/// Reads a chunk of the persons after one of them, and deletes those without messages that any cap may count. Returns the last
/// person read. `None`: no further person. An index by time would make each message more expensive.
pub async fn clear(pool: &PgPool, now: Timestamp, after: CapKey) -> sqlx::Result<Option<CapKey>> {
    let mut tx = begin_by_index(pool).await?;
    let last = fetch_optional!(
        &mut *tx,
        CapKey,
        "WITH looked AS (
           SELECT person, tiers, uses[1] AS last_at FROM cap_uses
           WHERE (person, tiers) > ($1, $2)
           ORDER BY person, tiers LIMIT $4 FOR UPDATE SKIP LOCKED),
         deleted AS (
           DELETE FROM cap_uses c USING looked l
           WHERE c.person = l.person AND c.tiers = l.tiers AND (l.last_at >= $3) IS NOT TRUE)
         SELECT person, tiers FROM looked ORDER BY person DESC, tiers DESC LIMIT 1",
        (after.person, after.tiers, (now - WINDOW_MAX).timestamp_micros(), CHUNK)
    )?;
    tx.commit().await?;
    Ok(last)
}
