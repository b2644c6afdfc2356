//! Lanes as the API returns them.

use axum::http::Method;
use serde_json::Value;

use super::TestApp;

/// The first origin of a lane that begins so, as the API returns it.
pub async fn lane_origin(app: &TestApp, lane: i64, origin: &str) -> Value {
    let lane = app.operate(Method::GET, &format!("/v1/gateways/{lane}"), Value::Null).await.ok(200);
    let origins = lane["origins"].as_array().unwrap();
    origins.iter().find(|shown| shown["origin"].as_str().unwrap().starts_with(origin)).cloned().unwrap_or(Value::Null)
}
