//! Subscriptions that come in bulk: how far a file has come, and what was wrong with it. A batch is registered in the transaction
//! that says so, so that whoever broke off knows where to go on.

use sqlx::{Connection as _, PgConnection, PgPool};

use crate::model::clock::Timestamp;
use crate::model::id::{AppId, ImportId};
use crate::store::audience::registration::Registration;
use crate::store::audience::registration::bulk::{Enrolled, register_all};
use crate::store::keyset::{Keyset, paged};
use crate::store::operations::retrying::retrying;
use crate::vault::Vault;

/// Imports of an app that are kept; the oldest make room.
const KEPT: i64 = 100;
/// Faults of an import that are kept.
pub(crate) const FAULTS_MAX: i64 = 1_000;

/// How far an import has come.
#[derive(Debug, Clone)]
pub(crate) struct ImportRow {
    /// Its id.
    pub id: ImportId,
    /// `ndjson`, `csv` or `json`.
    pub format: String,
    /// Whether nothing of it stays.
    pub dry_run: bool,
    /// Lines of the file, or elements of its array, that are dealt with.
    pub lines: i64,
    /// Subscriptions that are new.
    pub added: i64,
    /// Refreshed, or as they were.
    pub known: i64,
    /// Ended here or in the file, or no subscription at all.
    pub left_out: i64,
    /// Wrong.
    pub refused: i64,
    /// Columns of the file that say nothing to us.
    pub ignored: Vec<String>,
    /// When it began.
    pub created_at: Timestamp,
    /// When it last went on.
    pub changed_at: Timestamp,
    /// When the end of the file was seen.
    pub finished_at: Option<Timestamp>,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The line, from 1.
    pub line: i64,
    /// Which field; empty: the line as a whole. At most 200 characters.
    pub field: String,
    /// What is wrong with it, without its value. At most 500 characters.
    pub reason: String,
}

/// A subscription of a file, and on which line it stands.
#[derive(Debug)]
pub(crate) struct Numbered<'a> {
    /// The line.
    pub line: i64,
    /// What is wanted.
    pub request: Registration<'a>,
}

/// The next part of a file.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    /// So many lines were dealt with before.
    pub after: i64,
    /// So many are with this part.
    pub lines: i64,
    /// Who is to be registered.
    pub subscriptions: Vec<Numbered<'a>>,
    /// Lines that are left out.
    pub left_out: i64,
    /// Lines that are wrong.
    pub refused: i64,
    /// What is wrong with them.
    pub faults: Vec<Fault>,
    /// Columns that say nothing to us, all of the file so far.
    pub ignored: Vec<String>,
}

/// Begins an import.
pub(crate) async fn create(
    conn: &mut PgConnection,
    app: AppId,
    id: ImportId,
    format: &str,
    dry_run: bool,
    now: Timestamp,
) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO imports (id, app, format, dry_run, created_at, changed_at) VALUES ($1, $2, $3, $4, $5, $5)",
        id.0,
        app.0,
        format,
        dry_run,
        now
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "DELETE FROM imports WHERE app = $1 AND id < (
           SELECT id FROM imports WHERE app = $1 ORDER BY id DESC OFFSET $2::bigint - 1 LIMIT 1)",
        app.0,
        KEPT
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// An import of the app.
pub(crate) async fn find(pool: &PgPool, app: AppId, id: ImportId) -> sqlx::Result<Option<ImportRow>> {
    let newest = list(pool, app, Keyset::from(id)).await?.pop();
    Ok(newest.filter(|row| row.id == id))
}

/// The app's imports with ids beyond the page's key, the nearest first.
pub(crate) async fn list(pool: &PgPool, app: AppId, page: Keyset) -> sqlx::Result<Vec<ImportRow>> {
    paged!(
        page,
        query_as!(
            ImportRow,
            [r#"SELECT id AS "id: ImportId", format, dry_run, lines, added, known, left_out, refused, ignored, created_at, changed_at,
             finished_at
           FROM imports WHERE app = $1 AND id"# < "$2 ORDER BY id" DESC "LIMIT $3"],
            app.0,
            page.beyond,
            page.limit
        )
        .fetch_all(pool)
    )
}

/// What was wrong with the first wrong lines, in the order of the file.
pub(crate) async fn faults(pool: &PgPool, id: ImportId) -> sqlx::Result<Vec<Fault>> {
    sqlx::query_as!(
        Fault,
        "SELECT line, field, reason FROM import_faults WHERE import = $1 ORDER BY line, n LIMIT $2",
        id.0,
        FAULTS_MAX
    )
    .fetch_all(pool)
    .await
}

/// Takes in the next part of a file. False: the import is not where this part goes on: somebody else has gone on with it, or
/// it is over.
pub(crate) async fn take(
    pool: &PgPool,
    vault: &Vault,
    (app, id): (AppId, ImportId),
    batch: &Batch<'_>,
    now: Timestamp,
) -> sqlx::Result<bool> {
    let requests: Vec<Registration<'_>> = batch.subscriptions.iter().map(|numbered| numbered.request.clone()).collect();
    let requests = &requests;
    retrying(|| async move {
        let mut tx = pool.begin().await?;
        let here = sqlx::query!(
            "SELECT dry_run FROM imports WHERE id = $1 AND app = $2 AND lines = $3 AND finished_at IS NULL FOR NO KEY UPDATE",
            id.0,
            app.0,
            batch.after
        );
        let Some(here) = here.fetch_optional(&mut *tx).await? else { return Ok(false) };
        let enrolled = if here.dry_run {
            let mut undone = tx.begin().await?;
            let enrolled = register_all(&mut undone, vault, app, requests, now).await?;
            undone.rollback().await?;
            enrolled
        } else {
            register_all(&mut tx, vault, app, requests, now).await?
        };
        advance(&mut tx, id, batch, &enrolled, now).await?;
        tx.commit().await?;
        Ok(true)
    })
    .await
}

/// Counts what became of a part, and keeps what was wrong with it as long as there is room.
async fn advance(
    conn: &mut PgConnection,
    id: ImportId,
    batch: &Batch<'_>,
    enrolled: &[Enrolled],
    now: Timestamp,
) -> sqlx::Result<()> {
    let count = |which: Enrolled| enrolled.iter().filter(|became| **became == which).count() as i64;
    let (added, known, ended) = (count(Enrolled::New), count(Enrolled::Known), count(Enrolled::Ended));
    sqlx::query!(
        "UPDATE imports SET lines = $2, added = added + $3, known = known + $4, left_out = left_out + $5, refused = refused + $6,
           ignored = $7, changed_at = $8 WHERE id = $1",
        id.0,
        batch.lines,
        added,
        known,
        ended + batch.left_out,
        enrolled.len() as i64 - added - known - ended + batch.refused,
        &batch.ignored,
        now
    )
    .execute(&mut *conn)
    .await?;
    let mut faults = batch.faults.clone();
    for (numbered, became) in batch.subscriptions.iter().zip(enrolled) {
        let (field, reason) = match became {
            Enrolled::New | Enrolled::Known | Enrolled::Ended => continue,
            Enrolled::OtherKey => ("vapid_key", "its endpoint is registered under another VAPID key"),
            Enrolled::TooManyTopics => ("topics", "the app would have too many topics"),
            Enrolled::TooLarge => ("attributes", "would be too many octets of JSON together"),
        };
        faults.push(Fault { line: numbered.line, field: field.to_owned(), reason: reason.to_owned() });
    }
    keep_faults(conn, id, faults).await
}

async fn keep_faults(conn: &mut PgConnection, id: ImportId, mut faults: Vec<Fault>) -> sqlx::Result<()> {
    if faults.is_empty() {
        return Ok(());
    }
    let there = sqlx::query_scalar!(r#"SELECT count(*) AS "n!" FROM import_faults WHERE import = $1"#, id.0);
    let room = usize::try_from(FAULTS_MAX - there.fetch_one(&mut *conn).await?).unwrap_or(0);
    faults.sort_by_key(|fault| fault.line);
    faults.truncate(room);
    sqlx::query!(
        "INSERT INTO import_faults (import, line, n, field, reason)
         SELECT $1, line, row_number() OVER (PARTITION BY line ORDER BY i), field, reason
         FROM unnest($2::bigint[], $3::text[], $4::text[]) WITH ORDINALITY AS t (line, field, reason, i)",
        id.0,
        &faults.iter().map(|fault| fault.line).collect::<Vec<_>>(),
        &faults.iter().map(|fault| fault.field.clone()).collect::<Vec<_>>(),
        &faults.iter().map(|fault| fault.reason.clone()).collect::<Vec<_>>()
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends an import whose file was seen to its end. False: it is not where that was seen.
pub(crate) async fn finish(conn: &mut PgConnection, id: ImportId, lines: i64, now: Timestamp) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE imports SET finished_at = $3, changed_at = $3 WHERE id = $1 AND lines = $2 AND finished_at IS NULL",
        id.0,
        lines,
        now
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}
