//! Alternative libraries against the same simulated gateway, with the same payload and TLS: npm `web-push`, PyPI `pywebpush`, and the
//! `web-push` crate, which contains no HTTP client. None of them stores anything; Bellwire does. `scripts/bench peers`
//!
//! Needs `npm` and `python3` with `venv`; they install what the lock files pin into the target directory. Each library
//! runs with the number of processes and of requests at a time that a short search found to be the fastest.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bellwire_webpush::keys::SigningKey;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::sealing;
use crate::support::client::Client;
use crate::support::cpu::per;
use crate::support::harness::{Harness, SAMPLE};
use crate::support::process::{Simulator, TempDir};
use crate::support::table::number;
use crate::support::{seed, setting};

const SUBJECT: &str = "mailto:push@example.com";
const SUBSCRIPTIONS: u32 = 5_000;
/// Requests at a time that the search tries, with one process and with one for each core.
const CONCURRENCY: [u32; 4] = [4, 16, 64, 256];
/// Messages of one step of the search.
const TRIAL: u32 = 1_500;

/// Cost of sending one message.
#[derive(Clone, Copy)]
struct Cost {
    cpu_us: f64,
    /// Messages per second; none where the contender does not send.
    rate: Option<f64>,
}

pub async fn run() {
    let payload = "x".repeat(300);
    let bellwire = bellwire(&payload).await;
    println!("\nA payload of {} octets over TLS, best of what each can\n", payload.len());
    println!("{:<52} {:>10} {:>8} {:>10} {:>7}", "", "CPU-µs", "of ours", "messages/s", "of ours");
    show("Bellwire, a durable campaign (Postgres's CPU included)", bellwire, bellwire);
    let dir = TempDir::new();
    let simulator = Simulator::start(&dir, SAMPLE, &["--gateway", "fcm=localhost", "--explicit-ports"]);
    let task = write_task(&simulator, &dir, &payload).await;
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers");
    for (name, contender) in [
        ("npm web-push", node(&home)),
        ("PyPI pywebpush", python(&home, "threads")),
        ("PyPI pywebpush, asyncio", python(&home, "async")),
    ] {
        match contender {
            Ok(contender) => {
                let (how, cost) = contender.at_its_best(&task, &simulator.ca);
                show(&format!("{name}, {how}"), cost, bellwire);
            }
            Err(why) => println!("{name}: left out, {why}"),
        }
    }
    let web_push_crate = Cost { cpu_us: sealing::one_message_by_web_push(&payload), rate: None };
    show("web-push crate, without any HTTP, on one core", web_push_crate, bellwire);
}

fn show(name: &str, cost: Cost, ours: Cost) {
    let cpu = format!("{:>10} {:>7.1}x", number(cost.cpu_us), cost.cpu_us / ours.cpu_us);
    let rate = cost.rate.zip(ours.rate).map(|(rate, ours)| format!("{:>10} {:>6.2}x", number(rate), rate / ours));
    println!("{name:<52} {cpu} {}", rate.unwrap_or_default());
}

async fn bellwire(payload: &str) -> Cost {
    let n = setting("N", 100_000);
    let harness = Harness::open().await;
    let app = harness.app("peers").await;
    seed::subscriptions(&harness.pool, &harness.vault, app, n).await;
    let body = json!({"to": {"all": true}, "payload": payload});
    harness.campaign(app, n, &body).await; // connections open, caches warm
    let campaign = harness.campaign(app, n, &body).await;
    let cpu = campaign.usage.server + campaign.usage.postgres;
    Cost { cpu_us: per(cpu, n), rate: Some(campaign.rate()) }
}

/// Subscriptions, key and payload, in a file that every contender reads.
async fn write_task(simulator: &Simulator, dir: &TempDir, payload: &str) -> PathBuf {
    let key = SigningKey::generate();
    let vapid = json!({"subject": SUBJECT, "public": key.public_base64(), "private": key.expose_raw().as_str()});
    let host = &simulator.hosts[0].host;
    let ask = json!({"host": host, "count": SUBSCRIPTIONS, "vapid": key.public_base64()});
    let minted = Client::new(&simulator.control).post("/mint", &ask).await;
    let subscription = |minted: &Value| json!({"endpoint": minted["endpoint"], "keys": {"p256dh": minted["p256dh"], "auth": minted["auth"]}});
    let subscriptions: Vec<Value> = minted.as_array().expect("subscriptions").iter().map(subscription).collect();
    let task = json!({"subscriptions": subscriptions, "vapid": vapid, "payload": payload, "ca": simulator.ca});
    let path = dir.path().join("task.json");
    std::fs::write(&path, task.to_string()).expect("a file in our own directory");
    path
}

/// A program that takes a task, a concurrency and a count, and returns what it used.
struct Contender {
    program: PathBuf,
    arguments: Vec<PathBuf>,
}

/// Report of a contender.
#[derive(Deserialize)]
struct Used {
    cpu_s: f64,
    took_s: f64,
}

impl Contender {
    /// Searches for the fastest way to run it, and measures that. Answers the way in words, and the cost.
    fn at_its_best(&self, task: &Path, ca: &Path) -> (String, Cost) {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let ways = [1, cores].into_iter().flat_map(|processes| CONCURRENCY.map(|requests| (processes, requests)));
        let tried = ways.map(|(processes, requests)| {
            (self.run(task, ca, processes, requests, TRIAL).rate.unwrap_or_default(), processes, requests)
        });
        let fastest = tried.max_by(|(one, ..), (other, ..)| one.total_cmp(other));
        let (_, processes, requests) = fastest.expect("there are ways");
        let cost = self.run(task, ca, processes, requests, setting("MESSAGES", 10_000));
        (format!("{processes} × {requests} at a time"), cost)
    }

    /// Sends `count` messages by so many processes with so many requests each.
    fn run(&self, task: &Path, ca: &Path, processes: u32, requests: u32, count: u32) -> Cost {
        let each = count / processes;
        let start = |_| {
            let mut command = Command::new(&self.program);
            command.args(&self.arguments).arg(task).arg(requests.to_string()).arg(each.to_string());
            // Where the system's own settings would have the libraries look elsewhere.
            command.env("NODE_EXTRA_CA_CERTS", ca).env("REQUESTS_CA_BUNDLE", ca).env("NO_PROXY", "localhost");
            command.stdout(Stdio::piped());
            command.spawn().expect("it was installed")
        };
        let children: Vec<_> = (0..processes).map(start).collect();
        let mut sum = Used { cpu_s: 0.0, took_s: 0.0 };
        for child in children {
            let output = child.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{} failed", self.program.display());
            let used: Used = serde_json::from_slice(&output.stdout).expect("it says what it used");
            sum = Used { cpu_s: sum.cpu_s + used.cpu_s, took_s: sum.took_s.max(used.took_s) };
        }
        let sent = f64::from(each * processes);
        Cost { cpu_us: sum.cpu_s * 1e6 / sent, rate: Some(sent / sum.took_s) }
    }
}

/// Installs npm's `web-push`.
fn node(home: &Path) -> Result<Contender, String> {
    let files = ["package.json", "package-lock.json", ".npmrc", "node.mjs"];
    let script = copy(home, &files)?;
    done(Command::new("npm").args(["ci", "--silent"]).current_dir(home))?;
    Ok(Contender { program: "node".into(), arguments: vec![script] })
}

/// Installs PyPI's `pywebpush`.
fn python(home: &Path, mode: &str) -> Result<Contender, String> {
    let script = copy(home, &["requirements.txt", "pushes.py"])?;
    let venv = home.join("venv");
    if !venv.join("bin/python").exists() {
        done(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    let mut pip = Command::new(venv.join("bin/python"));
    done(pip.args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(home.join("requirements.txt")))?;
    Ok(Contender { program: venv.join("bin/python"), arguments: vec![script, mode.into()] })
}

/// Copies files of `benches/peers`; answers where the last one is.
fn copy(home: &Path, files: &[&str]) -> Result<PathBuf, String> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
    std::fs::create_dir_all(home).map_err(|error| error.to_string())?;
    for file in files {
        std::fs::copy(from.join(file), home.join(file)).map_err(|error| format!("{file}: {error}"))?;
    }
    Ok(home.join(files.last().expect("files are named")))
}

fn done(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}
