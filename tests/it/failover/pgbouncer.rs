//! Behind a PgBouncer: with sessions of their own all is as without it, without them Bellwire refuses to start.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use bellwire_store as store;
use nix::unistd::chown;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::net::UnixStream;

use crate::support::app::PATIENCE;
use crate::support::cluster::{as_user, user};
use crate::support::engine::without_engine;
use crate::support::simulator_rules::until_report;
use crate::support::{Server, TempDir, citus, seed};

/// A PgBouncer in front of a Postgres. It ends with its value, and with the process, however that ends.
struct PgBouncer {
    dir: TempDir,
    guard: Child,
}

impl PgBouncer {
    async fn start(pool_mode: &str, behind: &PgConnectOptions) -> Self {
        let dir = TempDir::new();
        let config = dir.path().join("pgbouncer.ini");
        let host = behind.get_socket().map_or(behind.get_host(), |it| it.to_str().expect("a path in UTF-8"));
        let text = format!(
            "[databases]\n* = host={host} port={} user=postgres\n[pgbouncer]\nunix_socket_dir = {}\nlisten_port = 6432\nauth_type = any\n\
             pool_mode = {pool_mode}\ndefault_pool_size = 60\nmax_client_conn = 200\n",
            behind.get_port(),
            dir.path().display()
        );
        std::fs::write(&config, text).expect("a file");
        if let Some(user) = user() {
            chown(dir.path(), Some(user.uid), Some(user.gid)).expect("we are root");
        }
        let mut command = as_user(Command::new("/bin/sh"));
        command.args(["-c", "pgbouncer -q \"$0\" & cat >/dev/null; kill $!; wait"]).arg(&config);
        let guard = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a shell");
        let ready = async { while UnixStream::connect(dir.path().join(".s.PGSQL.6432")).await.is_err() {} };
        tokio::time::timeout(PATIENCE, ready).await.expect("the package `pgbouncer` is installed (`make deps`)");
        Self { dir, guard }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn options(&self, database: &str) -> PgConnectOptions {
        let options = PgConnectOptions::new_without_pgpass().socket(self.path()).port(6432).username("postgres");
        options.database(database).ssl_mode(PgSslMode::Disable)
    }

    fn url(&self, database: &str) -> String {
        let host = self.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{host}:6432/{database}?sslmode=disable")
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_pgbouncer_keeps_all_session_settings() {
    let mut app = without_engine().await;
    seed(&app, "fcm", 0..100).await;
    let pgbouncer = PgBouncer::start("session", &app.database.options()).await;
    app.database.found_by(pgbouncer.url(&app.database.name));
    let server = Server::with(&app, &[]).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| report.accepted >= 100).await;
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.worker(app.clock.clone()).await.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 100);

    let session = store::by_index_only(pgbouncer.options(&app.database.name));
    let pool = store::connect(session, 1).await.expect("a connection");
    // What Citus plans without knowing its shards asks all of them.
    let plans = if citus::cluster().is_some() { "auto" } else { "force_generic_plan" };
    for (setting, value) in [
        ("search_path", "bellwire"),
        ("statement_timeout", "30s"),
        ("idle_in_transaction_session_timeout", "20s"),
        ("jit", "off"),
        ("enable_seqscan", "off"),
        ("plan_cache_mode", plans),
    ] {
        let shown: String =
            sqlx::query_scalar("SELECT current_setting($1)").bind(setting).fetch_one(&pool).await.unwrap();
        assert_eq!(shown, value, "{setting}");
    }
    pool.close().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_pgbouncer_is_refused_with_reason() {
    for mode in ["transaction", "statement"] {
        let mut app = without_engine().await;
        let pgbouncer = PgBouncer::start(mode, &app.database.options()).await;
        app.database.found_by(pgbouncer.url(&app.database.name));
        let mut server = Server::launch(&app, &[]);
        server.until_said("Bellwire needs pool_mode = session").await;
        assert!(!server.end(PATIENCE).await.success());
        app.finish().await;
    }
}
