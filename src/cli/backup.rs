use std::fs;
use std::io::IsTerminal as _;
use std::num::NonZeroU64;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use chrono::{DateTime, SecondsFormat, Utc};
use clap::Args;
use serde_json::json;
use zeroize::Zeroizing;

use super::output::Output;
use super::settings::FewSettings;
use crate::backup::{self, BackupTarget, How, Identity, Recipient, Restored};
use bellwire_core::clock::Timestamp;

/// Maximum bytes of a file of recipients or identities.
const KEYS_MAX_OCTETS: u64 = 1 << 20;

/// Arguments of `bellwire backup`.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Backup {
    /// A new file that only its owner may read; by default standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Encrypt the backup to this age recipient, as `age-keygen` prints it; repeatable.
    #[arg(long, value_name = "AGE1…")]
    recipient: Vec<Recipient>,
    /// A file of such recipients, one a line.
    #[arg(long, value_name = "FILE")]
    recipients_file: Option<PathBuf>,
    /// MiB that are written in a second, at most, so that a busy server hardly notices. By default as many as it can.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    max_rate: Option<u64>,
    /// Record that a backup was just made by other means, without making one. Health checks use the record.
    #[arg(long, conflicts_with_all = ["output", "recipient", "recipients_file", "max_rate"])]
    made_elsewhere: bool,
    #[command(flatten)]
    settings: FewSettings,
}

impl Backup {
    pub(super) async fn run(self, out: Output) -> anyhow::Result<()> {
        let config = self.settings.load()?;
        let mut recipients = self.recipient;
        if let Some(path) = &self.recipients_file {
            let text = read(path)?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            for line in lines {
                recipients.push(line.parse().with_context(|| format!("{}", path.display()))?);
            }
            if recipients.is_empty() {
                bail!("{} has no recipients", path.display());
            }
        }
        if self.made_elsewhere {
            let noted = backup::note(&config).await?;
            return Ok(out.say(&json!({"id": noted.id, "began_at": noted.began_at}), "It is noted.")?);
        }
        let is_encrypted = !recipients.is_empty();
        let to = match self.output.clone() {
            Some(file) => BackupTarget::File(file),
            None if std::io::stdout().is_terminal() => bail!("no destination: use --output FILE, or a pipe"),
            None => BackupTarget::Stdout,
        };
        let max_rate = self.max_rate.and_then(|mib| NonZeroU64::new(mib << 20));
        let made = backup::make(&config, backup::BackupOutput { to, recipients, max_rate, is_quiet: out.json }).await?;
        let mut words = format!("A backup of {} octets was made, of {}.", made.octets, time(made.began_at));
        if !is_encrypted {
            words.push_str(" The backup is not encrypted: a reader learns user ids, topics, tags and times.");
        }
        words.push_str(" Without the master key it is worth nothing: keep that, too, and apart from it.");
        match &self.output {
            Some(file) => {
                let answer = json!({"id": made.id, "began_at": made.began_at, "octets": made.octets, "file": file, "encrypted": is_encrypted});
                out.say(&answer, &words)?;
            }
            None => out.note(&words),
        }
        Ok(())
    }
}

/// Arguments of `bellwire restore`.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Restore {
    /// The file that `bellwire backup` made.
    #[arg(required_unless_present = "in_place")]
    file: Option<PathBuf>,
    /// The identity that it is encrypted to, in a file as `age-keygen` writes it.
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Resume pending deliveries. Use it only if nothing was sent since the backup, as in a planned move.
    #[arg(long)]
    resume_pending: bool,
    /// Replace what the database holds of Bellwire's.
    #[arg(long, conflicts_with = "in_place")]
    replace: bool,
    /// Restore nothing: the database was brought back by other means (pgBackRest, pg_restore, a snapshot of its disk). Hold back what
    /// was pending.
    #[arg(long, conflicts_with_all = ["file", "identity"])]
    in_place: bool,
    /// Time that the restored database represents, such as 2030-01-31T08:00:00Z. Default: the last heartbeat of a worker, or the start of
    /// the backup that `pg_restore` restored.
    #[arg(long, value_name = "TIME", requires = "in_place")]
    since: Option<DateTime<Utc>>,
    #[command(flatten)]
    settings: FewSettings,
}

impl Restore {
    pub(super) async fn run(self, out: Output) -> anyhow::Result<()> {
        let config = self.settings.load()?;
        let identities = match &self.identity {
            Some(path) => Identity::parse_file(&read(path)?).with_context(|| format!("{}", path.display()))?,
            None => Vec::new(),
        };
        let restored = match self.file {
            Some(file) => {
                let how = How { resume_pending: self.resume_pending, replace: self.replace, is_quiet: out.json };
                backup::restore(&config, file, identities, how).await?
            }
            None => backup::settle_in_place(&config, self.since, self.resume_pending).await?,
        };
        Ok(out.say(&serde_json::to_value(&restored)?, &told(&restored))?)
    }
}

fn read(path: &PathBuf) -> anyhow::Result<Zeroizing<String>> {
    let octets = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
    if octets > KEYS_MAX_OCTETS {
        bail!("{} is too large to be a file of keys", path.display());
    }
    Ok(Zeroizing::new(fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?))
}

fn time(at: Timestamp) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Returns the text for the operator: the state after the restore and the next steps.
fn told(restored: &Restored) -> String {
    let (since, pending) = (time(restored.backed_up_at), restored.pending);
    let found = format!(
        "{} campaigns, {} messages with at least {} deliveries, {} requests to webhooks",
        pending.campaigns, pending.messages, pending.deliveries, pending.webhook_requests
    );
    let next = match restored.held_back {
        false => format!("Pending deliveries continue when a server starts: {found}."),
        true => format!(
            "Pending deliveries are held back, because they may have been sent after that time: {found}.\n\
             List them with `bellwire held list`; then use `bellwire held resume` or `bellwire held cancel`. Send the requests to \
             webhooks again with `bellwire webhook replay WEBHOOK --app APP --since {since}`; `bellwire webhook list --app APP` shows \
             the webhooks."
        ),
    };
    format!(
        "The database is in its state of {since}. Later subscriptions, messages and receipts are missing. Subscriptions, users and \
         teammates removed later exist again, and keys revoked later are valid again. All teammates have to sign in \
         again.\n{next}"
    )
}
