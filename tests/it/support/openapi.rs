//! The OpenAPI description that a server returns.

use axum::http::Method;
use serde_json::Value;

use super::api::TestApi;

pub const METHODS: [Method; 5] = [Method::GET, Method::PUT, Method::POST, Method::PATCH, Method::DELETE];

pub async fn openapi_description(api: &TestApi) -> Value {
    api.call(Method::GET, "/openapi.json", None, None).await.ok(200)
}

/// Operations of the description: path, method and definition.
pub fn operations(description: &Value) -> Vec<(String, Method, Value)> {
    let paths = description["paths"].as_object().expect("paths").iter();
    let of_path = |(path, item): (&String, &Value)| {
        let methods = METHODS.into_iter().filter_map(|method| {
            let operation = item.get(method.as_str().to_lowercase())?;
            Some((path.clone(), method, operation.clone()))
        });
        methods.collect::<Vec<_>>()
    };
    paths.flat_map(of_path).collect()
}
