//! `bellwire mcp`: the Model Context Protocol on standard input and output. Each request becomes one to `/mcp` of the server.

use std::sync::Arc;

use anyhow::Context as _;
use axum::http::{Method, header};
use clap::Args;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ListToolsResult, PaginatedRequestParams, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::stdio;
use rmcp::{ErrorData, RoleServer, ServerHandler, serve_server};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::client::{ApiRequest, Client, DataDirState};
use super::serve::told_to_stop;
use super::settings::FewSettings;
use crate::api::mcp::server_config;
use crate::config::McpAccess;

/// Arguments of `bellwire mcp`, and the settings of its data.
#[derive(Debug, Args)]
pub(super) struct Mcp {
    /// Offer tools that change something, too. With --server, its setting `mcp` must be `write`.
    #[arg(long)]
    allow_write: bool,
    #[command(flatten)]
    settings: FewSettings,
}

impl Mcp {
    /// Serves until standard input ends, or a signal stops the command.
    pub(super) async fn run(self, server: Option<&str>) -> anyhow::Result<()> {
        let client = match server {
            Some(server) => self.settings.remote(server)?,
            None => {
                let mut config = self.settings.load()?;
                config.mcp = McpAccess::Write;
                Client::open(config, DataDirState::Before).await?
            }
        };
        let client = Arc::new(client);
        let path = if self.allow_write { "/mcp" } else { "/mcp?access=read" };
        let served = serve(Bridge { client: client.clone(), path }).await;
        if let Some(client) = Arc::into_inner(client) {
            client.close().await;
        }
        served
    }
}

async fn serve(bridge: Bridge) -> anyhow::Result<()> {
    let stop = told_to_stop()?;
    // A wrong key or address is an error of the command, not of a tool.
    bridge.ask("tools/list", json!({})).await?;
    tokio::pin!(stop);
    let running = tokio::select! {
        running = serve_server(bridge, stdio()) => running.context("the client did not begin with the protocol")?,
        () = &mut stop => return Ok(()),
    };
    let (cancel, ended) = (running.cancellation_token(), running.waiting());
    tokio::pin!(ended);
    tokio::select! {
        ended = &mut ended => drop(ended?),
        () = stop => {
            cancel.cancel();
            drop(ended.await?); // the task has ended, and with it its use of the database
        }
    }
    Ok(())
}

struct Bridge {
    client: Arc<Client>,
    path: &'static str,
}

impl Bridge {
    async fn ask(&self, method: &str, params: Value) -> anyhow::Result<Value> {
        let accept = (header::ACCEPT.as_str(), "application/json, text/event-stream".to_owned());
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = ApiRequest::new(Method::POST, self.path.to_owned()).body(body);
        self.client.ask(&ApiRequest { headers: vec![accept], ..request }).await
    }

    async fn result<T: DeserializeOwned>(&self, method: &str, params: impl Serialize) -> Result<T, ErrorData> {
        let failed = |error: &dyn std::fmt::Display| ErrorData::internal_error(error.to_string(), None);
        let params = serde_json::to_value(params).map_err(|error| failed(&error))?;
        let mut response = self.ask(method, params).await.map_err(|error| failed(&format!("{error:#}")))?;
        if response["error"].is_object() {
            return Err(serde_json::from_value(response["error"].take()).unwrap_or_else(|error| failed(&error)));
        }
        serde_json::from_value(response["result"].take()).map_err(|error| failed(&error))
    }
}

impl ServerHandler for Bridge {
    fn get_info(&self) -> ServerConfig {
        server_config()
    }

    async fn list_tools(
        &self, _: Option<PaginatedRequestParams>, _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.result("tools/list", json!({})).await
    }

    async fn call_tool(
        &self, CallToolRequestParams { name, arguments, .. }: CallToolRequestParams, _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let params = json!({"name": name, "arguments": arguments.unwrap_or_default()});
        self.result::<CallToolResult>("tools/call", params).await.map(Into::into)
    }
}
