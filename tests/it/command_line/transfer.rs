//! `bellwire export` and `bellwire import`: a whole app moves to another server, and interrupted transfers are resumed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};
use sqlx::PgPool;

use super::shell::Shell;
use super::{error_text, json};
use crate::support::api::{content, fcm, push_subscription};
use crate::support::json::assert_members;

fn lines(file: &str) -> Vec<Value> {
    file.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The same without what must differ on another server.
fn comparable(file: &str) -> Vec<Value> {
    let mut lines = lines(file);
    for line in lines.iter_mut().filter_map(Value::as_object_mut) {
        line.retain(|name, _| !["id", "exported_at"].contains(&name.as_str()));
    }
    // Subscriptions that were made in the same millisecond come in any order.
    lines.sort_by_key(|line| (line["type"] == "subscription").then(|| line.to_string()));
    lines
}

impl Shell {
    fn write(&self, name: &str, text: &str) -> String {
        let file = self.dir.path().join(name);
        std::fs::write(&file, text).expect("a file");
        file.display().to_string()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).expect("a file")
    }

    /// A route's own words, for what has no verb.
    async fn exported(&self, app: &str) -> String {
        String::from_utf8(self.ok(&["export", "--app", app]).await.stdout).expect("UTF-8")
    }
}

async fn count(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.expect("a count")
}

/// A file of a whole app with one of everything, and three subscriptions, one of them unsubscribed.
async fn everything(shell: &Shell) -> String {
    shell.ok(&["app", "change", "shop", "--name", "The shop", "--add-origin", "https://shop.example.com"]).await;
    shell.ok(&["app", "identity-key", "create", "shop", "--name", "backend", "--form", "hmac"]).await;
    shell.ok(&["topic", "create", "sports", "--app", "shop"]).await;
    shell.ok(&["vapid", "rotate", "--app", "shop"]).await;
    let first = shell.exported("shop").await;
    let retired = lines(&first).into_iter().find(|line| line["state"] == "retired").expect("the first key");
    let key = bellwire_webpush::keys::SigningKey::import(retired["private_key"].as_str().unwrap(), None);
    let key = key.expect("a key").public_base64();
    let hook = json!({"type": "webhook", "name": "CRM", "url": "https://hooks.example.com/x", "events": ["delivery.gone"],
        "max_events": 7, "policy": null, "enabled": false, "secret": "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="});
    let message = json!({"to": {"all": true}, "content": content()});
    let schedule = json!({"cron": "0 9 * * 1", "timezone": "Europe/Vienna"});
    let settings = [
        json!({"type": "calendar", "timezone": "Europe/Vienna", "quiet_hours": null, "off_peak": []}),
        json!({"type": "prompt", "visits": 2}),
        json!({"type": "frequency_caps", "caps": [{"tiers": ["promotional"], "max": 2, "window": "1d"}]}),
        json!({"type": "slas", "transactional": 30}),
        json!({"type": "guard", "factor": 3, "floor": 1000}),
        json!({"type": "flow", "rate": 100, "period": 60.0, "parallelism": 4}),
        json!({"type": "topic", "name": "staff", "join": "server"}),
        json!({"type": "policy", "level": "tier", "name": "engagement", "policy": {"retries": 1}}),
        json!({"type": "policy", "level": "topic", "name": "staff", "policy": {"retries": 2}}),
        json!({"type": "segment", "name": "pro", "expression": "plan = 'pro'", "description": "who pays"}),
        json!({"type": "template", "name": "hello", "template": {"content": {"title": "Hi {{ attributes.name | default('you') }}", "body": "b"}}}),
        hook,
        json!({"type": "campaign", "state": "draft", "plan": {"slug": "weekly", "message": message, "schedule": schedule}}),
    ];
    let mut subscriptions: Vec<Value> = (0..3).map(|n| push_subscription(&fcm(&format!("s{n}")))).collect();
    let more = [
        json!({"user_id": "ann", "tags": ["vip"], "attributes": {"plan": "pro", "seats": 3}, "topics": ["sports", "staff"],
            "locale": "de-AT", "timezone": "Europe/Vienna", "policy": {"retries": 3}}),
        json!({"vapid_key": key, "created_at": "2025-03-01T10:00:00Z"}),
        json!({"user_id": "ben", "state": "unsubscribed", "unsubscribed_at": "2026-01-01T00:00:00Z"}),
    ];
    for (subscription, more) in subscriptions.iter_mut().zip(more) {
        let members = subscription.as_object_mut().expect("an object");
        members.extend(more.as_object().expect("an object").clone());
        members.insert("type".to_owned(), "subscription".into());
    }
    let all = [&lines(&first)[..3], &settings, &subscriptions, &[json!({"type": "end", "counts": {}})]].concat();
    all.iter().map(|line| format!("{line}\n")).collect()
}

#[tokio::test]
pub async fn app_transfer_is_complete_and_repeatable() {
    let (here, there) = (Shell::with_app().await, Shell::new().await);
    let file = everything(&here).await;
    let at = here.write("everything.ndjson", &file);
    let done = here.json(&["import", &at, "--app", "shop", "--with-settings"]).await;
    assert_eq!((&done["added"], &done["refused"], &done["faults"]), (&json!(2), &json!(0), &json!([])), "{done}");
    here.ok(&["export", "--app", "shop", "--output", "shop.ndjson"]).await;
    let out = here.read("shop.ndjson");
    let kinds: std::collections::BTreeSet<String> = lines(&out).iter().map(|line| line["type"].to_string()).collect();
    assert_eq!(kinds.len(), 17, "one of everything: {kinds:?}");
    assert!(
        here.refused(&["export", "--app", "shop", "--output", "shop.ndjson"]).await.contains("cannot create"),
        "it is there"
    );

    let file = there.write("shop.ndjson", &out);
    let tried = there.json(&["import", &file, "--dry-run"]).await;
    assert_eq!((&tried["added"], &tried["faults"]), (&json!(3), &json!([])), "{tried}");
    assert!(there.json(&["app", "list"]).await["data"].as_array().expect("a list").is_empty());
    let done = there.json(&["import", &file]).await;
    assert_eq!((&done["added"], &done["faults"]), (&json!(2), &json!([])), "{done}");
    assert_eq!(comparable(&there.exported("shop").await), comparable(&out));
    let keys = there.json(&["vapid", "list", "--app", "shop"]).await;
    assert_eq!(keys["data"].as_array().expect("a list").len(), 2, "none but those that it had");

    let told = there.refused(&["import", &file]).await;
    assert!(
        told.contains("there is an app \"shop\" already: --app shop --with-settings brings the file into it"),
        "{told}"
    );
    let again = there.json(&["import", &file, "--app", "shop", "--with-settings"]).await;
    assert_eq!((&again["added"], &again["known"]), (&json!(0), &json!(2)), "{again}");
    assert_eq!(comparable(&there.exported("shop").await), comparable(&out));
    there.ok(&["import", &file, "--app", "shop-2"]).await;
    assert_eq!(count(&there.database.pool, "SELECT count(*) FROM subscriptions WHERE state = 'active'").await, 4);
}

#[tokio::test]
pub async fn subscriber_list_does_not_change_an_app() {
    let shell = Shell::with_app().await;
    let before = shell.exported("shop").await;
    let key = bellwire_webpush::keys::SigningKey::generate().expose_raw();
    let settings = [
        json!({"type": "app", "slug": "shop", "name": "x", "origins": ["https://evil.example.com"], "allow_other_gateways": true}),
        json!({"type": "vapid_key", "state": "active", "subject": "mailto:e@evil.example.com", "private_key": *key}),
        json!({"type": "identity_key", "name": "theirs\u{1b}[2J", "algorithm": "HS256", "form": "hmac", "secret": "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IDMyLi4"}),
        json!({"type": "webhook", "name": "w", "url": "https://evil.example.com/w", "events": ["delivery.gone"]}),
    ];
    let mut subscription = push_subscription(&fcm("s"));
    subscription["type"] = "subscription".into();
    let lines: String = settings.iter().chain([&subscription]).map(|line| format!("{line}\n")).collect();
    let file = shell.write("subscribers.ndjson", &lines);

    let told = shell.refused(&["import", &file, "--app", "shop"]).await;
    for words in ["1 app, 1 identity_key, 1 vapid_key, 1 webhook", "--with-settings", "--only subscriptions"] {
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(comparable(&shell.exported("shop").await), comparable(&before), "no subscription either");

    let output = shell.run(&["import", &file, "--app", "shop", "--dry-run", "--json"]).await;
    let report = json(&output);
    assert_eq!(
        (output.status.code(), &report["settings"], &report["added"]),
        (Some(1), &json!(4), &json!(1)),
        "{report}"
    );
    let says = report["settings_lines"].as_array().expect("a list").iter();
    let says: Vec<_> = says.map(|it| (it["line"].clone(), it["type"].clone(), it["says"].clone())).collect();
    let expected = [
        (1, "app", "https://evil.example.com"),
        (2, "vapid_key", "active"),
        (3, "identity_key", "theirs\u{fffd}[2J"),
        (4, "webhook", "https://evil.example.com/w"),
    ];
    assert_eq!(says, expected.map(|(line, kind, says)| (json!(line), json!(kind), json!(says))));
    assert!(error_text(&output).contains("--with-settings"), "{output:?}");
    let output = shell.run(&["import", &file, "--app", "shop", "--dry-run"]).await;
    let people = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(people.contains("SETS") && people.contains("https://evil.example.com/w"), "{people}");

    let alone = shell.write("alone.ndjson", &format!("{}\n", push_subscription(&fcm("s"))));
    let done = shell.json(&["import", &alone, "--app", "shop", "--with-settings"]).await;
    assert_eq!((&done["added"], &done["settings"]), (&json!(1), &Value::Null), "{done}");
}

#[tokio::test]
pub async fn faulty_file_exits_with_1_and_report() {
    let shell = Shell::with_app().await;
    let out = shell.exported("shop").await;
    let cut = out.lines().filter(|line| !line.contains("\"end\"")).map(|line| format!("{line}\n")).collect::<String>();
    let segment = json!({"type": "segment", "name": "odd", "expression": "plan ="});
    let subscription = json!({"type": "subscription", "endpoint": "nowhere", "keys": {}});
    let file = shell.write("cut.ndjson", &format!("{cut}{segment}\n{subscription}\n"));
    let output = shell.run(&["import", &file, "--app", "copy", "--json"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = json(&output);
    let n = cut.lines().count();
    let told: Vec<_> =
        report["faults"].as_array().expect("a list").iter().map(|f| (f["line"].clone(), f["field"].clone())).collect();
    let expected = [(n + 1, "segment"), (n + 2, "p256dh"), (n + 2, "auth"), (n + 3, "type")];
    assert_eq!(told, expected.map(|(line, field)| (json!(line), json!(field))), "{report}");
    assert!(error_text(&output).contains("3 lines of"), "{output:?}");
    let output = shell.run(&["import", &file, "--dry-run", "--app", "another", "--json"]).await;
    assert_eq!(
        (output.status.code(), json(&output)["faults"].as_array().map(Vec::len)),
        (Some(1), Some(1)),
        "{output:?}"
    );
    let told = shell.refused(&["import", &shell.write("plain.csv", "endpoint,p256dh,auth\n")]).await;
    assert!(told.contains("--app"), "{told}");
}

#[tokio::test]
async fn killed_import_resumes_without_loss() {
    const N: usize = 3_500;
    let shell = Shell::with_app().await;
    let rows: Vec<String> = (0..N).map(|n| format!("{}\n", push_subscription(&fcm(&format!("k{n}"))))).collect();
    let mut command = shell.command(&["import", "-", "--app", "shop"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut input = child.stdin.take().expect("piped");
    let head = rows[..2_600].concat();
    let fed = tokio::task::spawn_blocking(move || {
        input.write_all(head.as_bytes()).expect("it reads");
        input // kept open: the file goes on
    });
    let input = fed.await.expect("no panic");
    const LINES: &str = "SELECT coalesce(max(lines), 0) FROM imports";
    while count(&shell.database.pool, LINES).await < 2_000 {
        tokio::task::yield_now().await;
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("it is gone");
    drop(input);
    assert_eq!(count(&shell.database.pool, "SELECT count(*) FROM imports WHERE finished_at IS NULL").await, 1);
    let file = shell.write("rows.ndjson", &rows.concat());
    let done = shell.json(&["import", &file, "--app", "shop", "--resume"]).await;
    assert_members(&done, json!({"lines": N, "added": N, "known": 0}));
    let pool = &shell.database.pool;
    assert_eq!(count(pool, "SELECT count(*) FROM subscriptions").await, N as i64);
    assert_eq!(count(pool, "SELECT count(DISTINCT endpoint_mac) FROM subscriptions").await, N as i64);
    assert_eq!(count(pool, "SELECT sum(n)::bigint FROM audiences WHERE topic = 0").await, N as i64);
    assert!(
        shell
            .refused(&["import", &file, "--app", "shop", "--resume"])
            .await
            .contains("this app has no interrupted import")
    );
}

#[tokio::test]
pub async fn export_resumes_in_its_file() {
    let shell = Shell::with_app().await;
    let rows: String = (0..5).map(|n| format!("{}\n", push_subscription(&fcm(&format!("r{n}"))))).collect();
    shell.ok(&["import", &shell.write("rows.ndjson", &rows), "--app", "shop"]).await;
    shell.ok(&["export", "--app", "shop", "--output", "shop.ndjson"]).await;
    let whole = shell.read("shop.ndjson");
    let kept = whole.lines().count() - 3;
    let cut: String = whole.lines().take(kept).map(|line| format!("{line}\n")).collect();
    shell.write("shop.ndjson", &format!("{cut}{{\"type\":\"subscr"));
    shell.ok(&["export", "--app", "shop", "--output", "shop.ndjson", "--resume"]).await;
    let without_end = |file: &str| lines(file).into_iter().filter(|line| line["type"] != "end").collect::<Vec<_>>();
    assert_eq!(without_end(&shell.read("shop.ndjson")), without_end(&whole));
    let table = shell.ok(&["export", "--app", "shop", "--only", "subscriptions", "--format", "csv"]).await;
    let table: Vec<String> = BufReader::new(&*table.stdout).lines().map(|line| line.expect("UTF-8")).collect();
    assert!(table.len() == 6 && table[0].starts_with("type,id,endpoint,p256dh,auth,vapid_key,"), "{table:?}");
}

#[tokio::test]
async fn failed_import_start_gives_its_reason() {
    let shell = Shell::with_app().await;
    let row = push_subscription(&fcm("x")).to_string();
    let file = shell.write("rows.ndjson", &row);
    for (arguments, words) in [
        (&["import", &file, "--app", "nobody"][..], "`bellwire app list` shows"),
        (&["import", &file, "--app", "shop", "--map", "a:nonsense"], "--map: "),
        (&["import", ".", "--app", "shop"], "cannot read .: "),
        (&["import", "missing.csv", "--app", "shop"], "cannot read missing.csv: "),
        (&["import", &file, "--app", "shop", "--resume"], "this app has no interrupted import"),
    ] {
        let told = shell.refused(arguments).await;
        assert!(told.contains(words) && !told.contains("goes on"), "{arguments:?}: {told}");
    }
    let object = shell.write("object.json", &format!("[{row}"));
    let told = shell.refused(&["import", &object, "--app", "shop", "--dry-run"]).await;
    assert!(told.contains("JSON array") && !told.contains("--resume"), "{told}");
    let told = shell.refused(&["import", &object, "--app", "shop"]).await;
    assert!(told.contains("JSON array") && told.contains("--app shop --resume"), "{told}");
}

#[tokio::test]
pub async fn foreign_file_with_known_types_is_imported() {
    let shell = Shell::with_app().await;
    let rows: String = ["app", "webhook", "end"]
        .map(|kind| {
            let mut row = push_subscription(&fcm(kind));
            row["type"] = kind.into();
            format!("{row}\n")
        })
        .concat();
    let done = shell.json(&["import", &shell.write("rows.ndjson", &rows), "--app", "shop"]).await;
    assert_members(&done, json!({"added": 3, "left_out": 0, "refused": 0}));
}

#[tokio::test]
pub async fn files_not_understood_fail_and_dry_runs_report() {
    let shell = Shell::with_app().await;
    for (name, file) in [
        ("empty.csv", include_str!("../../cases/import-nothing/empty.csv")),
        ("no-heading.csv", include_str!("../../cases/import-nothing/no-heading.csv")),
    ] {
        let output = shell.run(&["import", &shell.write(name, file), "--app", "shop"]).await;
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(shown.contains("expected a line of names"), "{name}: {shown}");
    }
    let players = include_str!("../../cases/import-onesignal-opted-out/players.csv");
    let output = shell.ok(&["import", &shell.write("players.csv", players), "--app", "shop", "--dry-run"]).await;
    let shown = String::from_utf8_lossy(&output.stdout);
    for cell in ["external_user_id", "user_id", "bob", "notification_types", "left_out"] {
        assert!(shown.contains(cell), "{cell}: {shown}");
    }
    assert!(!shown.contains("LfTMJxOjLJ0HkOhCADcAeg"), "keys are secrets");
    let powershell = include_bytes!("../../cases/vapid-keys/powershell-utf16.txt");
    let file = shell.dir.path().join("powershell.txt");
    std::fs::write(&file, powershell).expect("a file");
    let key = shell.json(&["vapid", "import", "--app", "shop", &file.display().to_string()]).await;
    assert_eq!(
        key["public_key"],
        "BFFcPW6545a5BNP-yn9U_c0MwemXvzddylFa0KbDtANfRTa-OlDzGPv5pUdZAqIhUCvvDVfgjFOyzApW8X2fk1Q"
    );
}
