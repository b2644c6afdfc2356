//! Logging: `tracing` to standard error, as text or JSON.
//!
//! Events contain no secrets: endpoints, payloads, keys and tokens have no `Debug` that shows them, and subscriptions
//! have a hashed label. Single deliveries are counted in [`bellwire_telemetry::metrics`] and logged at `debug` only. The text of an
//! event is its field `message`, so the id of a message has the field `message_id`.
//!
//! Operators can add directives to a running process for a limited time.

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
use bellwire_core::clock::{Clock, Timestamp};
use bellwire_core::log_filter::LogFilter;
use bellwire_dispatch::idle::{AT_REST, Rest};
use bellwire_store::operations::log_level;
use bellwire_telemetry::metrics;

/// Libraries that log warnings only. Directives of the operator follow and override them.
const QUIET: &str = "h2=warn,hyper=warn,rmcp=error,rustls=warn,sqlx=warn,tower=warn";
/// Target of sqlx for statements. Slow ones are warnings.
const STATEMENTS: &str = "sqlx::query";
/// Interval of the query for directives of operators.
const READ_EVERY: Duration = Duration::from_secs(2);

static FILTER: OnceLock<LogFilterHandle> = OnceLock::new();

struct LogFilterHandle {
    started_with: String,
    handle: reload::Handle<EnvFilter, Registry>,
}

/// Starts logging for the whole process. `filter` is a level or `tracing_subscriber` directives. Does nothing at the
/// second call.
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
    // A test binary calls this more than once.
    if begun.try_init().is_ok() {
        let _ = FILTER.set(LogFilterHandle { started_with: filter.to_owned(), handle }); // the only setter
    }
    Ok(())
}

fn filter_of(directives: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(format!("{QUIET},{directives}"))
}

/// Counts slow statements in the events of sqlx, independent of the level of the log.
struct SlowStatements;

impl<S: Subscriber> Layer<S> for SlowStatements {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == Level::WARN {
            metrics::slow_statements().inc();
        }
    }
}

/// Applies the directives of operators in an endless loop.
pub(crate) async fn follow_on(pool: PgPool, clock: Clock, rest: Arc<Rest>) {
    let Some(filter) = FILTER.get() else { return std::future::pending().await };
    let mut followed = LogFilterState::default();
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
#[derive(Debug, Default)]
struct LogFilterState {
    wanted: Option<(LogFilter, Timestamp)>,
    applied: Option<LogFilter>,
}

impl LogFilterState {
    /// Returns the directives to apply if they have changed. Expiry needs no access to the database.
    fn change(&mut self, now: Timestamp) -> Option<Option<LogFilter>> {
        let wanted = self.wanted.as_ref().filter(|(_, until)| *until > now).map(|(filter, _)| filter.clone());
        if wanted == self.applied {
            return None;
        }
        self.applied.clone_from(&wanted);
        Some(wanted)
    }
}

impl LogFilterHandle {
    /// Applies directives in addition to those of the start.
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
#[path = "../../tests/unit/server/telemetry.rs"]
mod tests;
