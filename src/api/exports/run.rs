//! Runs an export from its first line to its record.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::http::outgoing::Outgoing;
use super::giving::{Broken, Giver, Giving};
use super::record::END;
use super::{Contents, ExportFormat, settings};
use bellwire_store::operations::exports;

impl Giver {
    /// Starts the export. The body ends normally only after the last line.
    pub(super) fn give(self, to: Outgoing) {
        let giving = Giving { giver: self, to, out: Vec::new(), lines: 0, counts: BTreeMap::new() };
        tokio::spawn(giving.run());
    }
}

impl Giving {
    async fn run(mut self) {
        let given = self.give_all().await;
        if let Err(why) = &given {
            tracing::warn!(export = %self.giver.id, %why, "an export was aborted");
        }
        // Before the body ends, so that a client that has seen its end finds it complete.
        let Giver { state, id, .. } = &self.giver;
        let noted = exports::end(&state.pool, *id, self.lines, given.is_ok(), state.clock.now()).await;
        if let Err(error) = noted {
            tracing::warn!(export = %id, %error, "the result of an export could not be recorded");
        }
        if given.is_ok() {
            let _ = self.to.end().await;
        }
    }

    async fn give_all(&mut self) -> Result<(), Broken> {
        if self.giver.contents == Contents::App && self.giver.after.is_none() {
            let (state, app) = (self.giver.state.clone(), self.giver.app.clone());
            settings::give(self, &state, &app).await?;
        }
        self.hand_over().await?;
        self.give_subscriptions().await?;
        if self.giver.format == ExportFormat::Ndjson {
            let counts = json!(self.counts);
            self.line(END, &json!({ "counts": counts })).await?;
        }
        self.hand_over().await
    }
}
