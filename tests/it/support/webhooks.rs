//! Webhooks of a test server.

use bellwire::testkit::hooks::Sender;

use super::TestApp;

/// Webhook sender of a test server.
pub fn webhook_sender(app: &TestApp) -> Sender {
    let (pool, vault, clock) = (app.pool.clone(), app.vault.clone(), app.clock.clone());
    Sender::new(pool, vault, clock, app.gateways.clone(), app.metrics.clone())
}
