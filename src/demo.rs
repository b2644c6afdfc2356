//! `bellwire demo`: a server, simulated push services with faults, ten thousand browsers, one campaign with single messages
//! beside it, and a comparison of all results.
//!
//! ```text
//! setup (simulator here, server as a process) ─ subscribers (registers) ─ campaign (sends; faults) ─ received ─ account ─
//! table
//! ```
//!
//! The demo uses only the public REST API, except for the operator's first key. It compares the server's result of each
//! delivery with the requests that the simulated push services accepted and could decrypt.

mod account;
mod campaign;
mod client;
mod faults;
mod furnish;
mod history;
mod progress;
mod received;
mod setup;
mod site;
mod subscribers;
mod table;

use std::io::Write;

use anyhow::{Context as _, bail};

use account::Account;
use campaign::Record;
use progress::Progress;
use setup::Setup;
use site::{APP, TOPIC};

/// Number of messages to single people.
const SINGLES: u32 = 200;

/// Arguments of `bellwire demo`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Number of browsers to register
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=50_000))]
    subscriptions: u32,
    /// Fixes the browsers' keys, and which of them meet a fault
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Leave server and simulator up until Ctrl-C, and the data afterwards
    #[arg(long)]
    keep: bool,
}

/// Runs the demo and writes its results to `out`, as JSON or as a table. Returns whether the counts match. Ends early, with
/// everything stopped, when `interrupted` is ready.
pub(crate) async fn run(
    args: &Args, json: bool, interrupted: impl Future<Output = ()>, mut out: impl Write,
) -> anyhow::Result<bool> {
    let progress = Progress::new();
    progress.say("starting Postgres, the server and the simulated push services");
    tokio::pin!(interrupted);
    let starting = Setup::start(args.seed, args.subscriptions, SINGLES, args.keep, &progress, &mut interrupted);
    let mut setup = starting.await?;
    progress.say(&format!("server at {}, data in {}", setup.api.base(), setup.data_dir().display()));
    let performed = tokio::select! {
        performed = perform(args, &setup, &progress) => {
            performed.with_context(|| format!("the end of the server's log: {}", setup.last_words()))
        }
        () = &mut interrupted => Err(anyhow::anyhow!("interrupted")),
    };
    progress.finish();
    let shown = match performed {
        Ok((account, campaign)) => show(&mut out, &account, json).map(|()| (account.adds_up, campaign)),
        Err(error) => Err(error),
    };
    let shown = match shown {
        Ok((adds_up, campaign)) if args.keep => {
            let kept = stay(&mut setup, &campaign, json, &progress, interrupted, &mut out).await;
            kept.map(|()| adds_up)
        }
        shown => shown.map(|(adds_up, _)| adds_up),
    };
    let lowered = setup.stop().await;
    shown.and_then(|adds_up| lowered.map(|()| adds_up))
}

/// Registers browsers, sends, and compares the results. Also returns the campaign's id.
async fn perform(args: &Args, setup: &Setup, progress: &Progress) -> anyhow::Result<(Account, String)> {
    let began = progress.elapsed();
    let browsers = subscribers::register(setup, args.subscriptions, progress).await?;
    let registering = progress.elapsed() - began;
    let record: Record = campaign::run(setup, &browsers, SINGLES, progress).await?;
    progress.say("every delivery has ended; comparing with what the gateways got");
    let campaign = record.campaign.clone();
    let received = received::read(setup, &browsers, &record)?;
    Ok((account::settle(setup, &browsers, registering, record, received).await?, campaign))
}

fn show(out: &mut impl Write, account: &Account, json: bool) -> anyhow::Result<()> {
    match json {
        true => writeln!(out, "{}", serde_json::to_string(account)?)?,
        false => writeln!(out, "{account}")?,
    }
    Ok(out.flush()?)
}

/// Keeps everything running until `interrupted`, with push services without faults.
async fn stay(
    setup: &mut Setup, campaign: &str, json: bool, progress: &Progress,
    mut interrupted: impl Future<Output = ()> + Unpin, out: &mut impl Write,
) -> anyhow::Result<()> {
    calm(setup);
    let link = tokio::select! {
        link = furnish::furnish(setup, progress) => link?,
        () = &mut interrupted => return Ok(()),
    };
    calm(setup);
    let text = directions(setup, campaign, &link);
    match json {
        true => writeln!(std::io::stderr(), "{text}")?, // standard output is a program's
        false => writeln!(out, "{text}")?,
    }
    out.flush()?;
    tokio::select! {
        () = interrupted => Ok(()),
        ended = setup.server_ended() => bail!(ended),
    }
}

/// Ends the faults of the push services.
fn calm(setup: &Setup) {
    for rule in setup.simulator.report().rules {
        setup.simulator.remove_rule(rule.id);
    }
}

/// Suggestions for the user: pages and commands to try.
fn directions(setup: &Setup, campaign: &str, link: &str) -> String {
    let (base, key, operator, topic) = (setup.api.base(), &setup.key, &setup.operator, TOPIC);
    let (data, log) = (setup.data_dir().display(), setup.log());
    let (log, simulator) = (log.display(), setup.simulator.control());
    format!(
        "The server stays up until Ctrl-C; its gateways have no faults now.

  server         {base}
  operator key   {operator}
  app            {APP}, with the key {key}
  data           {data} (stays; `rm -r` it when you are done)
  log            {log}
  simulator      http://{simulator}

The admin page, by a link that works once and asks for a new password:

  {base}{link}

Try:

  curl -s {base}/v1/apps/{APP}/messages/{campaign} -H 'Authorization: Bearer {key}'
  curl -s {base}/v1/apps/{APP}/messages -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\
    -d '{{\"to\": {{\"topic\": \"{topic}\"}}, \"content\": {{\"title\": \"Hello\", \"url\": \"https://shop.example/\"}}}}'
  curl -s {base}/v1/gateways -H 'Authorization: Bearer {operator}'
  curl -s http://{simulator}/report
  curl -s http://{simulator}/rules -H 'Content-Type: application/json' \\
    -d '{{\"gateway\": \"fcm\", \"share\": [0, 0.1], \"for_ms\": 10000, \"action\": {{\"unavailable\": {{}}}}}}'
"
    )
}
