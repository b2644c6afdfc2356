//! `bellwire export`: everything that an app owns, as a file for `bellwire import` on another server.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use axum::http::Method;
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::arguments::AppFlag;
use super::local::{Ask, Local, path};
use super::output::{Output, Stdout};
use super::refusal::ArgumentNames;
use crate::api::exports::record::{END, SUBSCRIPTION};

const NAMES: &ArgumentNames =
    &[("app", "--app"), ("only", "--only"), ("format", "--format"), ("raw", "--raw"), ("after", "--resume")];
/// More octets than any line has.
const LINE_MAX: u64 = 1 << 20;
/// Time between two progress lines.
const SAID_EVERY: Duration = Duration::from_secs(5);

/// Arguments of `bellwire export`.
#[derive(Debug, Args)]
#[group(skip)] // the verb has the same name
pub(super) struct Export {
    #[command(flatten)]
    app: AppFlag,
    /// A new file that only its owner may read; by default standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only this type of line.
    #[arg(long, value_parser = PossibleValuesParser::new(["subscriptions"]))]
    only: Option<String>,
    /// Output format: JSON lines, or a CSV table of subscriptions.
    #[arg(long, default_value = "ndjson", value_parser = PossibleValuesParser::new(["ndjson", "csv"]))]
    format: String,
    /// With `--format csv`: do not put apostrophes before cells that a spreadsheet would evaluate as formulas.
    #[arg(long)]
    raw: bool,
    /// Resume an interrupted export to the same file.
    #[arg(long, requires = "output")]
    resume: bool,
}

impl Export {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        let (mut to, after) = self.open()?;
        if after == After::All {
            out.note("The file is whole already.");
            return Ok(());
        }
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("format", &self.format);
        query.extend_pairs(self.only.iter().map(|only| ("only", only)));
        query.extend_pairs(self.raw.then_some(("raw", "true")));
        if let After::Subscription(id) = &after {
            query.append_pair("after", id);
        }
        let at = format!("{}?{}", path(["apps", &self.app, "export"]), query.finish());
        let (mut octets, mut said) = (0, Instant::now());
        let take = |part: &[u8]| {
            to.write_all(part)?;
            octets += part.len();
            if said.elapsed() >= SAID_EVERY {
                said = Instant::now();
                out.note(&format!("{octets} octets"));
            }
            Ok(())
        };
        local
            .stream(Ask { names: NAMES, ..Ask::new(Method::GET, at) }, take)
            .await
            .context("the export was interrupted: the file is incomplete (with --output, continue it by --resume)")?;
        to.flush()?;
        if let Some(file) = &self.output {
            let people = format!(
                "{octets} octets were written to {}. A reader of the file can send to these browsers.",
                file.display()
            );
            out.say(&json!({"octets": octets, "file": file}), &people)?;
        }
        Ok(())
    }

    /// Opens the output. Returns the writer and the position to resume from.
    fn open(&self) -> anyhow::Result<(Box<dyn Write>, After)> {
        let Some(at) = &self.output else { return Ok((Box::new(Stdout), After::Nothing)) };
        if self.resume {
            if self.format != "ndjson" {
                bail!("--resume: only lines of JSON go on");
            }
            let (file, after) = go_on(at).with_context(|| format!("cannot resume {}", at.display()))?;
            return Ok((Box::new(file), after));
        }
        // There are private keys in it.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(at);
        Ok((Box::new(file.with_context(|| format!("cannot make {}", at.display()))?), After::Nothing))
    }
}

/// Content of the output file before this export.
#[derive(Debug, PartialEq, Eq)]
enum After {
    Nothing,
    Subscription(String),
    All,
}

/// Opens a file behind its last whole line; what follows is cut off. Without subscriptions in it, it begins anew.
fn go_on(at: &Path) -> anyhow::Result<(File, After)> {
    let mut file = OpenOptions::new().read(true).write(true).open(at)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(2 * LINE_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    (&mut file).take(2 * LINE_MAX).read_to_end(&mut tail)?;
    let end = tail.iter().rposition(|octet| *octet == b'\n').map_or(0, |at| at + 1);
    let begin = tail[..end.saturating_sub(1)].iter().rposition(|octet| *octet == b'\n').map_or(0, |at| at + 1);
    let line: Value = serde_json::from_slice(&tail[begin..end]).unwrap_or_default();
    let (after, keep) = match (line["type"].as_str(), line["id"].as_str()) {
        (Some(END), _) => (After::All, from + end as u64),
        (Some(SUBSCRIPTION), Some(id)) => (After::Subscription(id.to_owned()), from + end as u64),
        _ => (After::Nothing, 0),
    };
    file.set_len(keep)?;
    file.seek(SeekFrom::Start(keep))?;
    Ok((file, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_resumes_after_its_last_whole_line() {
        let at = std::env::temp_dir().join(format!("bellwire-export-{}", uuid::Uuid::now_v7()));
        let (a, b) = (r#"{"type":"app"}"#, r#"{"type":"subscription","id":"sub_1"}"#);
        for (there, kept, after) in [
            (format!("{a}\n{b}\n{b}"), format!("{a}\n{b}\n"), After::Subscription("sub_1".into())),
            (format!("{a}\n{b}\n"), format!("{a}\n{b}\n"), After::Subscription("sub_1".into())),
            (format!("{a}\n{{\"type\""), String::new(), After::Nothing),
            (String::new(), String::new(), After::Nothing),
            (format!("{b}\n{{\"type\":\"end\"}}\n"), format!("{b}\n{{\"type\":\"end\"}}\n"), After::All),
        ] {
            std::fs::write(&at, &there).unwrap();
            assert_eq!(go_on(&at).unwrap().1, after, "{there}");
            assert_eq!(std::fs::read_to_string(&at).unwrap(), kept, "{there}");
        }
        std::fs::remove_file(at).unwrap();
    }
}
