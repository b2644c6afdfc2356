//! Senders' own keys for messages. No two active messages of an app have the same key.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sqlx::PgConnection;
use uuid::Uuid;

use super::addressed::Addressed;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::MessageId;

/// Timeout for a concurrent transaction that stores a message with one of the keys, normally some milliseconds. Messages of
/// other senders wait meanwhile. [`crate::is_lock_timeout`] recognises it.
const PATIENCE: &str = "SET LOCAL lock_timeout = '300ms'";
const NO_MORE_PATIENCE: &str = "SET LOCAL lock_timeout TO DEFAULT";

/// Claims the keys of messages to be stored in this transaction. Returns for each the other message that has its key. `None`:
/// it has no key, or the key is claimed.
pub(super) async fn claim(
    conn: &mut PgConnection, messages: &[&Addressed], now: Timestamp,
) -> Result<Vec<Option<MessageId>>, sqlx::Error> {
    let mut taken = vec![None; messages.len()];
    // In order, so that of those who want the same keys none waits for another that waits for it.
    let mut first = BTreeMap::<(Uuid, &str), usize>::new();
    for (place, Addressed { message, .. }) in messages.iter().enumerate() {
        let Some(key) = &message.key else { continue };
        match first.entry((message.app.0, key)) {
            Entry::Vacant(free) => drop(free.insert(place)),
            Entry::Occupied(other) => taken[place] = Some(messages[*other.get()].message.id),
        }
    }
    // The earlier holder of a key is locked with it; the state of its message is read when no other transaction can be
    // about to store one under it.
    sqlx::raw_sql(PATIENCE).execute(&mut *conn).await?;
    let held = hold(&mut *conn, messages, &first).await?;
    sqlx::raw_sql(NO_MORE_PATIENCE).execute(&mut *conn).await?;
    let rivals = held.into_iter().filter(|(place, holder)| messages[*place].message.id != *holder);
    let rivals: BTreeMap<usize, MessageId> = rivals.collect();
    if !rivals.is_empty() {
        let free = take_over(conn, messages, &first, &rivals, now).await?;
        for (place, holder) in rivals.into_iter().filter(|(place, _)| !free.contains(place)) {
            taken[place] = Some(holder);
        }
    }
    Ok(taken)
}

/// Claims free keys, and locks the others. Returns the current owner of each.
async fn hold(
    conn: &mut PgConnection, messages: &[&Addressed], wanted: &BTreeMap<(Uuid, &str), usize>,
) -> Result<Vec<(usize, MessageId)>, sqlx::Error> {
    let rows = fetch_all!(
        conn,
        "/* claim_message_keys */ INSERT INTO message_keys AS k (app, key, message)
         SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[])
         ON CONFLICT (app, key) DO UPDATE SET message = k.message
         RETURNING app, key, message",
        (&wanted.keys().map(|(app, _)| *app).collect::<Vec<_>>()),
        (&wanted.keys().map(|(_, key)| *key).collect::<Vec<_>>() as &[&str]),
        (&wanted.values().map(|place| messages[*place].message.id).collect::<Vec<_>>() as &[MessageId])
    )?;
    let whose = rows.iter().map(|row| (wanted[&(row.app, row.key.as_str())], MessageId(row.message)));
    Ok(whose.collect())
}

/// Takes over the keys of messages that have ended, or were never stored. Returns the indexes of the messages that have them
/// now.
async fn take_over(
    conn: &mut PgConnection, messages: &[&Addressed], wanted: &BTreeMap<(Uuid, &str), usize>,
    rivals: &BTreeMap<usize, MessageId>, now: Timestamp,
) -> Result<Vec<usize>, sqlx::Error> {
    let contested: Vec<_> = wanted.iter().filter(|(_, place)| rivals.contains_key(place)).collect();
    let rows = fetch_all!(
        conn,
        "UPDATE message_keys k SET message = t.message
         FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS t (app, key, message)
         WHERE k.app = t.app AND k.key = t.key
           -- Not EXISTS, which may be planned as a look at the whole table.
           AND (SELECT true FROM cursors WHERE message = k.message LIMIT 1) IS NULL
           AND (SELECT true FROM batches WHERE message = k.message LIMIT 1) IS NULL
           AND (SELECT true FROM queue WHERE message = k.message LIMIT 1) IS NULL
           -- A scheduled message with an open audience may have no rows yet.
           AND (SELECT true FROM campaigns_in_motion c JOIN messages m ON m.id = c.message
                WHERE c.message = k.message AND m.accepted_at > $4 AND m.state <> 'cancelled') IS NULL
         RETURNING k.app, k.key",
        contested,
        |((app, _), _)| (*app),
        |((_, key), _)| (*key),
        |(_, place)| (messages[**place].message.id),
        (now)
    )?;
    Ok(rows.iter().map(|row| wanted[&(row.app, row.key.as_str())]).collect())
}
