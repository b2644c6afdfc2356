//! `bellwire user`: what is kept of a person, for them, and its end.

use std::io::Write as _;

use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::local::{Ask, Local, path};
use super::output::{Output, fields, text, time};
use super::refusal::Names;

const NAMES: &Names = &[("user", "USER"), ("app", "--app")];

/// The verbs.
#[derive(Debug, Subcommand)]
pub(super) enum User {
    /// Copy all that is kept of a user to standard output, as one JSON document. It ends in `"complete":true`, unless it broke off.
    #[command(after_help = "Example:\n  bellwire user export ann@example.com --app shop > ann.json")]
    Export {
        #[command(flatten)]
        user: Named,
    },
    /// Unsubscribe all browsers of a user and forget all that is known of them, for good.
    #[command(after_help = "Example:\n  bellwire user erase ann@example.com --app shop --yes-erase ann@example.com")]
    Erase {
        #[command(flatten)]
        user: Named,
        /// The user once more: what is erased cannot be brought back.
        #[arg(long, value_name = "USER")]
        yes_erase: String,
    },
}

/// Which user.
#[derive(Debug, Args)]
pub(super) struct Named {
    /// The site's name for them: `user_id`.
    #[arg(value_name = "USER", value_parser = NonEmptyStringValueParser::new())]
    user: String,
    /// The app's short name or id.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    app: String,
}

impl User {
    /// Does it.
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Export { user: Named { user, app } } => {
                let ask = Ask::new(Method::GET, path(["apps", &app, "users", &user, "export"]));
                let mut end = Vec::new();
                let copied = local.stream(Ask { names: NAMES, ..ask }, |octets| {
                    end = octets[octets.len().saturating_sub(END.len())..].to_vec();
                    std::io::stdout().lock().write_all(octets)
                });
                copied.await?;
                anyhow::ensure!(end.ends_with(END), "the export broke off");
            }
            Self::Erase { user: Named { user, app }, yes_erase } => {
                anyhow::ensure!(user == yes_erase, "--yes-erase: is not the user to be erased");
                let ask = Ask::new(Method::DELETE, path(["apps", &app, "users", &user]));
                let erasure = local.ask(Ask { names: NAMES, ..ask }).await?;
                out.say(&erasure, &show(&erasure))?;
                if erasure["completed_at"].is_null() {
                    out.note(
                        "Messages are still being looked through. The maintenance of a running server completes that.",
                    );
                }
            }
        }
        Ok(())
    }
}

/// How a whole export ends.
const END: &[u8] = b"\"complete\":true}\n";

fn show(erasure: &Value) -> String {
    fields([
        ("erasure", text(erasure, "/id")),
        ("subscriptions", text(erasure, "/subscriptions")),
        ("messages", text(erasure, "/messages")),
        ("dead letters", text(erasure, "/dead_letters")),
        ("webhook requests", text(erasure, "/webhook_requests")),
        ("requested", time(erasure, "/requested_at")),
        ("completed", time(erasure, "/completed_at")),
    ])
}
