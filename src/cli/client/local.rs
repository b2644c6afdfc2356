//! In-process API, for callers with access to the database and the master key.

use anyhow::bail;
use axum::Router;

use super::DataDirState;
use crate::config::Config;
use crate::server;
use crate::server::context::{Context, Migrations, refuse_foreign};
use bellwire_postgres::Embedded;

/// Maximum connections of a verb. Half of them would be for dispatch, which does not run here.
const CONNECTIONS: u32 = 6;

/// An open database and the API on it.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) context: Context,
    pub(super) router: Router,
}

impl Local {
    /// Opens the database as a server does. If a server is running, its embedded Postgres is used.
    pub(super) async fn open(config: &mut Config, beginning: DataDirState) -> anyhow::Result<Self> {
        config.database_connections = CONNECTIONS;
        refuse_foreign(config)?;
        let data = config.data_dir.display();
        let embedded = config.database_url.is_none();
        let is_new = embedded && !Embedded::exists(&config.postgres_options());
        if is_new && beginning == DataDirState::Before {
            bail!(
                "there is no data in {data}. Start `bellwire serve` first, or give its data directory or database: --data-dir, or \
                 BELLWIRE_DATABASE_URL as the server has it"
            );
        }
        let context = Context::open(config, Migrations::Begin).await?;
        let elsewhere = "use --data-dir, or the BELLWIRE_DATABASE_URL of the server";
        if is_new {
            eprintln!(
                "Warning: there was no data in {data}, and no server uses it: a new database was made there. If your server \
                 has its data elsewhere, it does not see changes made here; {elsewhere}."
            );
        } else if context.holds_postgres() {
            eprintln!(
                "Warning: no server is running on {data}: working on its data directly. If your server has its data \
                 elsewhere, it does not see this one; {elsewhere}."
            );
        }
        let router = server::local_router(&context, config)?;
        Ok(Self { context, router })
    }
}
