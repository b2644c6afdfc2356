//! `bellwire segment`: whom of an audience messages are for.

use axum::http::Method;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::arguments::AppFlag;
use super::local::{Ask, Local, path};
use super::output::{Output, TableColumn, beginning, text, time};
use super::refusal::ArgumentNames;

const NAMES: &ArgumentNames = &[
    ("/expression", "EXPRESSION"),
    ("/description", "--description"),
    ("/segment", "SEGMENT"),
    ("segment", "SEGMENT"),
    ("limit", "--limit"),
    ("app", "--app"),
];

#[derive(Debug, Subcommand)]
pub(super) enum Segment {
    /// Create or replace a segment. Messages already sent keep the earlier expression.
    #[command(after_help = "Examples:
  bellwire segment set paying --app shop 'plan = \"pro\" or tag(\"beta\")'
  bellwire segment set sleeping --app shop 'last_seen > 60d' --description 'Away for two months'")]
    Set {
        #[command(flatten)]
        segment: SegmentArg,
        /// Expression that selects the subscriptions; docs/segments.md has the grammar.
        #[arg(value_name = "EXPRESSION")]
        expression: String,
        /// Description for people.
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
    },
    /// List an app's segments.
    List(AppFlag),
    /// Show a segment.
    Show(SegmentArg),
    /// Delete a segment. Messages already sent keep its expression.
    Delete(SegmentArg),
    /// Tell how many belong to a segment, or to an expression.
    #[command(after_help = "Examples:
  bellwire segment count paying --app shop
  bellwire segment count 'country in (\"AT\", \"DE\") and last_seen < 30d' --app shop --exact")]
    Count {
        #[command(flatten)]
        segment: SegmentSource,
        /// Count one by one instead of estimating from a sample.
        #[arg(long)]
        exact: bool,
    },
    /// List the newest subscriptions that belong to a segment, or to an expression.
    Members {
        #[command(flatten)]
        segment: SegmentSource,
        /// Maximum number of subscriptions, up to 250.
        #[arg(long, default_value_t = 20)]
        limit: u16,
    },
}

#[derive(Debug, Args)]
pub(super) struct SegmentArg {
    /// Name: lower-case letters, digits and hyphens
    #[arg(value_name = "SEGMENT", value_parser = NonEmptyStringValueParser::new())]
    name: String,
    #[command(flatten)]
    app: AppFlag,
}

/// A segment, stored or not.
#[derive(Debug, Args)]
pub(super) struct SegmentSource {
    /// A segment's name, or an expression
    #[arg(value_name = "SEGMENT", value_parser = NonEmptyStringValueParser::new())]
    segment: String,
    #[command(flatten)]
    app: AppFlag,
}

impl Segment {
    pub(super) async fn run(self, local: &Local, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Set { segment: SegmentArg { name, app }, expression, description } => {
                let ask = Ask::new(Method::PUT, path(["apps", &app, "segments", &name]));
                let body = json!({"expression": expression, "description": description});
                out.fields(FIELDS, &local.ask(Ask { body, names: NAMES, ..ask }).await?)?;
            }
            Self::List(app) => out.table(COLUMNS, &local.list(&path(["apps", &app, "segments"])).await?)?,
            Self::Show(SegmentArg { name, app }) => {
                let ask = Ask::new(Method::GET, path(["apps", &app, "segments", &name]));
                let segment = local.ask(Ask { names: NAMES, ..ask }).await?;
                out.fields(FIELDS, &segment)?;
            }
            Self::Delete(SegmentArg { name, app }) => {
                let ask = Ask::new(Method::DELETE, path(["apps", &app, "segments", &name]));
                local.ask(Ask { names: NAMES, ..ask }).await?;
                out.say(&json!({"name": name, "deleted": true}), &format!("The segment {name} is gone."))?;
            }
            Self::Count { segment: SegmentSource { segment, app }, exact } => {
                let ask = Ask::new(Method::POST, path(["apps", &app, "segments", "preview"]));
                let body = json!({"segment": segment, "exact": exact});
                let preview = local.ask(Ask { body, names: NAMES, ..ask }).await?;
                for warning in preview["warnings"].as_array().into_iter().flatten() {
                    out.note(&format!("Note: it {}", text(warning, "/detail")));
                }
                out.say(&preview, &count(&preview))?;
            }
            Self::Members { segment: SegmentSource { segment, app }, limit } => {
                let mut query = form_urlencoded::Serializer::new(format!("limit={limit}"));
                query.append_pair("segment", &segment);
                let at = format!("{}?{}", path(["apps", &app, "subscriptions"]), query.finish());
                let page = local.ask(Ask { names: NAMES, ..Ask::new(Method::GET, at) }).await?;
                out.table(MEMBERS, &page)?;
                if page["done"] == false {
                    out.note("There may be more.");
                }
            }
        }
        Ok(())
    }
}

const FIELDS: &[TableColumn] = &[
    ("segment", text, "/name"),
    ("expression", text, "/expression"),
    ("description", text, "/description"),
    ("made", time, "/created_at"),
    ("changed", time, "/changed_at"),
];

const COLUMNS: &[TableColumn] =
    &[("SEGMENT", text, "/name"), ("CHANGED", time, "/changed_at"), ("EXPRESSION", beginning::<100>, "/expression")];

fn count(preview: &Value) -> String {
    let reach = &preview["reach"];
    let how = match reach["exact"] == true {
        true => "counted".to_owned(),
        false => format!("give or take {}", text(reach, "/margin")),
    };
    format!("{} of {} active subscriptions, {how}", text(reach, "/count"), text(reach, "/of"))
}

const MEMBERS: &[TableColumn] = &[
    ("ID", text, "/id"),
    ("GATEWAY", text, "/gateway"),
    ("USER", text, "/user_id"),
    ("LAST SEEN", time, "/last_seen"),
];
