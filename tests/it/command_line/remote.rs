//! Verbs that go to a server elsewhere (`--server`): those of the other files once more, and what a server or the way to it refuses.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use super::shell::{IS_REMOTE, Remote, Shell};
use super::{json, run};
use crate::support::https::Authority;

/// Runs tests of verbs at a server over HTTP.
macro_rules! over_http {
    ($($module:ident::$name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                IS_REMOTE.set(true);
                super::$module::$name();
            }
        )+
    };
}

over_http! {
    audience::topics_are_made_listed_changed_and_deleted,
    audience::segments_are_managed_at_the_shell,
    audience::caps_are_set_shown_and_cleared,
    audience::templates_are_managed_at_the_shell,
    audience::pruned_subscriptions_are_counted_and_restored,
    campaigns::campaign_watch_prints_each_change,
    webhooks::webhooks_are_managed_at_the_shell,
    verbs::dead_letters_are_listed_replayed_discarded_and_exported,
    verbs::user_data_is_exported_and_erased,
    verbs::a_sunset_rule_is_given_at_the_shell,
    verbs::metrics_are_a_table_at_the_shell,
    verbs::an_app_is_made_listed_shown_and_changed,
    verbs::app_deletion_needs_its_name_twice,
    verbs::held_app_is_released,
    verbs::identity_keys_are_made_listed_and_deleted,
    verbs::vapid_keys_move_from_server_to_server,
    transfer::app_transfer_is_complete_and_repeatable,
    transfer::subscriber_list_does_not_change_an_app,
    transfer::faulty_file_exits_with_1_and_report,
    transfer::export_resumes_in_its_file,
    transfer::foreign_file_with_known_types_is_imported,
    transfer::files_not_understood_fail_and_dry_runs_report,
}

/// A shell with a server that has the app `shop`.
async fn served() -> (Shell, Remote) {
    let shell = Shell::with_app().await;
    let remote = shell.serve(&[]).await;
    (shell, remote)
}

/// The error of a command that fails without printing the key.
async fn failure(mut command: Command, key: &str) -> String {
    let output = run(&mut command).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!error.contains(key) && output.stdout.is_empty(), "{output:?}");
    error
}

#[tokio::test]
async fn wrong_key_names_server_and_remedy() {
    let (shell, mut remote) = served().await;
    remote.key = format!("bw_{}", "A".repeat(43));
    let error = failure(remote.command(shell.dir.path(), &["app", "list"]), &remote.key).await;
    let place = format!("({} answered 401 Unauthorized. Set BELLWIRE_KEY to a valid API key", remote.url);
    assert!(error.contains(&place), "{error}");
    let without = run(remote.command(shell.dir.path(), &["app", "list"]).env_remove("BELLWIRE_KEY")).await;
    assert!(String::from_utf8_lossy(&without.stderr).contains("BELLWIRE_KEY is not set"), "{without:?}");
}

#[tokio::test]
async fn missing_scope_is_named() {
    let (shell, mut remote) = served().await;
    let key = ["key", "create", "--app", "shop", "--scope", "read", "--name", "reader"];
    remote.key =
        json(&shell.ok(&[&key[..], &["--json"]].concat()).await)["secret"].as_str().expect("a secret").to_owned();
    let send = ["send", "--app", "shop", "--all", "--title", "Hello"];
    let error = failure(remote.command(shell.dir.path(), &send), &remote.key).await;
    assert!(error.contains("scope `send`") && error.contains("answered 403 Forbidden"), "{error}");
    let listed = run(&mut remote.command(shell.dir.path(), &["topic", "list", "--app", "shop"])).await;
    assert!(listed.status.success(), "what it may do it does: {listed:?}");
}

#[tokio::test]
async fn wrong_address_is_told_from_a_refusal() {
    let (shell, mut remote) = served().await;
    let address = remote.url.clone();
    remote.url = format!("{address}/nowhere");
    let error = failure(remote.command(shell.dir.path(), &["app", "list"]), &remote.key).await;
    assert!(error.contains(&format!("({address}/nowhere answered 404")), "{error}");
    remote.url = format!("{address}/docs/problems/not_found?");
    let error = failure(remote.command(shell.dir.path(), &["app", "list"]), &remote.key).await;
    assert!(error.contains("must be an address such as https://"), "{error}");
    remote.url = "http://127.0.0.1:1".to_owned();
    let error = failure(remote.command(shell.dir.path(), &["app", "list"]), &remote.key).await;
    assert!(error.contains("cannot reach http://127.0.0.1:1: "), "{error}");
}

#[tokio::test]
async fn redirects_and_pages_are_refused() {
    let (shell, mut remote) = served().await;
    for (head, told) in [
        ("302 Found\r\nLocation: https://elsewhere.example.com/", "redirects to https://elsewhere.example.com/"),
        ("200 OK\r\nContent-Type: text/html", "check the address"),
        ("502 Bad Gateway\r\nContent-Type: text/html", "answered 502 Bad Gateway"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        remote.url = format!("http://{}", listener.local_addr().expect("an address"));
        let answer = format!("HTTP/1.1 {head}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a caller");
            let mut request = [0; 4096];
            let n = stream.read(&mut request).expect("a request");
            stream.write_all(answer.as_bytes()).expect("it reads");
            String::from_utf8_lossy(&request[..n]).into_owned()
        });
        let error = failure(remote.command(shell.dir.path(), &["app", "list"]), &remote.key).await;
        assert!(error.contains(told), "{error}");
        assert!(answering.join().expect("no panic").contains("GET /v1/apps?limit=250"), "one request");
    }
}

#[tokio::test]
async fn certificate_is_verified() {
    let (shell, authority) = (Shell::with_app().await, Authority::new());
    let [chain, key, ca] = ["chain.pem", "key.pem", "ca.pem"].map(|name| shell.dir.path().join(name));
    authority.pair().write(&chain, &key);
    std::fs::write(&ca, &authority.pem).expect("a file");
    let [chain, key] = [&chain, &key].map(|path| path.to_str().expect("UTF-8"));
    let mut remote = shell.serve(&["--tls-cert", chain, "--tls-key", key]).await;
    remote.url = remote.url.replace("http://", "https://");
    let list = || remote.command(shell.dir.path(), &["app", "list", "--json"]);
    let error = failure(list(), &remote.key).await;
    assert!(error.contains("cannot reach https://127.0.0.1") && error.contains("certificate"), "{error}");
    assert_eq!(json(&run(list().env("SSL_CERT_FILE", &ca)).await)["data"][0]["slug"], "shop");
}

#[tokio::test]
async fn data_commands_run_only_on_the_server() {
    let shell = Shell::new().await;
    for args in [
        &["backup", "--output", "x"][..],
        &["migrate"],
        &["keys", "list"],
        &["held", "list"],
        &["doctor"],
        &["admin", "list"],
    ] {
        let refused = shell.refused(&[args, &["--server", "https://push.example.com"]].concat()).await;
        assert!(refused.contains("runs only on the server itself"), "{refused}");
    }
    let (dir, remote) = (shell.dir.path(), shell.serve(&[]).await);
    let error = failure(remote.command(dir, &["key", "create", "--operator", "--name", "me"]), &remote.key).await;
    assert!(error.contains("--operator: keys of operators are managed only on the server"), "{error}");
    let both = shell.refused(&["app", "list", "--data-dir", "x", "--server", "https://push.example.com"]).await;
    assert!(both.contains("--data-dir names data on this machine, and --server another one"), "{both}");
}
