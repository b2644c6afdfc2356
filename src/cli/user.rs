//! `bellwire user`: what is kept of a person, for them, and its end.

use std::io::Write as _;

use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};

use super::arguments::AppFlag;
use super::local::{Ask, Local, path};
use super::output::{Output, Stdout, TableColumn, text, time};
use super::refusal::ArgumentNames;

const NAMES: &ArgumentNames = &[("user", "USER"), ("app", "--app")];

#[derive(Debug, Subcommand)]
pub(super) enum User {
    /// Copy all that is kept of a user to standard output, as one JSON document. It ends in `"complete":true`, unless it broke off.
    #[command(after_help = "Example:\n  bellwire user export ann@example.com --app shop > ann.json")]
    Export(UserArg),
    /// Unsubscribe all browsers of a user and forget all that is known of them, for good.
    #[command(after_help = "Example:\n  bellwire user erase ann@example.com --app shop --yes-erase ann@example.com")]
    Erase {
        #[command(flatten)]
        user: UserArg,
        /// The user once more: what is erased cannot be brought back.
        #[arg(long, value_name = "USER")]
        yes_erase: String,
    },
}

#[derive(Debug, Args)]
pub(super) struct UserArg {
    /// The site's name for them: `user_id`.
    #[arg(value_name = "USER", value_parser = NonEmptyStringValueParser::new())]
    user: String,
    #[command(flatten)]
    app: AppFlag,
}

impl User {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Export(UserArg { user, app }) => {
                let ask = Ask::new(Method::GET, path(["apps", &app, "users", &user, "export"]));
                let mut end = Vec::new();
                let copied = local.stream(Ask { names: NAMES, ..ask }, |octets| {
                    end = octets[octets.len().saturating_sub(END.len())..].to_vec();
                    Stdout.write_all(octets)
                });
                copied.await?;
                anyhow::ensure!(end.ends_with(END), "the export broke off");
            }
            Self::Erase { user: UserArg { user, app }, yes_erase } => {
                anyhow::ensure!(user == yes_erase, "--yes-erase: is not the user to be erased");
                let ask = Ask::new(Method::DELETE, path(["apps", &app, "users", &user]));
                let erasure = local.ask(Ask { names: NAMES, ..ask }).await?;
                out.fields(FIELDS, &erasure)?;
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

const END: &[u8] = b"\"complete\":true}\n";

const FIELDS: &[TableColumn] = &[
    ("erasure", text, "/id"),
    ("subscriptions", text, "/subscriptions"),
    ("messages", text, "/messages"),
    ("dead letters", text, "/dead_letters"),
    ("webhook requests", text, "/webhook_requests"),
    ("requested", time, "/requested_at"),
    ("completed", time, "/completed_at"),
];
