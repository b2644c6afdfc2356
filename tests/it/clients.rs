//! Clients generated from `/openapi.json` work. `make deps` installs the tools for tests, pinned by lock files: in
//! `tests/clients/node_modules` by npm, in `.deps/python` by pip.

mod backends;

use std::path::{Path, PathBuf};

use axum::http::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::repository::root;
use crate::support::{Server, TempDir, TestApp};

/// A directory with the description, the programs that send, and the tools.
async fn workshop(app: &TestApp) -> TempDir {
    let dir = TempDir::new();
    let clients = root().join("tests/clients");
    for file in [
        "send.ts",
        "send.py",
        "examples.py",
        "mcp.js",
        "tsconfig.json",
        "redocly.yaml",
        "package.json",
        "generator.yaml",
    ] {
        std::fs::copy(clients.join(file), dir.path().join(file)).expect("a file of ours");
    }
    std::os::unix::fs::symlink(clients.join("node_modules"), dir.path().join("node_modules")).expect("a link");
    let description = app.call(Method::GET, "/openapi.json", Value::Null).await.ok(200);
    std::fs::write(dir.path().join("openapi.json"), description.to_string()).expect("a file");
    dir
}

/// Runs a program that must succeed and returns its output.
async fn run(dir: &TempDir, program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let python: PathBuf = root().join(".deps/python");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(dir.path()).envs(variables.iter().copied());
    command.env("PYTHONPATH", format!("{}:{}", python.display(), dir.path().join("client").display()));
    command.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
    let output =
        command.output().await.unwrap_or_else(|error| panic!("{program}: {error}; run `make deps NEEDS=--test`"));
    let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}:\n{told}\n{said}");
    told.into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn description_is_valid_and_generated_clients_send() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"topics": ["news"]})).await;
    let server = Server::with(&app, &["--roles", "api"]).await;
    let address = format!("http://{}", server.address);
    let variables = [("ADDRESS", address.as_str()), ("KEY", app.key.as_str())];
    let dir = workshop(&app).await;

    run(&dir, "python3", &["-m", "openapi_spec_validator", "openapi.json"], &[]).await;
    run(&dir, "python3", &["examples.py"], &[]).await;
    let lint = ["lint", "openapi.json", "--max-problems", "50", "--format", "json"];
    let linted: Value = serde_json::from_str(&run(&dir, "node_modules/.bin/redocly", &lint, &[]).await).expect("JSON");
    assert_eq!(linted["totals"], json!({"errors": 0, "warnings": 0, "ignored": 0}), "{}", linted["problems"]);

    run(&dir, "node_modules/.bin/openapi-typescript", &["openapi.json", "-o", "schema.d.ts"], &[]).await;
    run(&dir, "node_modules/.bin/tsc", &["-p", "tsconfig.json"], &[]).await;
    let by_typescript = run(&dir, "node", &["send.js"], &variables).await;

    let generate = [
        "-m",
        "openapi_python_client",
        "generate",
        "--path",
        "openapi.json",
        "--output-path",
        "client",
        "--config",
        "generator.yaml",
    ];
    run(&dir, "python3", &generate, &[]).await;
    let by_python = run(&dir, "python3", &["send.py"], &variables).await;

    for sent in [by_typescript, by_python] {
        let sent: Value = serde_json::from_str(&sent).expect("JSON");
        assert!(sent["id"].as_str().is_some_and(|id| id.starts_with("msg_")) && sent["targeted"] == 1, "{sent}");
    }
    app.run_until_idle().await;
    app.finish().await;
}

/// The official client of the Model Context Protocol, over HTTP and over standard input and output.
#[tokio::test(flavor = "multi_thread")]
async fn tools_work_in_a_foreign_client() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"topics": ["news"]})).await;
    let server = Server::with(&app, &["--roles", "api", "--mcp", "write"]).await;
    let address = format!("http://{}", server.address);
    let key = json!({"name": "assistant", "scopes": ["send", "read"]});
    let key = app.call(Method::POST, "/v1/apps/shop/api-keys", key).await.ok(201)["secret"].clone();
    let key = ("KEY", key.as_str().expect("a secret"));
    let dir = workshop(&app).await;

    let program = ("BELLWIRE", env!("CARGO_BIN_EXE_bellwire"));
    let by_command = |arguments| [key, program, ("BELLWIRE_SERVER", &*address), ("ARGUMENTS", arguments)];
    let over_http = run(&dir, "node", &["mcp.js"], &[key, ("ADDRESS", &*address)]).await;
    let over_stdio = run(&dir, "node", &["mcp.js"], &by_command(r#"["mcp", "--allow-write"]"#)).await;
    for output in [over_http, over_stdio] {
        let seen: Value = serde_json::from_str(&output).expect("JSON");
        assert_eq!(seen["server"]["name"], "bellwire");
        assert!(seen["tools"].as_array().is_some_and(|tools| !tools.contains(&json!("topics_set"))), "{seen}");
        assert!(seen["counted"]["recipients"] == 1 && seen["sent"]["id"].is_string(), "{seen}");
        let denied = seen["denied"]["denied"].as_str().unwrap_or_default();
        assert!(denied.contains("scope `subscribers`"), "{seen}");
    }
    let reading = run(&dir, "node", &["mcp.js"], &by_command(r#"["mcp"]"#)).await;
    let reading: Value = serde_json::from_str(&reading).expect("JSON");
    assert!(reading["sent"]["denied"].as_str().is_some_and(|denied| denied.contains("read-only")), "{reading}");
    let sent = app.get("/v1/apps/shop/messages").await["data"].as_array().expect("rows").len();
    assert_eq!(sent, 2);
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_types_match_the_description() {
    let app = TestApp::start().await;
    let dir = workshop(&app).await;
    run(&dir, "node_modules/.bin/openapi-typescript", &["openapi.json", "-o", "schema.d.ts"], &[]).await;
    let told = std::fs::read_to_string(dir.path().join("schema.d.ts")).expect("just written");
    let committed = root().join("static/admin/src/api/schema.d.ts");
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schema.d.ts");
    std::fs::write(&fresh, &told).expect("cargo's own directory");
    let is_same = std::fs::read_to_string(&committed).is_ok_and(|committed| committed == told);
    assert!(is_same, "the description has changed: cp {} {}", fresh.display(), committed.display());
    app.finish().await;
}

/// The script names the languages that are skipped because the machine lacks their tools.
#[tokio::test(flavor = "multi_thread")]
async fn other_languages_compile_generated_clients() {
    let dir = TempDir::new();
    let script = root().join("tests/clients/languages.py");
    let description = root().join("static/openapi.json");
    let paths = [script, description].map(|path| path.to_str().expect("UTF-8").to_owned());
    let told = run(&dir, "python3", &[&paths[0], &paths[1]], &[]).await;
    for language in ["go", "java", "php", "ruby"] {
        let is_told = |line: &str| line.strip_prefix(language).is_some_and(|rest| rest.starts_with(": "));
        assert!(told.lines().any(is_told), "{language}: {told}");
    }
    eprintln!("{told}");
}

#[test]
fn committed_description_is_the_programs() {
    let printed = std::process::Command::new(env!("CARGO_BIN_EXE_bellwire")).arg("openapi").output().expect("it runs");
    let committed = std::fs::read(root().join("static/openapi.json")).expect("a file");
    assert!(printed.status.success() && printed.stdout == committed, "run `bellwire openapi > static/openapi.json`");
}
