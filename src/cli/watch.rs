//! `bellwire watch`: shows live events. On a terminal it redraws a page with each event; otherwise it prints lines.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::{ApiRequest, Client};
use super::help::MORE_SETTINGS;
use super::output::{Output, Stdout, table, text, time};
use super::refusal::CommandError;
use super::serve::told_to_stop;
use super::verb::{Call, Verb, option, verb, word};
use bellwire_core::event_type::EventType;

const LAST_EVENT_ID: &str = "Last-Event-ID";
/// Delay before reconnecting to a stream that ended.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// Maximum events on a page, the newest last.
const RECENT: usize = 20;
/// Time for which a page shows an app's rate. A second later there is a new value, or nothing was sent.
const RATE_SHOWN: Duration = Duration::from_secs(3);
const BAR: usize = 30;
/// Clears a terminal and moves to its upper left corner (ECMA-48: ED, CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

pub(super) fn watch() -> Verb {
    let kinds = "Only events of these kinds, separated by commas, such as `message.progress,lane`";
    let about = "Follow events live: campaigns, push services, alerts, outcomes";
    verb("watch", "GET [/apps/{app}]/events/stream", about)
        .takes([
            option("--app <APP>", "{app}", "Only what concerns this app, by its short name or id").is(word()),
            option("--kinds <KINDS>", "?kinds", kinds).is(word()),
            option("--after <AFTER>", LAST_EVENT_ID, "From behind the event of this id, at most a day ago").is(word()),
        ])
        .with(|command| {
            let how = "Runs until Ctrl-C. A page on a terminal, a line for each event elsewhere, and a line of JSON for each with `--json`.";
            command.long_about(format!("{about}.\n\n{how}")).after_help(MORE_SETTINGS)
        })
        .run(|call| Box::pin(run(call)))
}

/// Shows events until a signal stops the command.
async fn run(call: &Call<'_>) -> anyhow::Result<()> {
    let screen = RefCell::new(Screen::new(call.out));
    let stop = told_to_stop()?;
    let following = follow(call.client, call.request().await?, |frame| screen.borrow_mut().show(frame));
    tokio::select! {
        broken = following => broken,
        aged = age(&screen) => Ok(aged?),
        () = stop => Ok(()),
    }
}

/// Passes on the events of a stream. Reconnects after the last event if the stream ends. Returns if the server refuses it or
/// cannot be reached at first, or if `take` fails.
pub(super) async fn follow(
    client: &Client, mut request: ApiRequest, mut take: impl FnMut(&Frame) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut has_begun = false;
    loop {
        let (mut frames, mut is_shown) = (Frames::default(), true);
        let streamed = client.stream(&request, |octets| {
            has_begun = true;
            let shown = frames.push(octets).iter().try_for_each(&mut take);
            is_shown = shown.is_ok();
            shown
        });
        // A server that restarts refuses connections for a while.
        if let Err(error) = streamed.await
            && (!has_begun || !is_shown || error.is::<CommandError>())
        {
            return Err(error);
        }
        if let Some(last) = frames.last_id {
            request.headers = vec![(LAST_EVENT_ID, last)];
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

/// Removes outdated values from a page in an endless loop. Returns only if writing fails.
async fn age(screen: &RefCell<Screen>) -> io::Result<()> {
    loop {
        tokio::time::sleep(RATE_SHOWN / 3).await;
        if let Screen::Page(page) = &mut *screen.borrow_mut()
            && page.age(Instant::now())
        {
            page.draw()?;
        }
    }
}

/// A server-sent event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    id: Option<String>,
    kind: String,
    data: Value,
}

/// Parser of server-sent events from chunks of bytes (HTML, section 9.2.6), as far as Bellwire's need it.
#[derive(Default)]
struct Frames {
    octets: Vec<u8>,
    /// Id to resume from: of the last block with an id, event or not.
    last_id: Option<String>,
}

impl Frames {
    /// Adds bytes. Returns the events that they complete.
    fn push(&mut self, octets: &[u8]) -> Vec<Frame> {
        self.octets.extend_from_slice(octets);
        let mut frames = Vec::new();
        while let Some(end) = self.octets.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.octets.drain(..end + 2).collect();
            frames.extend(self.read(&String::from_utf8_lossy(&block)));
        }
        frames
    }

    /// Parses a block. `None`: not an event, for example a comment.
    fn read(&mut self, block: &str) -> Option<Frame> {
        let field = |name: &str| {
            let value = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(value.strip_prefix(' ').unwrap_or(value))
        };
        let id = field("id").map(str::to_owned);
        self.last_id = id.clone().or(self.last_id.take());
        let data = serde_json::from_str(field("data")?).ok()?;
        Some(Frame { id, kind: field("event")?.to_owned(), data })
    }
}

enum Screen {
    /// JSON lines with ids.
    Json,
    Lines,
    Page(WatchView),
}

impl Screen {
    fn new(out: Output) -> Self {
        match out.json {
            true => Self::Json,
            false if io::stdout().is_terminal() => Self::Page(WatchView::default()),
            false => Self::Lines,
        }
    }

    fn show(&mut self, frame: &Frame) -> io::Result<()> {
        match self {
            Self::Json => {
                let mut event = frame.data.clone();
                event["id"] = frame.id.clone().into();
                event["kind"] = frame.kind.clone().into();
                writeln!(Stdout, "{event}")?;
            }
            Self::Lines => writeln!(Stdout, "{}", line(frame))?,
            Self::Page(page) => {
                page.take(frame, Instant::now());
                return page.draw();
            }
        }
        Stdout.flush()
    }
}

fn line(frame: &Frame) -> String {
    let members = frame.data["data"].as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let said = members.map(|(name, _)| format!("{name}={}", text(&frame.data["data"], &format!("/{name}"))));
    let app = text(&frame.data, "/app");
    let line = [vec![time(&frame.data, "/at"), frame.kind.clone(), app], said.collect()].concat().join("  ");
    line.replace(char::is_control, " ") // nothing steers the terminal
}

/// Terminal view: active campaigns, outcomes of the last second, latest events.
#[derive(Debug, Default)]
struct WatchView {
    campaigns: BTreeMap<String, Value>,
    outcomes: BTreeMap<String, (Instant, Value)>,
    recent: VecDeque<String>,
}

impl WatchView {
    /// Removes outdated outcomes. Returns whether there were any.
    fn age(&mut self, now: Instant) -> bool {
        let before = self.outcomes.len();
        self.outcomes.retain(|_, (came_at, _)| now.duration_since(*came_at) < RATE_SHOWN);
        self.outcomes.len() < before
    }

    fn draw(&self) -> io::Result<()> {
        write!(Stdout, "{CLEAR}{self}")?;
        Stdout.flush()
    }

    fn take(&mut self, frame: &Frame, now: Instant) {
        self.age(now);
        let message = || text(&frame.data, "/data/message");
        match EventType::from_name(&frame.kind) {
            Some(EventType::MessageProgress) => {
                self.campaigns.insert(message(), frame.data["data"].clone());
            }
            Some(EventType::Outcomes) => {
                self.outcomes.insert(text(&frame.data, "/app"), (now, frame.data["data"].clone()));
            }
            kind => {
                if kind == Some(EventType::MessageDone) {
                    self.campaigns.remove(&message());
                }
                self.recent.push_back(line(frame));
                if self.recent.len() > RECENT {
                    self.recent.pop_front();
                }
            }
        }
    }
}

impl std::fmt::Display for WatchView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n = |data: &Value, name: &str| data[name].as_i64().unwrap_or(0);
        let campaign = |(message, data): (&String, &Value)| {
            let done = n(data, "targeted") - n(data, "waiting");
            let [accepted, waiting] = ["accepted", "waiting"].map(|name| n(data, name).to_string());
            let failed = (done - n(data, "accepted")).to_string();
            [message.clone(), text(data, "/state"), bar(done, n(data, "audience_estimate")), accepted, failed, waiting]
        };
        let headings = ["CAMPAIGN", "STATE", "ENDED", "ACCEPTED", "OTHERWISE", "WAITING"];
        writeln!(f, "{}\n", table(headings, self.campaigns.iter().map(campaign)))?;
        let outcome = |(app, (_, data)): (&String, &(Instant, Value))| {
            let seconds = data["seconds"].as_f64().unwrap_or(1.0).max(0.001);
            let rate = |name: &str| format!("{:.0}/s", n(data, name) as f64 / seconds);
            [app.clone(), rate("accepted"), rate("retry"), rate("gone"), rate("expired"), rate("dead")]
        };
        let headings = ["APP", "ACCEPTED", "RETRY", "GONE", "EXPIRED", "DEAD"];
        writeln!(f, "{}\n", table(headings, self.outcomes.iter().map(outcome)))?;
        self.recent.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(f, "\nCtrl-C ends it.")
    }
}

/// Formats a share as a bar and a percentage.
fn bar(done: i64, of: i64) -> String {
    let share = if of > 0 { (done as f64 / of as f64).clamp(0.0, 1.0) } else { 1.0 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to the width of a bar")]
    let filled = (share * BAR as f64) as usize;
    format!("{}{} {:>3.0} %", "#".repeat(filled), ".".repeat(BAR - filled), share * 100.0)
}

#[cfg(test)]
#[path = "../../tests/unit/cli/watch.rs"]
mod tests;
