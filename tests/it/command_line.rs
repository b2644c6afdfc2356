//! Contract of the program with shells and scripts.

mod audience;
mod campaigns;
mod policies;
mod process;
mod remote;
mod shell;
mod transfer;
mod verbs;
mod webhooks;
mod whole;

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use axum::Router;
use axum::response::{Html, Redirect};
use axum::routing::get;
use bellwire_simulator::gateways::{self, Simulator};
use bellwire_vault::master_key::MasterKey;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json as object;
use tokio::net::TcpListener;

use crate::support::{TempDir, TestDatabase};

/// The program, with nothing of our environment but the way to Postgres.
fn bellwire(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.env("BELLWIRE_DATA_DIR", dir).current_dir(dir);
    command
}

async fn run(command: &mut Command) -> Output {
    let mut command = std::mem::replace(command, Command::new("true"));
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Standard error, with the program's path in printed commands shortened to its name, and without what `--server` adds.
fn error_text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stderr).replace(env!("CARGO_BIN_EXE_bellwire"), "bellwire");
    while let Some(at) = text.find(" --server http://127.0.0.1:") {
        let value = at + " --server ".len();
        let end = text[value..].find(' ').map_or(text.len(), |length| value + length);
        text.replace_range(at..end, "");
    }
    text.split_inclusive('\n').filter(|line| !line.starts_with("  (http")).collect()
}

/// Output of a command that prints one line.
fn line(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    let line = text.strip_suffix('\n').expect("a whole line").to_owned();
    assert!(!line.is_empty() && !line.contains('\n'), "{output:?}");
    line
}

#[tokio::test]
async fn wrong_usage_exits_with_2_and_setting() {
    let dir = TempDir::new();
    let output = run(bellwire(dir.path()).args(["serve"]).env("BELLWIRE_BATCH_MAX", "9999")).await;
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        error_text(&output),
        "bellwire: BELLWIRE_BATCH_MAX is \"9999\", but must be a whole number from 1 to 500\n"
    );
    std::fs::write(dir.path().join("bellwire.toml"), "lissen = '127.0.0.1:1'\n").expect("a file");
    let output = run(bellwire(dir.path()).arg("doctor")).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(error_text(&output).contains("unknown key `lissen`"), "{output:?}");
    let output = run(bellwire(dir.path()).args(["serve", "--no-such-flag"])).await;
    assert_eq!(output.status.code(), Some(2));
}

#[tokio::test]
async fn the_settings_in_force_are_printed_without_secrets() {
    let dir = TempDir::new();
    std::fs::write(dir.path().join("bellwire.toml"), "batch_max = 111\nbatch_min = 11\n").expect("a file");
    let output = run(bellwire(dir.path())
        .args(["serve", "--print-config", "--batch-min", "12"])
        .env("DATABASE_URL", "postgres://somebody:hush@nowhere.test/x"))
    .await;
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for line in [
        "batch_min = \"12\" # --batch-min",
        &format!("batch_max = \"111\" # {}", dir.path().join("bellwire.toml").display()),
        "# database_url = \"********\" # DATABASE_URL",
        "listen = \"127.0.0.1:8787\" # default",
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("hush"));
}

#[tokio::test]
async fn file_in_current_directory_is_mentioned_not_read() {
    let (dir, elsewhere) = (TempDir::new(), TempDir::new());
    std::fs::write(elsewhere.path().join("bellwire.toml"), "batch_max = 111\n").expect("a file");
    let print = || {
        let mut command = bellwire(dir.path());
        command.args(["serve", "--print-config"]).current_dir(elsewhere.path());
        command
    };
    let output = run(&mut print()).await;
    assert!(String::from_utf8_lossy(&output.stdout).contains("batch_max = \"500\" # default"), "{output:?}");
    let told = error_text(&output);
    assert_eq!(told.lines().filter(|line| line.contains("bellwire.toml is ignored")).count(), 1, "{told}");
    let output = run(print().args(["--config", "bellwire.toml"])).await;
    assert!(String::from_utf8_lossy(&output.stdout).contains("batch_max = \"111\" # bellwire.toml"), "{output:?}");
    assert_eq!(error_text(&output), "");
}

#[tokio::test]
async fn file_with_foreign_owner_is_refused() {
    let dir = TempDir::new();
    let file = dir.path().join("bellwire.toml");
    let set_mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
    let refused = async |words: &str| {
        for arguments in [vec![], vec!["--config", "bellwire.toml"]] {
            let output = run(bellwire(dir.path()).args(["serve", "--print-config"]).args(arguments)).await;
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(error_text(&output).contains(words), "{output:?}");
        }
    };
    std::fs::write(&file, "batch_max = 111\n").expect("a file");
    set_mode(&file, 0o646);
    refused("bellwire.toml may be written by others: `chmod go-w` it").await;
    set_mode(&file, 0o644);
    set_mode(dir.path(), 0o777);
    refused("may be written by others: `chmod go-w` it").await;
    set_mode(dir.path(), 0o700);
    assert!(run(bellwire(dir.path()).args(["serve", "--print-config"])).await.status.success());
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(12_345), None).expect("root may");
        refused("bellwire.toml belongs to user 12345").await;
    }
}

#[tokio::test]
async fn only_a_cluster_of_citus_is_distributed() {
    let (database, dir) = (TestDatabase::empty().await, TempDir::new());
    let migrate = ["migrate", "--distribute"];
    let refused = run(bellwire(dir.path()).args(migrate).env("DATABASE_URL", database.url())).await;
    assert!(!refused.status.success());
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("this Postgres is not one of Citus"), "{words}");
}

#[tokio::test]
async fn doctor_names_faults_and_exits_with_3() {
    let (database, dir) = (TestDatabase::create().await, TempDir::new());
    let doctor = || {
        let mut command = bellwire(dir.path());
        command.args(["doctor", "--offline", "--json"]).env("DATABASE_URL", database.url());
        command
    };
    let migrated = run(bellwire(dir.path()).args(["migrate", "--json"]).env("DATABASE_URL", database.url())).await;
    assert_eq!(json(&migrated), serde_json::json!({"migrated": true}));
    let health = |answer: &serde_json::Value, check: &str| {
        let findings = answer["findings"].as_array().expect("findings").clone();
        findings.into_iter().find(|finding| finding["check"] == check).map(|finding| finding["health"].clone())
    };

    let answer = json(&run(&mut doctor()).await);
    for check in ["postgres", "schema", "master key", "clock", "master key file", "partitions", "api keys"] {
        assert_eq!(health(&answer, check), Some("ok".into()), "{check} in {answer}");
    }
    assert_eq!(health(&answer, "workers"), None, "that nothing is sent is no fault where no server runs");
    assert_eq!(answer["findings"][0]["health"], "failure", "the gravest first: {answer}");

    std::fs::remove_file(dir.path().join("master.key")).expect("the key that migrate made");
    sqlx::query("DELETE FROM _sqlx_migrations WHERE version = 4").execute(&database.pool).await.expect("1 row");
    let output = run(&mut doctor()).await;
    assert_eq!(output.status.code(), Some(3));
    let answer = json(&output);
    assert_eq!(health(&answer, "master key"), Some("failure".into()));
    assert_eq!(health(&answer, "schema"), Some("warning".into()));
    assert!(!dir.path().join("master.key").exists(), "doctor changes nothing");
}

#[tokio::test]
async fn doctor_checks_what_a_first_start_needs() {
    let (dir, taken) = (TempDir::new(), std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
    std::fs::write(dir.path().join("file"), "").expect("a file");
    let listen = taken.local_addr().expect("an address").to_string();
    let output =
        run(bellwire(dir.path()).args(["doctor", "--json", "--data-dir", "file/data"]).env("BELLWIRE_LISTEN", &listen))
            .await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let findings = json(&output)["findings"].as_array().expect("findings").clone();
    // A socket that a service manager prepared for the server is taken, too.
    for (check, health) in [("listener", "warning"), ("data directory", "failure"), ("master key", "failure")] {
        let found = findings.iter().find(|finding| finding["check"] == check).expect(check);
        assert_eq!(found["health"], health, "{found}");
    }
}

#[tokio::test]
async fn doctor_asks_push_services_unless_offline() {
    let (database, dir) = (TestDatabase::create().await, TempDir::new());
    let simulator = Simulator::start(gateways::Options::default()).await.expect("a simulator");
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, simulator.ca_pem()).expect("a file");
    let hosts = simulator.hosts();
    let hosts = hosts.iter().map(|host| format!("{}={}@{}", host.host, host.gateway.name(), host.addr));
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let with = |args: &[&str]| {
        let mut command = bellwire(dir.path());
        command.args(args).env("DATABASE_URL", database.url()).env("BELLWIRE_GATEWAYS", &hosts);
        command.env("BELLWIRE_ALLOW_LOOPBACK", "true").env("BELLWIRE_LISSEN", "1");
        command
    };
    json(&run(&mut with(&["migrate", "--json"])).await);
    let services = async |args: &[&str], trusted: bool| {
        let mut command = with(args);
        if trusted {
            command.env("BELLWIRE_GATEWAY_CA_FILE", &ca);
        }
        let answer = json(&run(&mut command).await);
        let findings = answer["findings"].as_array().expect("findings").clone();
        let unknown = findings.iter().find(|finding| finding["check"] == "settings").expect("it is looked at");
        assert!(unknown["detail"].as_str().is_some_and(|detail| detail.contains("BELLWIRE_LISSEN")), "{unknown}");
        let of_services = findings
            .into_iter()
            .filter(|finding| finding["check"].as_str().is_some_and(|check| check.starts_with("push service ")));
        of_services.map(|finding| finding["health"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(services(&["doctor", "--json"], true).await, ["ok", "ok", "ok", "ok"]);
    assert_eq!(services(&["doctor", "--json"], false).await, ["warning"; 4], "nobody has subscribed there yet");
    assert_eq!(services(&["doctor", "--offline", "--json"], true).await, [""; 0]);
}

#[tokio::test]
async fn doctor_checks_manifests_of_sites() {
    let dir = TempDir::new();
    let page = |href: &'static str| get(async move || Html(format!("<link rel=manifest href={href}>")));
    let manifest = |display: &'static str| {
        let icon = object!({"src": "/icon.png", "sizes": "192x192"});
        get(async move || axum::Json(object!({"name": "Shop", "start_url": "/", "display": display, "icons": [icon]})))
    };
    let site = Router::new()
        .route("/", get(async || Redirect::temporary("/shop/")))
        .route("/shop/", page("../good"))
        .route("/good", manifest("standalone"))
        .route("/tab", page("/browser"))
        .route("/browser", manifest("browser"))
        .route("/bare", get(async || Html("<p>Shop")))
        .route("/lost", page("/nowhere"))
        .route("/text", page("/bare"))
        .route("/loop", get(async || Redirect::temporary("/loop")));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, site).await });
    for (path, health, named) in [
        ("/", "ok", "can add it"),
        ("/tab", "warning", "Set \"display\""),
        ("/bare", "warning", "links no manifest"),
        ("/lost", "warning", "/nowhere answers 404"),
        ("/text", "warning", "/bare is not a JSON object"),
        ("/loop", "warning", "more than 5 redirects"),
    ] {
        let answer = run(bellwire(dir.path()).args(["doctor", "--json", "--site", &format!("{origin}{path}")])).await;
        let findings = json(&answer)["findings"].as_array().expect("findings").clone();
        let found = findings.iter().find(|finding| finding["check"] == "web app manifest").expect("it is checked");
        assert_eq!(found["health"], health, "{found}");
        let text = ["detail", "advice"].map(|member| found[member].as_str().unwrap_or_default()).concat();
        assert!(text.contains(named), "{found}");
    }
    for (wrong, named) in [
        ("shop", "must be a page"),
        ("ftp://shop.example/", "must be a page"),
        ("https://ann:pw@shop.example/", "must be a page"),
    ] {
        let refused = run(bellwire(dir.path()).args(["doctor", "--site", wrong])).await;
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains(named), "{refused:?}");
    }
}

#[tokio::test]
async fn interrupted_master_key_rotation_is_finished_next() {
    let (database, dir) = (TestDatabase::create().await, TempDir::new());
    let verb = |verb: &[&str]| {
        let mut command = bellwire(dir.path());
        command.args(verb).arg("--json").env("DATABASE_URL", database.url());
        command
    };
    let (key, next) = (dir.path().join("master.key"), dir.path().join("master.key.next"));
    assert!(run(&mut verb(&["migrate"])).await.status.success());
    let first = std::fs::read(&key).expect("a key");

    // Killed before the commit: a next key that opens nothing.
    MasterKey::generate().write(&next).expect("written");
    assert_eq!(json(&run(&mut verb(&["master-key", "rotate"])).await)["rotation"], "rotated");
    let second = std::fs::read(&key).expect("a key");
    assert_ne!(first, second);

    // Killed after the commit: the next key is the one.
    std::fs::copy(&key, &next).expect("copied with its mode");
    std::fs::write(&key, &first).expect("the old key");
    let output = run(&mut verb(&["migrate"])).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(error_text(&output).contains("master-key rotate"), "{output:?}");
    assert_eq!(json(&run(&mut verb(&["master-key", "rotate"])).await)["rotation"], "finished");
    assert_eq!(std::fs::read(&key).expect("a key"), second);
    assert!(!next.exists());
    assert!(run(&mut verb(&["migrate"])).await.status.success());
}

#[tokio::test]
async fn rotation_to_a_file_names_the_setting() {
    let (database, dir) = (TestDatabase::create().await, TempDir::new());
    let verb = |verb: &[&str]| {
        let mut command = bellwire(dir.path());
        command.args(verb).env("DATABASE_URL", database.url());
        command
    };
    assert!(run(&mut verb(&["migrate"])).await.status.success());
    let refused = run(&mut verb(&["master-key", "rotate", "--to-file", "none/key"])).await;
    assert!(error_text(&refused).contains("the directory none does not exist"), "{refused:?}");
    assert!(!dir.path().join("none").exists());

    let output = run(&mut verb(&["master-key", "rotate", "--to-file", "new.key"])).await;
    let path = dir.path().canonicalize().expect("a directory").join("new.key");
    let line = format!("BELLWIRE_MASTER_KEY_FILE={}", path.display());
    assert!(String::from_utf8_lossy(&output.stdout).contains(&line), "{output:?}");
    let old = run(&mut verb(&["doctor", "--offline", "--json"])).await;
    let findings = json(&old)["findings"].as_array().expect("findings").clone();
    let of_key: Vec<_> =
        findings.iter().filter(|it| it["check"].as_str().is_some_and(|it| it.starts_with("master key"))).collect();
    assert!(matches!(of_key.as_slice(), [one] if one["health"] == "failure"), "{of_key:?}");
    let tried = of_key[0]["detail"].as_str().expect("a text");
    assert!(tried.contains("master.key is not the one"), "{tried}");
    let migrate = run(verb(&["migrate"]).env("BELLWIRE_MASTER_KEY_FILE", &path)).await;
    assert!(migrate.status.success(), "{migrate:?}");
}

#[tokio::test]
async fn server_without_migration_right_refuses_old_schema() {
    let (database, dir) = (TestDatabase::create().await, TempDir::new());
    sqlx::query("DELETE FROM _sqlx_migrations WHERE version = 4").execute(&database.pool).await.expect("1 row");
    let output = run(bellwire(dir.path())
        .args(["serve", "--no-migrate", "--listen", "127.0.0.1:0"])
        .env("DATABASE_URL", database.url()))
    .await;
    assert_eq!(output.status.code(), Some(1));
    assert!(error_text(&output).contains("lacks migrations [4]"), "{output:?}");
}

/// Starts a server with its own Postgres. Returns it with its start-up report.
fn serve(dir: &Path) -> (Child, serde_json::Value) {
    let mut server = bellwire(dir)
        .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(server.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let started = lines.find(|line| line.contains("\"started\"")).expect("it says when it is ready");
    // It must not meet a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (server, serde_json::from_str(&started).expect("JSON"))
}

/// Asks a server to stop, and waits until it has.
fn stop(mut server: Child) {
    kill(Pid::from_raw(i32::try_from(server.id()).expect("a process id")), Signal::SIGTERM).expect("it lives");
    assert!(server.wait().expect("it ends").success());
}

#[test]
fn embedded_server_starts_and_stops_on_sigterm() {
    let dir = TempDir::new();
    let (server, started) = serve(dir.path());
    assert_eq!(started["data"], dir.path().to_str().expect("UTF-8"));
    let postmaster = std::fs::read_to_string(dir.path().join("postgres/postmaster.pid")).expect("Postgres runs");
    let postmaster = Pid::from_raw(postmaster.lines().next().expect("a line").parse().expect("a process id"));
    // It reports the start shortly before it serves.
    let health = || bellwire(dir.path()).arg("health").env("BELLWIRE_LISTEN", "127.0.0.1:0").output().expect("it runs");
    assert!((0..300).any(|_| health().status.success()), "the address is in the data directory: {:?}", health());

    stop(server);
    assert!(kill(postmaster, None).is_err(), "it took its Postgres with it");
}

#[test]
fn key_in_an_unused_directory_gets_a_warning() {
    let dir = TempDir::new();
    let data = dir.path().display();
    let create =
        || bellwire(dir.path()).args(["key", "create", "--operator", "--name", "me"]).output().expect("it runs");
    for warning in [
        format!("Warning: there was no data in {data}, and no server uses it"),
        format!("Warning: no server is running on {data}: "),
    ] {
        let made = create();
        assert!(line(&made).starts_with("bw_"), "the secret stands alone on standard output: {made:?}");
        assert!(error_text(&made).contains(&warning), "{warning} in {made:?}");
        assert!(error_text(&made).contains("--data-dir, or the BELLWIRE_DATABASE_URL"), "what to do: {made:?}");
        assert_eq!(error_text(&made).matches("Warning").count(), 1, "{made:?}");
    }

    let (server, _) = serve(dir.path());
    let made = create();
    assert!(line(&made).starts_with("bw_") && !error_text(&made).contains("Warning"), "{made:?}");
    stop(server);
}
