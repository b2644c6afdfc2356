//! Programs of the examples: their files with the packages of a server, and backends that run.

use std::path::PathBuf;
use std::process::Stdio;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::site::Site;
use crate::support::TempDir;
use crate::support::app::PATIENCE;
use crate::support::repository::root;

/// Addresses of the server in the examples, and in the recipes.
const SERVERS: [&str; 2] = ["http://localhost:8787", "https://push.example.com"];

/// Copies an example for that server, with its packages and the SDK's, but without what was built in it.
pub async fn copy(example: &str, site: &Site) -> TempDir {
    let to = TempDir::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        std::fs::create_dir_all(to.path().join(&directory)).expect("a directory of ours");
        for entry in std::fs::read_dir(root().join("examples").join(example).join(&directory)).expect("an example") {
            let entry = entry.expect("an entry");
            let path = directory.join(entry.file_name());
            match entry.file_name().to_str().expect("UTF-8") {
                "node_modules" | "dist" | "__pycache__" | ".angular" | ".next" | ".nuxt" | ".output" => {}
                _ if entry.path().is_dir() => directories.push(path),
                _ => {
                    let text = std::fs::read_to_string(entry.path()).expect("a text");
                    let text = SERVERS.iter().fold(text, |text, server| text.replace(server, &site.origin));
                    std::fs::write(to.path().join(path), text).expect("a file of ours");
                }
            }
        }
    }
    if to.path().join("package-lock.json").exists() {
        install(example, &to, site).await;
    }
    to
}

/// Installs what the lock file names, from the example itself, and our packages from the server. Bundlers refuse links that lead elsewhere.
async fn install(example: &str, to: &TempDir, site: &Site) {
    let installed = root().join("examples").join(example).join("node_modules");
    let from = installed.to_str().expect("UTF-8");
    // By hard links, or by copies where the directories are on different disks.
    sh("cp -al \"$1\" . 2>/dev/null || cp -a \"$1\" . && rm -rf node_modules/@bellwire", from, to).await;
    for (path, name) in [("/sdk/bellwire-web.tgz", "web"), ("/clients/bellwire-server.tgz", "server")] {
        download(path, "package.tgz", to, site).await;
        let package = format!("node_modules/@bellwire/{name}");
        sh("mkdir -p \"$1\" && tar -xzf package.tgz -C \"$1\" --strip-components=1", &package, to).await;
    }
}

/// Saves a file of the server.
pub async fn download(path: &str, name: &str, to: &TempDir, site: &Site) {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let uri = format!("{}{path}", site.origin).parse().expect("a URL");
    let file = client.get(uri).await.expect("it answers").into_body().collect().await.expect("a body");
    std::fs::write(to.path().join(name), file.to_bytes()).expect("a file of ours");
}

pub async fn sh(script: &str, argument: &str, at: &TempDir) {
    run("/bin/sh", &["-c", script, "sh", argument], at).await;
}

/// Runs what is to be run once, with a tool from the repository.
pub async fn run(tool: &str, arguments: &[&str], at: &TempDir) {
    let mut command = Command::new(root().join(tool));
    let output = command.args(arguments).current_dir(at.path()).output().await;
    let output = output.unwrap_or_else(|error| panic!("{tool}: {error}; `make test` installs it"));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{tool} {arguments:?}:\n{}", String::from_utf8_lossy(&said));
}

/// A backend that runs. Dropping it kills it.
pub struct Backend {
    _process: Child,
    said: mpsc::UnboundedReceiver<String>,
    pub origin: String,
}

impl Backend {
    /// Starts the program and waits for the address after these words.
    pub async fn start(mut command: Command, listening: &str) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("it runs");
        let (tell, said) = mpsc::unbounded_channel();
        read(process.stdout.take().expect("piped"), tell.clone());
        read(process.stderr.take().expect("piped"), tell);
        let mut backend = Self { _process: process, said, origin: String::new() };
        let line = backend.until_said(listening).await;
        let (_, origin) = line.split_once(listening).expect("it contains that");
        backend.origin = origin.trim().to_owned();
        backend
    }

    /// The next line with these words.
    pub async fn until_said(&mut self, words: &str) -> String {
        let mut before = String::new();
        let found = timeout(PATIENCE, async {
            while let Some(line) = self.said.recv().await {
                if line.contains(words) {
                    return Some(line);
                }
                before += &(line + "\n");
            }
            None
        });
        found.await.ok().flatten().unwrap_or_else(|| panic!("it never said {words:?}, but\n{before}"))
    }

    /// The status of a POST.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut request = axum::http::Request::post(format!("{}{path}", self.origin));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_vec())).expect("a request");
        client.request(request).await.expect("it answers").status().as_u16()
    }
}

fn read(from: impl AsyncRead + Unpin + Send + 'static, tell: mpsc::UnboundedSender<String>) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let _ = tell.send(line); // the receiver is gone once the test is over
        }
    });
}
