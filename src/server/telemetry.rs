//! Logging: `tracing` to standard error, as text or JSON.
//!
//! Events carry no secrets: endpoints, payloads, keys and tokens have no `Debug` that shows them, and subscriptions
//! appear under a hashed label. What happens per delivery is counted in [`crate::metrics`], and logged at `debug` alone. An event's words are its
//! field `message`, so that what it says of one of ours stands under `message_id`.
//!
//! What operators ask for while it runs is added to what the process was started with, until its time is over.

use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::PgPool;
use tracing::{Event, Level, Subscriber, info, warn};
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use crate::config::LogFormat;
use crate::dispatch::rest::{AT_REST, Rest};
use crate::metrics;
use crate::model::clock::{Clock, Timestamp};
use crate::model::log_filter::LogFilter;
use crate::store::operations::log_level;

/// Libraries that have nothing to say to an operator below warnings; the operator's own directives come after.
const QUIET: &str = "h2=warn,hyper=warn,rustls=warn,sqlx=warn,tower=warn";
/// Under this target sqlx logs statements: as warnings those that were slow.
const STATEMENTS: &str = "sqlx::query";
/// How often it is looked what operators ask for.
const READ_EVERY: Duration = Duration::from_secs(2);

/// The filter of this process's log.
static FILTER: OnceLock<Filter> = OnceLock::new();

struct Filter {
    /// What the process was started with.
    started_with: String,
    handle: reload::Handle<EnvFilter, Registry>,
}

/// Starts logging for the whole process. `filter` is a level or `tracing_subscriber` directives. Does nothing if it was
/// started before.
pub(crate) fn init(filter: &str, format: LogFormat) -> Result<(), ParseError> {
    let (filtering, handle) = reload::Layer::new(filter_of(filter)?);
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let slow = Targets::new().with_target(STATEMENTS, LevelFilter::WARN);
    let begun =
        tracing_subscriber::registry().with(lines.with_filter(filtering)).with(SlowStatements.with_filter(slow));
    // A test binary starts it more than once.
    if begun.try_init().is_ok() {
        let _ = FILTER.set(Filter { started_with: filter.to_owned(), handle }); // nobody else sets it
    }
    Ok(())
}

fn filter_of(directives: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(format!("{QUIET},{directives}"))
}

/// Counts the statements that sqlx logs since they were slow, whatever the log shows.
struct SlowStatements;

impl<S: Subscriber> Layer<S> for SlowStatements {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == Level::WARN {
            metrics::slow_statements().inc();
        }
    }
}

/// Logs what operators ask for while they do, for ever.
pub(crate) async fn follow_on(pool: PgPool, clock: Clock, rest: Arc<Rest>) {
    let Some(filter) = FILTER.get() else { return std::future::pending().await };
    let mut followed = Followed::default();
    loop {
        let now = clock.now();
        match log_level::read(&pool, now).await {
            Ok(wanted) => {
                let wanted = wanted.and_then(|wanted| Some((LogFilter::parse(&wanted.filter).ok()?, wanted.until)));
                followed.wanted = wanted;
            }
            Err(error) => tracing::debug!(%error, "what is to be logged could not be read; it is tried again"),
        }
        if let Some(change) = followed.change(now) {
            filter.apply(change.as_ref());
        }
        rest.pause(READ_EVERY, AT_REST).await;
    }
}

/// What is asked for, as far as is known, and what is logged.
#[derive(Debug, Default)]
struct Followed {
    wanted: Option<(LogFilter, Timestamp)>,
    applied: Option<LogFilter>,
}

impl Followed {
    /// What is to be logged from now on, if that is something else. Its time ends though nobody can be asked.
    fn change(&mut self, now: Timestamp) -> Option<Option<LogFilter>> {
        let wanted = self.wanted.as_ref().filter(|(_, until)| *until > now).map(|(filter, _)| filter.clone());
        if wanted == self.applied {
            return None;
        }
        self.applied.clone_from(&wanted);
        Some(wanted)
    }
}

impl Filter {
    /// Logs this beside what the process was started with.
    fn apply(&self, wanted: Option<&LogFilter>) {
        let directives = match wanted {
            Some(wanted) => format!("{},{}", self.started_with, wanted.directives()),
            None => self.started_with.clone(),
        };
        let applied = filter_of(&directives).map_err(|error| error.to_string());
        match applied.and_then(|filter| self.handle.reload(filter).map_err(|error| error.to_string())) {
            Ok(()) => match wanted {
                Some(wanted) => info!(filter = %wanted, "the log shows what an operator asked for"),
                None => info!(filter = self.started_with, "the log shows what this process was started with"),
            },
            Err(error) => warn!(error, "what an operator asked to be logged cannot be"),
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn the_operators_directive_overrides_our_quiet_libraries() {
        assert!(filter_of("info,sqlx=debug").unwrap().to_string().contains("sqlx=debug"));
        assert!(filter_of("warn").unwrap().to_string().contains("warn"));
        assert!(filter_of("=====").is_err());
    }

    #[test]
    fn what_is_asked_for_ends_with_its_time_though_nobody_can_be_asked() {
        let now = Timestamp::from_timestamp(1_800_000_000, 0).unwrap();
        let filter = LogFilter::parse("debug").unwrap();
        let mut followed = Followed::default();
        assert_eq!(followed.change(now), None);
        followed.wanted = Some((filter.clone(), now + TimeDelta::seconds(60)));
        assert_eq!(followed.change(now), Some(Some(filter)));
        assert_eq!(followed.change(now + TimeDelta::seconds(59)), None);
        assert_eq!(followed.change(now + TimeDelta::seconds(60)), Some(None));
        assert_eq!(followed.change(now + TimeDelta::seconds(61)), None);
    }

    #[test]
    fn what_is_asked_for_beats_what_the_process_was_started_with() {
        let filter = filter_of("info,bellwire=debug").unwrap().to_string();
        assert!(filter.contains("bellwire=debug") && filter.contains("info"), "{filter}");
        let filter = filter_of("bellwire=info,bellwire=debug").unwrap().to_string();
        assert!(!filter.contains("bellwire=info"), "{filter}");
    }
}
