//! Command `bellwire simulate-gateway`: the simulator as a separate process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use super::{HostSpec, Options, Rule, Simulator, StartError, Verify};
use bellwire_core::lane::Gateway;

impl FromStr for HostSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (gateway, host) = text.split_once('=').ok_or("write it as GATEWAY=HOST")?;
        let gateway = Gateway::from_name(gateway).ok_or_else(|| format!("the gateways are {}", Gateway::names()))?;
        match host.is_empty() || !host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-')) {
            true => Err("the host is no DNS name".to_owned()),
            false => Ok(Self::new(gateway, host)),
        }
    }
}

/// Arguments of `bellwire simulate-gateway`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[arg(long = "gateway", value_name = "GATEWAY=HOST", help = format!(
        "A gateway to simulate, as GATEWAY=HOST (gateways: {}); repeatable. Default: one of each, under fcm.bellwire.test and so on",
        Gateway::names()
    ))]
    gateways: Vec<HostSpec>,
    /// Address of the HTTP interface
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    control: SocketAddr,
    /// Write the certificate authority to this file
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Seed of keys and endpoints: the same seed gives the same ones after a restart
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Decrypt and record the requests of one endpoint in this number
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
    /// Concurrent streams that each HTTP/2 connection allows
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    streams: u32,
    /// Write the ports into endpoints, for clients that cannot map a host to an address
    #[arg(long)]
    explicit_ports: bool,
    /// Offer HTTP/1.1 only
    #[arg(long)]
    http1_only: bool,
    /// Answer each request after this number of milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    latency_ms: u64,
}

/// Runs a simulator until `shutdown`. Once it serves, it writes one line of JSON to `out` with the addresses of its
/// HTTP interface and hosts.
pub async fn run(
    args: Args, shutdown: impl Future<Output = ()>, mut out: impl std::io::Write,
) -> Result<(), StartError> {
    let mut options = Options {
        seed: args.seed,
        verify: Verify::Sample(args.sample),
        streams: args.streams,
        control: args.control,
        ..Options::default()
    };
    if !args.gateways.is_empty() {
        options.hosts = args.gateways;
    }
    for host in &mut options.hosts {
        host.explicit_port = args.explicit_ports;
        host.http1_only = args.http1_only;
    }
    let simulator = Simulator::start(options).await?;
    if args.latency_ms > 0 {
        let latency = Rule { delay_ms: args.latency_ms, ..Rule::default() };
        simulator.add_rule(latency).expect("a rule that only delays is valid");
    }
    if let Some(file) = args.ca_file {
        tokio::fs::write(file, simulator.ca_pem()).await?;
    }
    let started = serde_json::json!({ "control": simulator.control(), "hosts": simulator.hosts() });
    writeln!(out, "{started}")?;
    out.flush()?;
    shutdown.await;
    simulator.stop().await;
    Ok(())
}
