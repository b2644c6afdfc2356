//! Imports of subscriptions: progress and faults of a file. Registered subscriptions are counted in the same transaction, so
//! that an interrupted import can be resumed.
//!
//! Consecutive transactions would use only one process of Postgres. So the subscriptions of a file are divided into two halves
//! by the shard of their endpoints, which are imported concurrently. Each half is in the order of the file, and an endpoint is
//! always in the same half: its later line wins. The progress of each half is stored separately. Lines without a subscription
//! belong to the first half.

use serde::Serialize;
use sqlx::{Connection as _, PgConnection, PgPool};
use utoipa::ToSchema;

use crate::audience::registration::bulk::{Enrolled, register_all};
use crate::audience::registration::{Registration, shard_of};
use crate::keyset::{Keyset, paged};
use crate::operations::retrying::retrying;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, ImportId};
use bellwire_vault::Vault;

/// Maximum stored imports of an app. The oldest are deleted.
const KEPT: i64 = 100;
pub const FAULTS_MAX: i64 = 1_000;
/// Concurrent parts of a file. With four concurrent imports, two thirds of the database connections stay free.
const HALVES: usize = 2;

/// Number of finished lines of each half.
pub type ImportPosition = [i64; HALVES];

#[derive(Debug, Clone)]
pub struct ImportRow {
    pub id: ImportId,
    /// Format of the file: `ndjson`, `csv` or `json`.
    pub format: String,
    /// Whether nothing of the import is stored.
    pub dry_run: bool,
    /// Finished lines of the file, or elements of its array.
    pub lines: i64,
    /// Finished lines of each half.
    pub halves: Vec<i64>,
    pub added: i64,
    /// Existing subscriptions, updated or unchanged.
    pub known: i64,
    /// Skipped lines: subscriptions that ended here or in the file, or no subscription.
    pub left_out: i64,
    /// Whether pruned subscriptions in the file become active again.
    pub restore_pruned: bool,
    /// Part of `known`: subscriptions that became active again.
    pub restored: i64,
    /// Part of `left_out`: subscriptions that their push service reported as gone.
    pub pruned: i64,
    pub refused: i64,
    /// Lines imported without an optional value.
    pub warned: i64,
    pub ignored: Vec<String>,
    pub created_at: Timestamp,
    /// Time of its last progress.
    pub changed_at: Timestamp,
    /// Time at which the end of the file was read. `None`: running or interrupted.
    pub finished_at: Option<Timestamp>,
}

impl ImportRow {
    /// Returns the progress of each half.
    pub fn reached(&self) -> ImportPosition {
        std::array::from_fn(|half| self.halves[half])
    }
}

/// Fault of a line, without the value, which may be secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ImportFault)]
pub struct LineFault {
    /// Number of the line, or of the array element, from 1.
    pub line: i64,
    /// Faulty field. Empty: the whole line.
    pub field: String,
    /// The fault and the violated rule.
    pub reason: String,
}

#[derive(Debug)]
pub struct Numbered<'a> {
    pub line: i64,
    pub request: Registration<'a>,
}

#[derive(Debug, Default)]
pub struct ImportBatch<'a> {
    /// Number of finished lines after this part.
    pub lines: i64,
    pub subscriptions: Vec<Numbered<'a>>,
    pub left_out: Vec<i64>,
    pub refused: Vec<i64>,
    pub faults: Vec<LineFault>,
    /// Optional values omitted from lines to register.
    pub warnings: Vec<LineFault>,
    /// Unknown columns of the file so far.
    pub ignored: Vec<String>,
    pub restores_pruned: bool,
}

pub async fn create(
    conn: &mut PgConnection, app: AppId, id: ImportId, format: &str, (dry_run, restore_pruned): (bool, bool),
    now: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        &mut *conn,
        "INSERT INTO imports (id, app, format, dry_run, restore_pruned, halves, created_at, changed_at)
         VALUES ($1, $2, $3, $4, $6, '{0, 0}', $5, $5)",
        (id.0, app.0, format, dry_run, now, restore_pruned)
    )?;
    execute!(
        conn,
        "DELETE FROM imports WHERE app = $1 AND id < (
           SELECT id FROM imports WHERE app = $1 ORDER BY id DESC OFFSET $2::bigint - 1 LIMIT 1)",
        (app.0, KEPT)
    )?;
    Ok(())
}

pub async fn find(pool: &PgPool, app: AppId, id: ImportId) -> sqlx::Result<Option<ImportRow>> {
    let newest = list(pool, app, Keyset::from(id)).await?.pop();
    Ok(newest.filter(|row| row.id == id))
}

/// Returns the app's imports beyond the page's key, the nearest ids first.
pub async fn list(pool: &PgPool, app: AppId, page: Keyset) -> sqlx::Result<Vec<ImportRow>> {
    paged!(pool, page, ImportRow,
        [r#"SELECT id AS "id: ImportId", format, dry_run, lines, halves, added, known, left_out, restore_pruned, restored, pruned, refused, warned,
             ignored,
             created_at, changed_at,
             finished_at
           FROM imports WHERE app = $1 AND id"# < "$2 ORDER BY id" DESC "LIMIT $3"],
        (app.0, page.beyond, page.limit)
    )
}

/// Returns the first faults or warnings, in the order of the file.
pub async fn faults(pool: &PgPool, id: ImportId, is_warning: bool) -> sqlx::Result<Vec<LineFault>> {
    fetch_all!(
        pool,
        LineFault,
        "SELECT line, field, reason FROM import_faults WHERE import = $1 AND is_warning = $2 ORDER BY line, abs(n) LIMIT $3",
        (id.0, is_warning, FAULTS_MAX)
    )
}

/// Unfinished lines of a half.
struct Half<'a> {
    at: usize,
    after: i64,
    lines: i64,
    numbers: Vec<i64>,
    requests: Vec<Registration<'a>>,
    left_out: i64,
    refused: i64,
    faults: Vec<LineFault>,
    warnings: Vec<LineFault>,
    ignored: &'a [String],
    restores_pruned: bool,
}

impl<'a> Half<'a> {
    fn of(app: AppId, batch: &'a ImportBatch<'_>, at: usize, after: i64) -> Self {
        let is_here = |one: &&Numbered<'_>| half_of(app, &one.request) == at && one.line > after;
        let mine: Vec<_> = batch.subscriptions.iter().filter(is_here).collect();
        let count = |lines: &[i64]| lines.iter().filter(|line| at == 0 && **line > after).count() as i64;
        let noted =
            |faults: &[LineFault]| faults.iter().filter(|fault| at == 0 && fault.line > after).cloned().collect();
        Self {
            at,
            after,
            lines: batch.lines,
            numbers: mine.iter().map(|numbered| numbered.line).collect(),
            requests: mine.iter().map(|numbered| numbered.request.clone()).collect(),
            left_out: count(&batch.left_out),
            refused: count(&batch.refused),
            faults: noted(&batch.faults),
            warnings: noted(&batch.warnings),
            ignored: &batch.ignored,
            restores_pruned: batch.restores_pruned,
        }
    }
}

/// Returns the half that a subscription belongs to.
fn half_of(app: AppId, request: &Registration<'_>) -> usize {
    usize::from(shard_of(app, request.endpoint.expose())) % HALVES
}

/// Imports the next part of a file, of which some lines may be finished. `reached` is the progress of the halves, and is
/// updated. Returns `false` if the import is complete, or another call continued it.
///
/// # Errors One half may have been imported, and is counted.
pub async fn take(
    pool: &PgPool, vault: &Vault, (app, id, dry_run): (AppId, ImportId, bool), batch: &ImportBatch<'_>,
    reached: &mut ImportPosition, now: Timestamp,
) -> sqlx::Result<bool> {
    let [first, second] = [0, 1].map(|at| Half::of(app, batch, at, reached[at]));
    // Not given up when the other one fails: what it has done so far would have to be done again.
    let (first, second) = tokio::join!(
        take_half(pool, vault, (app, id, dry_run), &first, now),
        take_half(pool, vault, (app, id, dry_run), &second, now)
    );
    let taken = first? & second?;
    *reached = reached.map(|after| after.max(batch.lines));
    Ok(taken)
}

async fn take_half(
    pool: &PgPool, vault: &Vault, (app, id, dry_run): (AppId, ImportId, bool), half: &Half<'_>, now: Timestamp,
) -> sqlx::Result<bool> {
    if half.after >= half.lines {
        return Ok(true);
    }
    retrying(|| async move {
        let mut tx = begin(pool).await?;
        let enrolled = if dry_run {
            let mut undone = tx.begin().await?;
            let enrolled = register_all(&mut undone, vault, app, &half.requests, half.restores_pruned, now).await?;
            undone.rollback().await?;
            enrolled
        } else {
            register_all(&mut tx, vault, app, &half.requests, half.restores_pruned, now).await?
        };
        // Last, since the other half waits for this row until we are through.
        let is_next = advance(&mut tx, id, half, &enrolled, now).await?;
        if is_next {
            tx.commit().await?;
        }
        Ok(is_next)
    })
    .await
}

/// Adds the results of one half of a part, and stores its faults up to the limit. Returns `false` if another call has advanced
/// the import.
async fn advance(
    conn: &mut PgConnection, id: ImportId, half: &Half<'_>, enrolled: &[Enrolled], now: Timestamp,
) -> sqlx::Result<bool> {
    let count = |which: Enrolled| enrolled.iter().filter(|became| **became == which).count() as i64;
    let (restored, pruned) = (count(Enrolled::Restored), count(Enrolled::Pruned));
    let (added, known) = (count(Enrolled::New), count(Enrolled::Known) + restored);
    let ended = count(Enrolled::Ended) + pruned;
    let counted = rows_affected!(
        &mut *conn,
        "UPDATE imports SET halves = CASE $2 WHEN 0 THEN ARRAY[$4, halves[2]] ELSE ARRAY[halves[1], $4] END,
           lines = least($4, halves[2 - $2]), added = added + $5, known = known + $6, left_out = left_out + $7,
           refused = refused + $8, ignored = $9, changed_at = $10, warned = warned + $11, restored = restored + $12, pruned = pruned + $13
         WHERE id = $1 AND finished_at IS NULL AND halves[$2 + 1] = $3",
        (id.0, half.at as i32, half.after, half.lines, added, known, ended + half.left_out),
        (enrolled.len() as i64 - added - known - ended + half.refused, half.ignored, now),
        (half.warnings.chunk_by(|a, b| a.line == b.line).count() as i64, restored, pruned)
    )?;
    if counted == 0 {
        return Ok(false);
    }
    let mut faults = half.faults.clone();
    for (line, became) in half.numbers.iter().zip(enrolled) {
        let (field, reason) = match became {
            Enrolled::New | Enrolled::Known | Enrolled::Restored | Enrolled::Ended | Enrolled::Pruned => continue,
            Enrolled::EndpointTaken => {
                ("endpoint_taken", "its endpoint is registered with other keys, which a receipt has confirmed")
            }
            Enrolled::OtherKey => ("vapid_key", "its endpoint is registered under another VAPID key"),
            Enrolled::TooManyTopics => ("topics", "the app would have too many topics"),
            Enrolled::TooLarge => ("attributes", "would be too many octets of JSON together"),
        };
        faults.push(LineFault { line: *line, field: field.to_owned(), reason: reason.to_owned() });
    }
    keep_faults(conn, id, faults, false).await?;
    keep_faults(conn, id, half.warnings.clone(), true).await?;
    Ok(true)
}

async fn keep_faults(
    conn: &mut PgConnection, id: ImportId, mut faults: Vec<LineFault>, is_warning: bool,
) -> sqlx::Result<()> {
    if faults.is_empty() {
        return Ok(());
    }
    let there = fetch_one!(
        &mut *conn,
        scalar,
        r#"SELECT count(*) AS "n!" FROM import_faults WHERE import = $1 AND is_warning = $2"#,
        (id.0, is_warning)
    )?;
    let room = usize::try_from(FAULTS_MAX - there).unwrap_or(0);
    faults.sort_by_key(|fault| fault.line);
    faults.truncate(room);
    execute!(
        conn,
        "INSERT INTO import_faults (import, line, n, field, reason, is_warning)
         SELECT $1, line, (row_number() OVER (PARTITION BY line ORDER BY i)) * CASE WHEN $5 THEN -1 ELSE 1 END, field, reason, $5
         FROM unnest($2::bigint[], $3::text[], $4::text[]) WITH ORDINALITY AS t (line, field, reason, i)",
        (id.0),
        faults,
        |fault| (fault.line, fault.field.clone(), fault.reason.clone()),
        (is_warning)
    )?;
    Ok(())
}

/// Completes an import at the end of its file. `missing` is a fault about the end. Returns `false` if another call has advanced
/// the import.
pub async fn finish(
    conn: &mut PgConnection, id: ImportId, lines: i64, missing: Option<LineFault>, now: Timestamp,
) -> sqlx::Result<bool> {
    let done = rows_affected!(
        &mut *conn,
        "UPDATE imports SET finished_at = $3, changed_at = $3, refused = refused + $4
         WHERE id = $1 AND lines = $2 AND finished_at IS NULL",
        (id.0, lines, now, i64::from(missing.is_some()))
    )?;
    if done == 0 {
        return Ok(false);
    }
    keep_faults(conn, id, missing.into_iter().collect(), false).await?;
    Ok(true)
}
