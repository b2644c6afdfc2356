//! Postgres cost of each statement of a campaign, bytes written and left per delivery, and queries of an idle server: the inputs of
//! `scripts/bench capacity`. `scripts/bench statements`
//!
//! `N` subscriptions (100,000), `REST` seconds without work (20). Times are those that statements take, waiting included, by
//! `pg_stat_statements`; CPU is measured by `scripts/bench campaign`.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgPool};

use crate::support::harness::{Harness, notice};
use crate::support::table::{Bar, figure, heading, number};
use crate::support::{seed, setting};

/// So many statements are shown, those that take longest.
const SHOWN: i64 = 12;

pub async fn run() {
    let (n, rest_s) = (setting("N", 100_000), setting("REST", 20).max(1));
    let harness = Harness::counting().await;
    let pool = &harness.pool;
    let app = harness.app("statements").await;
    seed::subscriptions(pool, &harness.vault, app, n).await;
    sqlx::query("VACUUM ANALYZE subscriptions").execute(pool).await.expect("a tidy table");
    harness.campaign(app, n, &notice()).await; // the first finds everything cold
    let (before, kept) = (Totals::read(pool).await, octets(pool, "attempts").await);
    forget(pool).await;
    let campaign = harness.campaign(app, n, &notice()).await;
    let used = Totals::read(pool).await - before;
    let each = |value: f64| value / f64::from(n);

    heading(&format!("A campaign to {}: what one delivery comes to", number(n.into())));
    figure("Write-ahead log", each(used.wal), "octets", Bar::None);
    figure("… of it whole pages, after a checkpoint", each(used.pages), "octets", Bar::None);
    figure("Transactions, of 1,000 deliveries", 1e3 * each(used.commits), "", Bar::None);
    figure("Log of attempts, with its index", each(octets(pool, "attempts").await - kept), "octets", Bar::None);
    figure("A subscription, with its indexes", each(octets(pool, "subscriptions").await), "octets", Bar::None);
    figure("Deliveries per second meanwhile", campaign.rate(), "/s", Bar::None);
    show(pool, "a delivery", f64::from(n)).await;

    tokio::time::sleep(Duration::from_secs(3)).await; // what was begun with comes to rest
    forget(pool).await;
    tokio::time::sleep(Duration::from_secs(rest_s.into())).await;
    heading("One server that has nothing to do");
    show(pool, "a second", f64::from(rest_s)).await;
}

/// Counters of Postgres since its start.
struct Totals {
    /// Octets of write-ahead log.
    wal: f64,
    /// Of these, images of whole pages: 8 KiB each, before compression.
    pages: f64,
    commits: f64,
}

impl Totals {
    async fn read(pool: &PgPool) -> Self {
        let (wal, pages, commits) = sqlx::query_as(
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8, wal_fpi::float8 * 8192,
                    (SELECT xact_commit::float8 FROM pg_stat_database WHERE datname = current_database()) FROM pg_stat_wal",
        )
        .fetch_one(pool)
        .await
        .expect("counts");
        Self { wal, pages, commits }
    }
}

impl std::ops::Sub for Totals {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { wal: self.wal - earlier.wal, pages: self.pages - earlier.pages, commits: self.commits - earlier.commits }
    }
}

/// Bytes of a table on disk, with its partitions and indexes.
async fn octets(pool: &PgPool, table: &str) -> f64 {
    let sizes =
        "SELECT coalesce(sum(pg_total_relation_size(relid)), pg_total_relation_size($1::text::regclass))::float8
                 FROM pg_partition_tree($1::text::regclass)";
    sqlx::query_scalar(sizes).bind(table).fetch_one(pool).await.expect("a size")
}

/// Lets the counts of statements begin anew.
pub async fn forget(pool: &PgPool) {
    sqlx::query("SELECT public.pg_stat_statements_reset()").execute(pool).await.expect("it is ours to reset");
}

/// Shows the statements that took longest, each as `name` has it.
pub async fn show(pool: &PgPool, name: &str, n: f64) {
    // What asks here is left out.
    let counted = format!(
        "SELECT calls::float8, total_exec_time * 1e3, mean_exec_time, wal_bytes::float8, rows::float8 / calls,
                left(regexp_replace(query, '\\s+', ' ', 'g'), 70)
         FROM public.pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
         WHERE d.datname = current_database() AND calls > 0 AND query !~ 'pg_stat|CHECKPOINT|EXISTS \\(SELECT FROM cursors'
         ORDER BY total_exec_time DESC LIMIT {SHOWN}"
    );
    let rows: Vec<(f64, f64, f64, f64, f64, String)> =
        sqlx::query_as(AssertSqlSafe(counted)).fetch_all(pool).await.expect("counts of statements");
    println!("\n{:>9} {:>9} {:>9} {:>9} {:>8}  of {name}", "calls", "µs", "WAL oct.", "mean ms", "rows");
    for (calls, us, mean_ms, wal, rows, text) in rows {
        let [calls, us, wal] = [calls / n, us / n, wal / n];
        println!("{calls:>9.4} {us:>9.3} {wal:>9.1} {mean_ms:>9.3} {rows:>8.1}  {}", text.trim_start());
    }
}
