//! Engagement of people with displayed messages. Receipts write notes, maintenance adds the notes to each person's row, and
//! erasure deletes the rows.
//!
//! A row is read, changed by [`Habits::add`] and written back. Writers hold [`lock`], so that nothing is added to a person who
//! was just erased.

use std::collections::HashMap;

use chrono::Timelike as _;
use chrono_tz::Tz;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::audience::subscriptions::row::SubscriptionKeys;
use crate::connections::engine::{self, shards_of};
use crate::transactions::begin_by_index;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{ReceiptKind, Tier};
use bellwire_core::engagement_stats::{FormerHour, Habits, Hours, Reaction};
use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_rules::policy::calendar;

/// Notes processed in one transaction, and rows read by retention at a time.
const CHUNK: i64 = 10_000;

/// Takes the lock of all writers until the end of the transaction.
async fn lock(conn: &mut PgConnection) -> sqlx::Result<()> {
    fetch_one!(conn, scalar, "SELECT pg_advisory_xact_lock(hashtextextended('bellwire.habits', 0))").map(drop)
}

/// Adds a chunk of notes to the engagement of their persons. Each note counts once, even after an interruption. Returns whether
/// the chunk was full, so that more may wait. A concurrent call returns at once.
pub async fn fold(pool: &PgPool, now: Timestamp) -> sqlx::Result<bool> {
    let mut tx = begin_by_index(pool).await?;
    let alone = fetch_one!(
        &mut *tx,
        scalar,
        r#"SELECT pg_try_advisory_xact_lock(hashtextextended('bellwire.habits', 0)) AS "alone!""#
    )?;
    if !alone {
        return Ok(false);
    }
    let (taken, reactions) = take_notes(&mut tx).await?;
    let persons: Vec<(AppId, Person)> = reactions.keys().copied().collect();
    let mut known = read(&mut tx, &persons).await?;
    let rows = reactions.into_iter().map(|(whose, mut reactions)| {
        reactions.sort_by_key(|reaction| reaction.at);
        let (mut habits, noted_at) = known.remove(&whose).unwrap_or_default();
        habits.add_all(&reactions, now);
        let last_at = reactions.last().map(|reaction| reaction.at);
        EngagementRow { whose, habits, noted_at: noted_at.max(last_at).unwrap_or_default() }
    });
    write(&mut tx, &rows.collect::<Vec<_>>()).await?;
    tx.commit().await?;
    Ok(taken == CHUNK)
}

type Reactions = HashMap<(AppId, Person), Vec<Reaction>>;

/// Deletes a chunk of `habit_notes` and returns the number of rows, with the reactions by person. Rows of transactional messages
/// and of ended subscriptions are deleted without counting as reactions.
async fn take_notes(conn: &mut PgConnection) -> sqlx::Result<(i64, Reactions)> {
    let notes = fetch_all!(
        &mut *conn,
        r#"WITH taken AS (
             DELETE FROM habit_notes WHERE ctid = ANY (ARRAY(SELECT ctid FROM habit_notes LIMIT $1))
             RETURNING subscription, message, kind, at)
           SELECT t.subscription AS "subscription!: SubscriptionId", t.message AS "message!: MessageId", t.kind AS "kind!",
             t.at AS "at!", m.id IS NOT NULL AS "tells!"
           FROM taken t LEFT JOIN messages m ON m.id = t.message AND m.tier <> $2"#,
        (CHUNK, Tier::Transactional.code())
    )?;
    let taken = i64::try_from(notes.len()).unwrap_or(i64::MAX);
    let mut telling: Vec<SubscriptionId> =
        notes.iter().filter(|note| note.tells).map(|note| note.subscription).collect();
    telling.sort_unstable();
    telling.dedup();
    let reporters = reporters(conn, telling).await?;
    let mut reactions = Reactions::new();
    for note in notes.iter().filter(|note| note.tells) {
        let Some(reporter) = reporters.get(&note.subscription) else { continue };
        reactions.entry((reporter.app, reporter.person)).or_default().push(Reaction {
            message: note.message,
            is_click: note.kind == ReceiptKind::Clicked.code(),
            at: note.at,
            hour: u8::try_from(note.at.with_timezone(&reporter.zone).hour()).unwrap_or(0),
        });
    }
    Ok((taken, reactions))
}

/// Person and time zone of a subscription.
struct Reporter {
    app: AppId,
    person: Person,
    zone: Tz,
}

/// Engagement of a person as stored.
struct StoredEngagement {
    id: SubscriptionId,
    app: AppId,
    origin_id: SubscriptionId,
    user_id: Option<String>,
    timezone: Option<String>,
}

/// Returns the active ones of these subscriptions, with person and time zone.
async fn reporters(
    conn: &mut PgConnection, ids: Vec<SubscriptionId>,
) -> sqlx::Result<HashMap<SubscriptionId, Reporter>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let keys = SubscriptionKeys::of(ids);
    macro_rules! reporters {
        ($within:literal $(, $shards:expr)?) => {
            query!(
                StoredEngagement,
                r#"SELECT s.id AS "id: SubscriptionId", s.app AS "app: AppId", s.origin_id AS "origin_id: SubscriptionId", s.user_id, s.timezone
           FROM unnest($1::smallint[], $2::uuid[]) AS k (shard, id) JOIN subscriptions s ON s.shard = k.shard AND s.id = k.id
           WHERE s.state = 'active'"# + $within,
                (&keys.shards, &keys.ids as &[SubscriptionId] $(, $shards)?)
            )
        };
    }
    let found = match engine::is_distributed() {
        false => reporters!("").fetch_all(&mut *conn).await?,
        true => reporters!(" AND s.shard = ANY ($3)", &shards_of(&keys.ids)).fetch_all(&mut *conn).await?,
    };
    let mut apps: Vec<AppId> = found.iter().map(|row| row.app).collect();
    apps.sort_unstable();
    apps.dedup();
    let homes = query!(r#"SELECT id AS "id: AppId", timezone FROM apps WHERE id = ANY ($1)"#, (&apps as &[AppId]));
    let homes: HashMap<AppId, String> =
        homes.fetch_all(conn).await?.into_iter().map(|app| (app.id, app.timezone)).collect();
    let mut reporters = HashMap::with_capacity(found.len());
    for row in found {
        let names = [row.timezone.as_ref(), homes.get(&row.app)];
        let zone = names.into_iter().flatten().find_map(|name| calendar::zone(name)).unwrap_or(Tz::UTC);
        let person = Person::of(row.app, row.user_id.as_deref(), row.origin_id);
        reporters.insert(row.id, Reporter { app: row.app, person, zone });
    }
    Ok(reporters)
}

/// Reads the engagement of these persons, with the time of their last receipt. Persons without data are omitted.
async fn read(
    conn: &mut PgConnection, persons: &[(AppId, Person)],
) -> sqlx::Result<HashMap<(AppId, Person), (Habits, Option<Timestamp>)>> {
    let by_key: HashMap<(Uuid, Uuid), (AppId, Person)> =
        persons.iter().map(|(app, person)| ((app.0, person.id()), (*app, *person))).collect();
    let rows = fetch_all!(
        conn,
        r#"SELECT h.app, h.person, h.noted_at, h.clicked_at, h.unclicked, h.unclicked_from, h.unclicked_to, h.recent, h.hours,
             h.former_hours
           FROM unnest($1::uuid[], $2::smallint[], $3::uuid[]) AS g (app, shard, person) CROSS JOIN LATERAL (
             SELECT * FROM habits WHERE app = g.app AND shard = g.shard AND person = g.person LIMIT 1) h"#,
        persons,
        |(app, person)| (*app, person.shard(), person.id())
    )?;
    let known = rows.into_iter().filter_map(|row| {
        let whose = by_key.get(&(row.app, row.person))?;
        let habits = Habits {
            clicked_at: row.clicked_at,
            unclicked: row.unclicked,
            unclicked_between: row.unclicked_from.zip(row.unclicked_to),
            recent: row.recent.chunks_exact(16).filter_map(|id| Uuid::from_slice(id).ok().map(MessageId)).collect(),
            hours: Hours(row.hours.try_into().unwrap_or_default()),
            former_hours: row.former_hours.chunks_exact(9).filter_map(former_hour).collect(),
        };
        Some((*whose, (habits, Some(row.noted_at))))
    });
    Ok(known.collect())
}

/// Reads the engagement of a person, with the time of the last receipt. `None`: no data.
pub async fn of_person(pool: &PgPool, app: AppId, person: Person) -> sqlx::Result<Option<(Habits, Timestamp)>> {
    let mut known = read(&mut *pool.acquire().await?, &[(app, person)]).await?;
    Ok(known.remove(&(app, person)).and_then(|(habits, noted_at)| Some((habits, noted_at?))))
}

/// Decodes nine bytes: microseconds since 1970, and the hour of the day.
fn former_hour(octets: &[u8]) -> Option<FormerHour> {
    let (until, hour) =
        octets.split_last_chunk::<1>().and_then(|(until, [hour])| Some((until.try_into().ok()?, *hour)))?;
    Some(FormerHour {
        until: Timestamp::from_timestamp_micros(i64::from_be_bytes(until))?,
        hour: Some(hour).filter(|hour| *hour != HOUR_UNKNOWN),
    })
}

/// Value for an unknown best hour, because there are too few clicks.
const HOUR_UNKNOWN: u8 = u8::MAX;

struct EngagementRow {
    whose: (AppId, Person),
    habits: Habits,
    noted_at: Timestamp,
}

async fn write(conn: &mut PgConnection, rows: &[EngagementRow]) -> sqlx::Result<()> {
    let former = |row: &EngagementRow| {
        let octets = row.habits.former_hours.iter().flat_map(|former| {
            former.until.timestamp_micros().to_be_bytes().into_iter().chain([former.hour.unwrap_or(HOUR_UNKNOWN)])
        });
        octets.collect::<Vec<u8>>()
    };
    let recent = |row: &EngagementRow| row.habits.recent.iter().flat_map(|id| *id.0.as_bytes()).collect::<Vec<u8>>();
    execute!(
        conn,
        "INSERT INTO habits (app, shard, person, noted_at, clicked_at, unclicked, unclicked_from, unclicked_to, recent, hours,
                             former_hours)
         SELECT * FROM unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::smallint[],
                              $7::timestamptz[], $8::timestamptz[], $9::bytea[], $10::bytea[], $11::bytea[])
         ON CONFLICT (app, shard, person) DO UPDATE
         SET noted_at = excluded.noted_at, clicked_at = excluded.clicked_at, unclicked = excluded.unclicked,
             unclicked_from = excluded.unclicked_from, unclicked_to = excluded.unclicked_to, recent = excluded.recent,
             hours = excluded.hours, former_hours = excluded.former_hours",
        rows,
        |row| (row.whose.0, row.whose.1.shard(), row.whose.1.id(), row.noted_at, row.habits.clicked_at),
        |row| (row.habits.unclicked, row.habits.unclicked_between.map(|it| it.0)),
        |row| (row.habits.unclicked_between.map(|it| it.1), recent(row), row.habits.hours.0.to_vec(), former(row))
    )
}

/// Reads the engagement of these subscriptions' persons, by subscription. Persons without data are omitted.
pub(crate) async fn of(
    conn: &mut PgConnection, app: AppId, users: &[(SubscriptionId, Person)],
) -> sqlx::Result<HashMap<SubscriptionId, Habits>> {
    let mut persons: Vec<(AppId, Person)> = users.iter().map(|(_, person)| (app, *person)).collect();
    persons.sort_unstable_by_key(|(_, person)| person.id());
    persons.dedup();
    let known = read(conn, &persons).await?;
    let of_each = users.iter().filter_map(|(id, person)| Some((*id, known.get(&(app, *person))?.0.clone())));
    Ok(of_each.collect())
}

pub async fn forget(conn: &mut PgConnection, app: AppId, person: Person) -> sqlx::Result<()> {
    lock(&mut *conn).await?;
    execute!(
        conn,
        "DELETE FROM habits WHERE app = $1 AND shard = $2 AND person = $3",
        (app.0, person.shard(), person.id())
    )
}

/// Deletes the engagement of a chunk of persons of a deleted app. Returns the number of rows.
pub async fn forget_app(pool: &PgPool, app: AppId) -> sqlx::Result<u64> {
    let mut tx = begin_by_index(pool).await?;
    lock(&mut tx).await?;
    let deleted = rows_affected!(
        &mut *tx,
        "DELETE FROM habits WHERE ctid = ANY (ARRAY(SELECT ctid FROM habits WHERE app = $1 LIMIT $2))",
        (app.0, CHUNK)
    )?;
    tx.commit().await?;
    Ok(deleted)
}

#[derive(Debug, Clone, Copy)]
pub struct EngagementCursor {
    app: Uuid,
    shard: i16,
    person: Uuid,
}

impl EngagementCursor {
    /// Position before the first row.
    pub const START: Self = Self { app: Uuid::nil(), shard: i16::MIN, person: Uuid::nil() };
}

/// Reads a chunk of persons, and deletes those without a receipt since `cutoff`. Returns the last person read. `None`: no
/// further person.
pub async fn clear(
    pool: &PgPool, cutoff: Timestamp, after: EngagementCursor,
) -> sqlx::Result<Option<EngagementCursor>> {
    let mut tx = begin_by_index(pool).await?;
    let last = fetch_optional!(
        &mut *tx,
        EngagementCursor,
        "WITH looked AS (
           SELECT app, shard, person, noted_at FROM habits WHERE (app, shard, person) > ($1, $2, $3)
           ORDER BY app, shard, person LIMIT $5 FOR UPDATE SKIP LOCKED),
         deleted AS (
           DELETE FROM habits h USING looked l
           WHERE h.app = l.app AND h.shard = l.shard AND h.person = l.person AND l.noted_at < $4)
         SELECT app, shard, person FROM looked ORDER BY app DESC, shard DESC, person DESC LIMIT 1",
        (after.app, after.shard, after.person, cutoff, CHUNK)
    )?;
    tx.commit().await?;
    Ok(last)
}
