//! `bellwire health`: one request to a running server.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::json;
use tokio::time::timeout;

use super::output::Output;
use crate::config::{Config, Flags, reachable};
use crate::server::announced;
use bellwire_net::http_server::probe;

/// Response timeout. Container platforms wait 30 s by default.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fails unless a server reports that it is ready: the server at the configured address, or else the server that runs on the data
/// directory.
pub(super) async fn ask(flags: &Flags, out: Output) -> anyhow::Result<()> {
    let config = Config::load(flags)?;
    let (configured, running) = (reachable(config.listen), announced::address(&config.data_dir).map(reachable));
    let first = Some(configured).filter(|address| address.port() != 0).or(running);
    let first = first.with_context(|| {
        format!("no server runs on {}, and the port of `listen` is 0: give --listen", config.data_dir.display())
    })?;
    match (ready(first).await, running) {
        (Err(_), Some(running)) if running != first => ready(running).await?,
        (answer, _) => answer?,
    }
    Ok(out.say(&json!({"ready": true}), "The server can serve.")?)
}

async fn ready(address: SocketAddr) -> anyhow::Result<()> {
    let answer = timeout(PATIENCE, probe::status(address, "/readyz")).await;
    let status =
        answer.with_context(|| format!("the server at {address} did not answer for {} s", PATIENCE.as_secs()))?;
    let status = status.with_context(|| format!("there is no server at {address}"))?;
    if !status.is_success() {
        bail!("the server at {address} cannot serve: it answers {status}");
    }
    Ok(())
}
