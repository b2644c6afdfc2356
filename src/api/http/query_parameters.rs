//! Refuses query parameters that the OpenAPI description lacks. Ignoring a misspelled filter would return everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::nul::refuse_nul;
use super::problem::Problem;

/// Operation whose parameters are chosen by an OpenID provider.
const FOREIGN: &str = "/v1/session/oidc/callback";

/// Query parameters by method and path of the operation.
pub(crate) struct KnownParameters(BTreeMap<String, BTreeSet<String>>);

impl KnownParameters {
    pub(crate) fn of(description: &Value) -> Arc<Self> {
        let mut known = BTreeMap::new();
        let paths = description["paths"].as_object().into_iter().flatten();
        // Health checks may add a parameter against caches; so may the OpenID provider (RFC 6749 section 4.1.2).
        for (path, item) in paths.filter(|(path, _)| path.starts_with("/v1/") && *path != FOREIGN) {
            for (method, operation) in item.as_object().into_iter().flatten() {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let in_query = parameters.filter(|parameter| parameter["in"] == "query");
                let names = in_query.filter_map(|parameter| parameter["name"].as_str()).map(str::to_owned).collect();
                known.insert(format!("{} {path}", method.to_uppercase()), names);
            }
        }
        Arc::new(Self(known))
    }

    fn check(&self, method: &Method, path: &str, query: &str) -> Result<(), Problem> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        let Some(known) = self.0.get(&format!("{method} {path}")) else { return Ok(()) };
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            refuse_nul(&name, &value)?;
            if !known.contains(name.as_ref()) {
                let names: Vec<&str> = known.iter().map(String::as_str).collect();
                let detail = match names.as_slice() {
                    [] => "is unknown: this operation has no query parameters".to_owned(),
                    names => format!("is unknown; this operation has {}", names.join(", ")),
                };
                return Err(Problem::invalid_parameter(name, detail));
            }
        }
        Ok(())
    }
}

/// Refuses requests with an unknown query parameter (400).
pub(crate) async fn guard(State(known): State<Arc<KnownParameters>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    match request.uri().query().map_or(Ok(()), |query| known.check(request.method(), path, query)) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/query_parameters.rs"]
mod tests;
