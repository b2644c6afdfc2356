//! The verbs about apps, keys and messages.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use serde_json::json;

use super::shell::Shell;
use super::{bellwire, error_text, json, line, run};
use crate::support::database::shared_postgres;
use crate::support::json::assert_members;
use crate::support::{TempDir, TestDatabase};

#[tokio::test]
async fn teammates_are_managed_at_the_shell() {
    let shell = Shell::with_app().await;
    let invited = shell.ok(&["admin", "invite", "Ann@example.com", "--role", "sender", "--app", "shop"]).await;
    let link = line(&invited);
    assert!(link.starts_with("http://127.0.0.1:8787/admin/invite#bwl_"), "{link}");
    assert!(error_text(&invited).contains("ann@example.com"), "{invited:?}");
    let ann = async || shell.json(&["admin", "list"]).await["data"][0].clone();
    let roles = ann().await["roles"].clone();
    assert_eq!((roles[0]["role"].as_str(), roles[0]["app"].is_string()), (Some("sender"), true));
    shell.ok(&["admin", "change", "ann@example.com", "--role", "viewer"]).await;
    assert_eq!(ann().await["roles"], json!([{"role": "viewer", "app": null}]));
    assert_ne!(line(&shell.ok(&["admin", "reset", "ann@example.com"]).await), link, "another one");
    let without = shell.ok(&["admin", "reset-passkeys", "ann@example.com"]).await;
    assert!(line(&without).contains("no longer has a passkey; removed: 0"), "{without:?}");
    shell.ok(&["admin", "disable", "ANN@example.com"]).await;
    assert!(ann().await["disabled_at"].is_string());
    let id = ann().await["id"].as_str().unwrap().to_owned();
    shell.ok(&["admin", "enable", &id]).await;
    assert!(ann().await["disabled_at"].is_null());
    let unlinked = shell.json(&["admin", "unlink", "ann@example.com"]).await;
    assert_eq!(unlinked, json!({"unlinked": "ann@example.com"}), "whether or not there was an account");
    let taken = shell.refused(&["admin", "invite", "ann@example.com", "--role", "admin"]).await;
    assert!(taken.contains("teammate with that address already exists"), "{taken}");
    let no_app = shell.refused(&["admin", "invite", "ben@example.com", "--role", "admin", "--app", "none"]).await;
    assert!(no_app.contains("--app"), "{no_app}");
    shell.ok(&["admin", "remove", "ann@example.com"]).await;
    let gone = shell.refused(&["admin", "reset", "ann@example.com"]).await;
    assert!(gone.contains("teammate ann@example.com does not exist"), "{gone}");
}

#[tokio::test]
pub async fn user_data_is_exported_and_erased() {
    let shell = Shell::with_app().await;
    let user = ["ann@example.com", "--app", "shop"];
    let export = shell.ok(&[&["user", "export"], &user[..]].concat()).await;
    let export = json(&export);
    assert_eq!((&export["user_id"], &export["complete"]), (&json!("ann@example.com"), &json!(true)));
    let erase = |again: &'static str| [&["user", "erase"], &user[..], &["--yes-erase", again]].concat();
    let refused = shell.refused(&erase("ann")).await;
    assert!(refused.contains("--yes-erase"), "{refused}");
    let erased = shell.json(&erase("ann@example.com")).await;
    assert!(erased["completed_at"].is_string() && erased["subscriptions"] == 0, "{erased}");
    let told = shell.json(&["audit", "list", "--app", "shop", "--limit", "3"]).await;
    let actions: Vec<_> =
        told["data"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["user.erasure_completed", "user.erased", "user.exported"]);
    let none = shell.refused(&["user", "export", "ann@example.com", "--app", "none"]).await;
    assert!(none.contains("There is no app \"none\"."), "{none}");
}

#[tokio::test]
pub async fn dead_letters_are_listed_replayed_discarded_and_exported() {
    let shell = Shell::with_app().await;
    let letters = |verb: &'static str| ["dead-letters", verb, "--app", "shop"];
    assert_eq!(shell.json(&letters("list")).await["data"], json!([]));
    assert_eq!(shell.json(&[&letters("groups")[..], &["--by", "day"]].concat()).await["done"], true);
    for verb in ["replay", "discard"] {
        let refused = shell.refused(&letters(verb)).await;
        assert!(refused.contains("no dead letters selected"), "{refused}");
        let handled = shell.json(&[&letters(verb)[..], &["--since", "2030-01-31"]].concat()).await;
        assert_eq!(handled["matched"], 0);
        let counted = shell.json(&[&letters(verb)[..], &["--all", "--dry-run"]].concat()).await;
        assert_eq!((&counted["dry_run"], &counted["by_reason"]), (&json!(true), &json!([])));
    }
    let refused = shell.refused(&[&letters("replay")[..], &["--reason", "tired", "--cap", "5"]].concat()).await;
    assert!(refused.starts_with("bellwire: --reason: must be one of bad_request"), "{refused}");
    let csv = shell.ok(&letters("export")).await;
    assert!(line(&csv).starts_with("id,at,state,reason,status,detail,"), "{csv:?}");
}

#[tokio::test]
async fn secrets_and_ids_stand_alone_on_standard_output() {
    let shell = Shell::with_app().await;
    let operator = line(&shell.ok(&["key", "create", "--operator", "--name", "me"]).await);
    let server = shell.ok(&["key", "create", "--app", "shop", "--scope", "read,send", "--name", "server"]).await;
    for secret in [&operator, &line(&server)] {
        assert!(secret.starts_with("bw_") && secret.len() == 46, "{secret}");
    }
    assert!(error_text(&server).contains("read, send"), "{server:?}");
    let sent = shell.ok(&["send", "--app", "shop", "--all", "--title", "Hello"]).await;
    assert!(line(&sent).starts_with("msg_"), "{sent:?}");
    assert!(error_text(&sent).contains("No server is running that delivers"), "{sent:?}");

    let keys = shell.json(&["key", "list", "--app", "shop"]).await;
    assert_eq!((&keys["data"][0]["name"], &keys["data"][1]), (&json!("server"), &json!(null)));
    let id = keys["data"][0]["id"].as_str().expect("an id");
    let revoked = shell.json(&["key", "revoke", "--app", "shop", id, "--keep-descendants"]).await;
    assert_eq!(revoked, json!({"id": id, "revoked": 1}));
    let keys = shell.json(&["key", "list", "--app", "shop"]).await;
    assert!(keys["data"][0]["revoked_at"].is_string(), "{keys}");
    let operators = shell.json(&["key", "list", "--operator"]).await;
    assert_eq!(operators["data"][0]["scopes"], json!(["operator"]));
    shell.ok(&["key", "create", "--operator", "--scope", "metrics", "--name", "prometheus"]).await;
    let operators = shell.json(&["key", "list", "--operator"]).await;
    assert_eq!(
        (&operators["data"][0]["scopes"], &operators["data"][0]["created_by"]),
        (&json!(["metrics"]), &json!("local"))
    );
    let refused = shell.refused(&["key", "create", "--operator", "--scope", "send", "--name", "n"]).await;
    assert!(refused.starts_with("bellwire: --scope: must be `operator` or `metrics`"), "{refused}");
    let table = String::from_utf8(shell.ok(&["key", "list", "--operator"]).await.stdout).expect("UTF-8");
    assert!(table.starts_with("ID ") && !table.contains(&operator), "{table}");
}

#[tokio::test]
pub async fn a_sunset_rule_is_given_at_the_shell() {
    let shell = Shell::with_app().await;
    let rule = ["--unclicked", "10", "--unclicked-for", "60d", "--welcome", "14d"];
    let send = ["send", "--app", "shop", "--all", "--title", "Hello"];
    let sent = shell.json(&[send.as_slice(), &rule].concat()).await;
    let shown = shell.json(&["message", "show", "--app", "shop", sent["id"].as_str().expect("an id")]).await;
    assert_eq!(shown["sunset"], json!({"unclicked": 10, "unclicked_for": "60d", "welcome": "14d"}));
    let refused = shell.refused(&[send.as_slice(), &["--unclicked-for", "soon"]].concat()).await;
    assert!(refused.starts_with("bellwire: --unclicked-for: must be a span"), "{refused}");
    let refused = shell.refused(&[send.as_slice(), &["--welcome", "3d"]].concat()).await;
    assert!(refused.starts_with("bellwire: --unclicked, --unclicked-for: must have"), "{refused}");
}

#[tokio::test]
pub async fn metrics_are_a_table_at_the_shell() {
    let shell = Shell::with_app().await;
    let shown = shell.json(&["metrics", "--app", "shop", "--measure", "accepted,error_rate"]).await;
    assert_eq!(shown["data"][0]["metrics"], json!({"accepted": 0, "error_rate": null}));
    let by_day =
        ["metrics", "--since", "2030-01-01", "--until", "2030-01-03", "--step", "1d", "--measure", "gone,dead"];
    let table = String::from_utf8(shell.ok(&by_day).await.stdout).expect("UTF-8");
    let (table, complete) = table.trim_end().rsplit_once("\n\n").expect("a table and a line");
    assert!(complete.starts_with("Complete until 20"), "{complete}");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        vec!["AT", "GONE", "DEAD"],
        vec!["2030-01-01", "00:00:00Z", "0", "0"],
        vec!["2030-01-02", "00:00:00Z", "0", "0"],
    ];
    assert_eq!(lines, expected, "{table}");
    let refused = shell.refused(&["metrics", "--measure", "happiness"]).await;
    assert!(refused.starts_with("bellwire: --measure: must be one of ended, accepted"), "{refused}");
}

#[tokio::test]
async fn audit_log_is_read_at_the_shell() {
    let shell = Shell::with_app().await;
    let key = shell.json(&["key", "create", "--app", "shop", "--scope", "send", "--name", "server"]).await;
    let log = shell.json(&["audit", "list", "--app", "shop", "--actor", "local"]).await;
    let actions: Vec<_> = log["data"].as_array().expect("entries").iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, [&json!("api_key.created"), &json!("app.created")]);
    assert_eq!(log["data"][0]["target"], key["id"]);
    let none = shell.json(&["audit", "list", "--action", "app.created", "--until", "2020-01-31"]).await;
    assert_eq!(none["data"], json!([]));
    let refused = shell.refused(&["audit", "list", "--actor", "me"]).await;
    assert!(refused.starts_with("bellwire: --actor: must be the id of an API key"), "{refused}");
    let table = String::from_utf8(shell.ok(&["audit", "list", "--limit", "1"]).await.stdout).expect("UTF-8");
    assert!(table.starts_with("AT ") && table.contains("ACTION"), "{table}");
}

#[tokio::test]
pub async fn an_app_is_made_listed_shown_and_changed() {
    let shell = Shell::new().await;
    let made = shell
        .json(&["app", "create", "shop", "--subject", "mailto:a@example.com", "--origin", "https://shop.example.com"])
        .await;
    assert_eq!((&made["slug"], &made["name"]), (&json!("shop"), &json!("shop")));
    assert_eq!(made["vapid_key"]["public_key"].as_str().map(str::len), Some(87));
    assert_eq!(shell.json(&["app", "list"]).await["data"][0]["id"], made["id"]);
    let changed = shell.json(&["app", "change", "shop", "--name", "The shop"]).await;
    assert_eq!((&changed["name"], &changed["origins"]), (&json!("The shop"), &made["origins"]));
    let origins = ["--add-origin", "http://localhost:3000", "--add-origin", "https://shop.example.com"];
    let added = shell.json(&[&["app", "change", "shop"][..], &origins].concat()).await;
    assert_eq!(added["origins"], json!(["https://shop.example.com", "http://localhost:3000"]), "none is forgotten");
    let removed = shell.json(&["app", "change", "shop", "--remove-origin", "http://localhost:3000"]).await;
    assert_eq!(removed["origins"], made["origins"]);
    let strange = shell.refused(&["app", "change", "shop", "--remove-origin", "https://shop.exmaple.com"]).await;
    assert!(strange.contains("is not an origin of this app; its origins are: https://shop.example.com"), "{strange}");
    let shown = shell.ok(&["app", "show", made["id"].as_str().expect("an id")]).await;
    let text = String::from_utf8(shown.stdout).expect("UTF-8");
    assert!(text.contains("The shop\n") && text.contains("https://shop.example.com\n"), "{text}");
}

#[tokio::test]
async fn init_prints_what_to_paste() {
    let shell = Shell::new().await;
    let init = ["init", "shop", "--origin", "http://localhost:3000"];
    let told = shell.ok(&[&init[..], &["--public-url", "https://push.example.com/"]].concat()).await;
    let text = String::from_utf8(told.stdout.clone()).expect("UTF-8");
    for part in [
        "\nBELLWIRE_KEY=bw_",
        "importScripts(\"https://push.example.com/sdk/service-worker.js\");",
        "bellwire.appUrl = \"https://push.example.com/v1/apps/shop\";",
        "import { init } from \"https://push.example.com/sdk/bellwire.js\";",
        "init({ app: \"shop\" })",
        "subscribe({ topics: [\"news\"] })",
        " send --app shop --topic news --title ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(error_text(&told).contains("vapid subject --app shop"), "{told:?}");
    let app = shell.json(&["app", "show", "shop"]).await;
    assert_eq!((&app["origins"], &app["browsers_may"]), (&json!(["http://localhost:3000"]), &json!([])));
    let topics = shell.json(&["topic", "list", "--app", "shop"]).await;
    assert_eq!((&topics["data"][0]["name"], &topics["data"][1]), (&json!("news"), &json!(null)));
    let keys = shell.json(&["key", "list", "--app", "shop"]).await;
    assert_eq!(keys["data"][0]["scopes"], json!(["read", "send", "subscribers"]));

    let again = shell.refused(&init).await;
    assert!(again.contains("there is an app shop already, and nothing was changed"), "{again}");
    assert!(again.contains("key create --app shop"), "{again}");
    assert_eq!(shell.json(&["key", "list", "--app", "shop"]).await["data"].as_array().map(Vec::len), Some(1));
    let mut in_path = shell.command(&["init", "a", "--origin", "http://localhost:1"]);
    let flags = if shell.remote.is_some() { "--server" } else { "--data-dir" };
    if shell.remote.is_none() {
        in_path.args([flags, "."]);
    }
    let printed = String::from_utf8(run(in_path.arg0("bellwire")).await.stdout).expect("UTF-8");
    assert_eq!(printed.matches(flags).count(), 1, "{printed}");
    let public = shell.json(&["init", "b", "--origin", "https://shop.example.com"]).await;
    assert_eq!(public["app"]["vapid_key"]["subject"], "https://shop.example.com");
    let refused = shell.refused(&["init", "c", "--origin", "http://shop.example.com"]).await;
    assert!(refused.starts_with("bellwire: --origin \"http://shop.example.com\": "), "{refused}");
}

#[tokio::test]
pub async fn app_deletion_needs_its_name_twice() {
    let shell = Shell::with_app().await;
    let refused = shell.refused(&["app", "delete", "shop", "--yes-delete", "shoq"]).await;
    assert!(refused.contains("--yes-delete: must be"), "{refused}");
    assert_eq!(shell.json(&["app", "list"]).await["data"][0]["deleting_at"], json!(null));
    let deleted = shell.json(&["app", "delete", "shop", "--yes-delete", "shop"]).await;
    assert!(deleted["deleting_at"].is_string(), "{deleted}");
    let gone = shell.refused(&["app", "show", "shop"]).await;
    assert!(gone.contains("There is no app \"shop\"."), "{gone}");
}

#[tokio::test]
pub async fn held_app_is_released() {
    let shell = Shell::with_app().await;
    let released = line(&shell.ok(&["app", "release", "shop"]).await);
    assert!(released.starts_with("shop is held no more: it may send "), "{released}");
}

#[tokio::test]
pub async fn identity_keys_are_made_listed_and_deleted() {
    let shell = Shell::with_app().await;
    let made = shell.ok(&["app", "identity-key", "create", "shop", "--name", "backend"]).await;
    assert!(line(&made).starts_with("bwi_") && error_text(&made).contains("shown only now"), "{made:?}");
    let keys = shell.json(&["app", "identity-key", "list", "shop"]).await;
    assert_eq!((&keys["data"][0]["name"], &keys["data"][1]), (&json!("backend"), &json!(null)));
    assert!(!keys.to_string().contains(&line(&made)), "{keys}");
    assert_eq!(keys["data"][0]["form"], "jwt");
    let id = keys["data"][0]["id"].as_str().expect("an id");
    shell.ok(&["app", "identity-key", "delete", "shop", id]).await;
    assert_eq!(shell.json(&["app", "identity-key", "list", "shop"]).await["data"], json!([]));
    let made = shell.json(&["app", "identity-key", "create", "shop", "--name", "n", "--form", "hmac"]).await;
    assert_eq!((&made["form"], &made["algorithm"]), (&json!("hmac"), &json!("HS256")));
    let create = ["app", "identity-key", "create", "shop", "--name", "n", "--public-key", "-"];
    let refused = shell.fed(&create, "no key").await;
    assert!(error_text(&refused).contains("--public-key"), "{refused:?}");
}

#[tokio::test]
async fn refusal_names_argument_and_remedy() {
    let shell = Shell::with_app().await;
    for (args, told) in [
        ("app create Shop --subject mailto:a@example.com", "bellwire: SLUG: must be 1 to 63 lower-case letters"),
        ("app create shop --subject mailto:a@example.com", "bellwire: Another app has this slug."),
        (
            "app create x --subject mailto:a@localhost --origin ftp://b",
            "2 arguments are wrong:\n  --origin \"ftp://b\": ",
        ),
        ("app show shopp", "There is no app \"shopp\". `bellwire app list` shows those that there are."),
        ("app show ..", "There is no app \"..\"."),
        ("key create --app nowhere --scope send --name x", "There is no app \"nowhere\"."),
        ("key create --app shop --scope send --name x --expires-at 2001-01-01", "--expires-at: must be in the future"),
        ("key create --app shop --scope operator --name x", "--scope \"operator\": is only for keys of the server"),
        ("key revoke --operator ak_1", "bellwire: KEY: expected an id of the form ak_"),
        ("vapid subject --app shop push@example.com", "bellwire: CONTACT: must begin with mailto: or https://"),
        ("vapid import --app shop no-such-file", "bellwire: cannot read no-such-file: "),
        ("vapid export --app shop vk_01a1f94e-0000-7000-8000-000000000000", "`bellwire vapid list` shows"),
        ("send --app shop --topic news", "bellwire: no content given: use --title for a notification"),
        ("send --app shop --topic a/b --title x", "bellwire: --topic: must be 1 to 128 letters, digits"),
        (
            "send --app shop --subscription x --title x",
            "bellwire: --subscription \"x\": expected an id of the form sub_",
        ),
        ("send --app shop --all --title x --url javascript:1", "bellwire: --url: "),
        ("send --app shop --all --title x --ttl 60d", "bellwire: --ttl: must be 0 to 2419200 seconds"),
        ("message show --app shop msg_1", "bellwire: MESSAGE: expected an id of the form msg_"),
        ("message list --app shop --limit 300", "bellwire: --limit: must be 1 to 250"),
    ] {
        let error = shell.refused(&args.split(' ').collect::<Vec<_>>()).await;
        assert!(error.contains(told), "{args}: {error}");
    }
    assert_eq!(shell.json(&["app", "list"]).await["data"].as_array().map(Vec::len), Some(1));
    for wrong in [
        "key create --name x --scope send",
        "key create --app shop --operator --name x",
        "key create --app shop --name x",
        "key create --app shop --scope manage --name x",
        "send --app shop --title x",
        "send --app shop --all --user 1 --title x",
        "send --app shop --all --title x --tier urgent",
        "send --app shop --all --title x --payload y",
        "message show --app shop",
    ] {
        let output = shell.run(&wrong.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(output.status.code(), Some(2), "{wrong}: {output:?}");
    }
}

#[tokio::test]
pub async fn vapid_keys_move_from_server_to_server() {
    let (from, to) = (Shell::with_app().await, Shell::with_app().await);
    let pem = String::from_utf8(from.ok(&["vapid", "export", "--app", "shop"]).await.stdout).expect("UTF-8");
    assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----\n"), "not a PEM");
    let public = from.json(&["vapid", "list", "--app", "shop"]).await["data"][0]["public_key"].clone();

    let import = ["vapid", "import", "--app", "shop", "-", "--retired", "--public-key"];
    let output = to.fed(&[&import[..], &[public.as_str().expect("base64")]].concat(), &pem).await;
    assert!(output.status.success(), "{output:?}");
    let raw = line(&from.ok(&["vapid", "export", "--app", "shop", "--format", "raw"]).await);
    let again = to.fed(&["vapid", "import", "--app", "shop", "-"], &raw).await;
    assert_eq!(error_text(&again), "bellwire: The app has this VAPID key already.\n");
    let wrong = to.fed(&["vapid", "import", "--app", "shop", "-"], "AAAA").await;
    assert_eq!(error_text(&wrong), "bellwire: FILE: a private key has 32 octets, but 3 were given\n");

    let rotated = to.json(&["vapid", "rotate", "--app", "shop", "--subject", "https://example.com/"]).await;
    let keys = to.json(&["vapid", "list", "--app", "shop"]).await;
    let states: Vec<_> = keys["data"].as_array().expect("rows").iter().map(|key| &key["state"]).collect();
    assert_eq!(states, ["active", "retired", "retired"]);
    assert_eq!((&keys["data"][0]["id"], &keys["data"][1]["public_key"]), (&rotated["id"], &public));
    let changed = to.json(&["vapid", "subject", "--app", "shop", "mailto:new@example.com"]).await;
    assert_eq!((&changed["id"], &changed["subject"]), (&rotated["id"], &json!("mailto:new@example.com")));
}

#[tokio::test]
async fn json_message_dry_run_sends_nothing() {
    let shell = Shell::with_app().await;
    let send = ["send", "--app", "shop"];
    let dry = shell.json(&[&send[..], &["--user", "42", "--title", "Hi", "--ttl", "2h", "--dry-run"]].concat()).await;
    assert_members(&dry, json!({"dry_run": true, "audience_estimate": 0, "unreachable": 1}));
    assert_eq!(shell.json(&["message", "list", "--app", "shop"]).await["data"], json!([]));

    let whole = json!({"to": {"all": true}, "content": {"title": "T"}, "collapse_key": "k"}).to_string();
    let from_stdin = [&send[..], &["--message", "-", "--idempotency-key", "once"]].concat();
    let (first, second) = (line(&shell.fed(&from_stdin, &whole).await), line(&shell.fed(&from_stdin, &whole).await));
    assert_eq!(first, second);
    let wrong = shell.fed(&from_stdin[..5], r#"{"to": {"all": true}, "content": {"titel": "T"}}"#).await;
    for told in ["/content/titel: is not known here", "/content/title: is missing"] {
        assert!(error_text(&wrong).contains(told), "{told} in {wrong:?}");
    }

    std::fs::write(shell.dir.path().join("octets"), [0, 255]).expect("a file");
    let options = ["--payload-file", "octets", "--no-envelope", "--ttl", "90", "--urgency", "low", "--all"];
    let sent = shell.json(&[&send[..], &options].concat()).await;
    let id = sent["id"].as_str().expect("an id");
    let shown = shell.json(&["message", "show", "--app", "shop", id]).await;
    assert_eq!(shell.json(&["message", "show", id]).await, shown, "a message says whose it is");
    let nowhere = shell.refused(&["message", "cancel", "msg_019aa000-0000-7000-8000-000000000000"]).await;
    assert!(nowhere.contains("there is no message msg_019aa000"), "{nowhere}");
    assert_eq!((&shown["ttl"], &shown["urgency"], &shown["state"]), (&json!(90), &json!("low"), &json!("done")));
    let error = shell.refused(&["message", "pause", "--app", "shop", id]).await;
    assert_eq!(error, "bellwire: Every delivery of this message has ended.\n");
}

#[tokio::test]
async fn wrong_directory_creates_no_new_server() {
    let dir = TempDir::new();
    let output = run(bellwire(dir.path()).args(["app", "list"])).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(error_text(&output).contains("there is no data in"), "{output:?}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("our directory").count(), 0);
}

#[tokio::test]
async fn unknown_variable_is_warned_about() {
    let shell = Shell::new().await;
    let output = run(shell.command(&["app", "list"]).env("BELLWIRE_LISSEN", "1")).await;
    assert!(output.status.success(), "{output:?}");
    assert!(error_text(&output).contains("BELLWIRE_LISSEN is not a setting"), "{output:?}");
}

#[tokio::test]
async fn start_waits_for_an_unresponsive_database() {
    let (shell, database) = (Shell::new().await, TestDatabase::plain().await);
    let there = shared_postgres().socket();
    let sockets = shell.dir.path().join("sockets");
    let url = format!("postgres://postgres@localhost/{}?host={}", database.name, sockets.display());
    let mut command = shell.command(&["migrate"]);
    command.env("DATABASE_URL", url).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut said = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("the database does not answer yet")), "it says that it waits");
    std::os::unix::fs::symlink(there.parent().expect("its directory"), &sockets).expect("a link");
    assert!(child.wait().expect("it ends").success());
}

#[tokio::test]
async fn unknown_topic_is_named_with_similar_ones() {
    let shell = Shell::with_app().await;
    for topic in ["news", "sport"] {
        shell.ok(&["topic", "create", topic, "--app", "shop"]).await;
    }
    let refused = shell.refused(&["send", "--app", "shop", "--topic", "nwes", "--title", "x"]).await;
    assert!(refused.contains("--topic: topic \"nwes\" does not exist in this app"), "{refused}");
    assert!(refused.trim_end().ends_with("similar: news"), "{refused}");
    let refused = shell.refused(&["send", "--app", "shop", "--topic", "weather", "--title", "x"]).await;
    assert!(refused.contains("\"weather\"") && !refused.contains("similar"), "{refused}");
}

#[tokio::test]
async fn wrong_database_names_its_variable_and_host() {
    let shell = Shell::new().await;
    let mut command = shell.command(&["app", "list"]);
    command.env("BELLWIRE_DATABASE_URL", "postgres://user:hush@127.0.0.1:1/db");
    let output = run(&mut command).await;
    let refused = error_text(&output);
    assert_eq!(output.status.code(), Some(1), "{refused}");
    assert!(refused.contains("BELLWIRE_DATABASE_URL at 127.0.0.1:1") && !refused.contains("hush"), "{refused}");
    assert_eq!(refused.matches("Connection refused").count(), 1, "{refused}");
}
