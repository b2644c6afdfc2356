//! `bellwire health`: one request to a running server.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::json;
use tokio::time::timeout;

use super::output::Output;
use crate::config::{Config, Flags, reachable};
use bellwire_net::http_server::probe;

/// Response timeout. Container platforms wait 30 s by default.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fails unless the server at the configured address reports that it is ready.
pub(super) async fn ask(flags: &Flags, out: Output) -> anyhow::Result<()> {
    let address = reachable(Config::load(flags)?.listen);
    let answer = timeout(PATIENCE, probe::status(address, "/readyz")).await;
    let status =
        answer.with_context(|| format!("the server at {address} did not answer for {} s", PATIENCE.as_secs()))?;
    let status = status.with_context(|| format!("there is no server at {address}"))?;
    if !status.is_success() {
        bail!("the server at {address} cannot serve: it answers {status}");
    }
    Ok(out.say(&json!({"ready": true}), "The server can serve.")?)
}
