//! Logging: `tracing` to standard error, as text or JSON.
//!
//! Events carry no secrets: endpoints, payloads, keys and tokens have no `Debug` that shows them, and subscriptions
//! appear under a hashed label. What happens per delivery is counted in [`crate::metrics`], not logged. An event's words are its
//! field `message`, so that what it says of one of ours stands under `message_id`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::config::LogFormat;

/// Libraries that have nothing to say to an operator below warnings; the operator's own directives come after.
const QUIET: &str = "h2=warn,hyper=warn,rustls=warn,sqlx=warn,tower=warn";

/// Starts logging for the whole process. `filter` is a level or `tracing_subscriber` directives. Does nothing if it was
/// started before.
pub(crate) fn init(filter: &str, format: LogFormat) -> Result<(), ParseError> {
    let filter = filter_of(filter)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(std::io::stderr().is_terminal());
    // A test binary starts it more than once.
    let _ = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}

fn filter_of(directives: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(format!("{QUIET},{directives}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operators_directive_overrides_our_quiet_libraries() {
        assert!(filter_of("info,sqlx=debug").unwrap().to_string().contains("sqlx=debug"));
        assert!(filter_of("warn").unwrap().to_string().contains("warn"));
        assert!(filter_of("=====").is_err());
    }
}
