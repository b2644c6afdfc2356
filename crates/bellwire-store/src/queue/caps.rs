//! Counts for frequency caps: stored for each person, and increased before the first POST.
//!
//! A message that a worker is about to send is counted once for its person: it gets a reservation. Another browser of the
//! person, a retry, another worker after a crash, or a replay finds the reservation and may send. A refused message is refused
//! for all browsers of a user. A reservation stays even if no push service accepts the message: removing it would require a
//! check of the person's other browsers at each failure.

use std::collections::{HashMap, HashSet};

use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use crate::operations::retrying::retrying;
use crate::transactions::{begin, begin_by_index};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, MessageId};
use bellwire_core::person::Person;
use bellwire_rules::policy::caps::{CapRefusal, CapSet, Caps, TierGroup, WINDOW_MAX};

/// Maximum capped messages stored for a user, so that none of the user's browsers gets them.
const REFUSED_KEPT: i32 = 8;
/// Maximum repetitions of a transaction after concurrent changes. More than one is rare.
const ROUNDS_MAX: usize = 8;
/// Rows read by retention in one transaction.
const CHUNK: i64 = 10_000;

pub async fn read(pool: &PgPool, app: AppId) -> sqlx::Result<Caps> {
    let stored = fetch_one!(pool, scalar, "SELECT caps FROM apps WHERE id = $1", (app.0))?;
    Ok(Caps::restore(stored))
}

/// Replaces the caps. Existing counts stay.
pub async fn write(executor: impl PgExecutor<'_>, app: AppId, caps: &Caps) -> sqlx::Result<()> {
    let written = caps.written();
    let stored = (!written.is_empty()).then(|| serde_json::json!(written));
    execute!(executor, "UPDATE apps SET caps = $2 WHERE id = $1", (app.0, stored))
}

/// Request to send a message to a person, in any of their browsers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wish {
    pub person: Person,
    /// The message, or the one that it replays.
    pub root: MessageId,
}

impl Wish {
    /// Returns the key by which rows are locked, and messages of one person are reserved in order.
    fn key(&self) -> (Uuid, MessageId) {
        (self.person.id(), self.root)
    }

    /// Returns the message's number in a person's row: the second half of its id, with 62 random bits, so that two of 50 in a
    /// row are hardly ever equal. It is negative, unlike a time.
    fn root(&self) -> i64 {
        let half = self.root.0.as_bytes().last_chunk().expect("an id has 16 octets");
        i64::from_be_bytes(*half)
    }
}

/// Reserves messages for persons, or returns the reasons for refusals. A person may occur several times. All messages belong to
/// one app with `caps`, at least one.
pub async fn reserve(
    pool: &PgPool, app: AppId, caps: &[CapSet], wishes: &[Wish], now: Timestamp,
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

/// Reserves one message each for several persons, in the order of their keys. Returns the refused ones.
async fn reserve_one_each(
    conn: &mut PgConnection, app: AppId, caps: &[CapSet], wishes: Vec<Wish>, now: Timestamp,
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

/// Rows of an app that count one group of tiers.
struct Rows<'a> {
    app: AppId,
    counted: &'a CapSet,
}

/// Messages that this transaction reserved. Those reserved before are not included, because all current caps allowed them.
#[derive(Default)]
struct Reserved {
    placed: Vec<Wish>,
    /// Messages refused by a cap.
    full: Vec<(Wish, CapRefusal)>,
}

/// Next step for a message that was not reserved at first.
enum CapStep {
    Go,
    /// Refuse it. The refusal is stored already, or need not be.
    Refuse(CapRefusal),
    /// Refuse it, and store the refusal for the person's other browsers.
    Remember(CapRefusal),
    /// Repeat: another transaction created or deleted the row meanwhile, or it does not exist.
    Ask,
}

impl Rows<'_> {
    /// Reserves each message for its person if the cap has room and the message has no reservation. The first statement is
    /// almost always enough, and is the whole cost of most deliveries. It locks only rows that it changes.
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

    /// Adds messages to the rows of persons with room that do not have them. Returns these persons.
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

    /// Creates rows of persons without one, with their first message. Returns these persons.
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

    /// Returns the reasons why messages were not reserved, for persons with a row. It needs no locks: reservations and refusals
    /// are permanent, and a full cap has no room again at the same time.
    async fn look(
        &self, conn: &mut PgConnection, wishes: &[Wish], now: Timestamp,
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

    /// Stores that these messages were refused, except those reserved meanwhile. Returns the persons with a stored refusal.
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

    /// Removes reservations of this transaction for these messages, because other caps refuse them.
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
    /// Records which messages were reserved. Returns the others.
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

/// Returns the index of the time in a row's array, from 1.
fn index(place: i32) -> i32 {
    place.saturating_mul(2).saturating_sub(1)
}

fn times(uses: &[i64]) -> Vec<Timestamp> {
    uses.iter().step_by(2).filter_map(|at| Timestamp::from_timestamp_micros(*at)).collect()
}

/// Reads the counts of a person: for each group of tiers, the times at which sending started, the newest first.
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
    /// Position before the first row.
    pub const START: Self = Self { person: Uuid::nil(), tiers: i16::MIN };
}

/// Reads a chunk of persons after a key, and deletes those without messages that any cap counts. Returns the last person read.
/// `None`: no further person. An index by time would make each message more expensive.
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
