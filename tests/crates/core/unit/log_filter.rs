//! Unit tests of `crates/bellwire-core/src/log_filter.rs`, which includes them.

use super::*;

#[test]
fn level_applies_to_all_or_one_module() {
    for (text, directives) in [
        ("debug", "bellwire=debug"),
        ("info, bellwire_dispatch=debug", "bellwire=info,bellwire_dispatch=debug"),
        ("sqlx=debug", "sqlx=debug"),
        ("bellwire_gateway::http2=debug", "bellwire_gateway::http2=debug"),
        ("sqlx::query=info,trace", "sqlx::query=info,bellwire=trace"),
    ] {
        assert_eq!(LogFilter::parse(text).map(|filter| filter.directives()), Ok(directives.to_owned()), "{text}");
    }
}

#[test]
fn levels_that_show_secrets_are_refused() {
    for (text, wrong) in [
        ("", WrongFilter::Length),
        (" ", WrongFilter::Length),
        (&"debug,".repeat(40), WrongFilter::Length),
        ("debug,debug,debug,debug,debug,debug,debug,debug,debug,debug,debug", WrongFilter::Length),
        ("off", WrongFilter::Directive),
        ("DEBUG", WrongFilter::Directive),
        ("bellwire[request]=debug", WrongFilter::Directive),
        ("bellwire=", WrongFilter::Directive),
        ("debug,", WrongFilter::Directive),
        ("h2=trace", WrongFilter::Target),
        ("bellwirex=debug", WrongFilter::Target),
        ("hyper_util=debug", WrongFilter::Target),
    ] {
        assert_eq!(LogFilter::parse(text), Err(wrong), "{text}");
    }
}
