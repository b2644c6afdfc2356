//! Apps that browsers asked for, as they were when the database was last asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use bellwire_core::id::AppId;
use bellwire_store::keys::apps::App;

/// Time for which an app's origins are cached, because they may change.
const KEPT_FOR: Duration = Duration::from_secs(5);
/// Maximum number of cached apps.
const APPS_MAX: usize = 1_000;

/// Cached apps by name.
#[derive(Default)]
pub(crate) struct KnownApps(Mutex<HashMap<String, (Instant, Arc<App>)>>);

impl KnownApps {
    pub(crate) fn remember(&self, name: &str, app: &Arc<App>) {
        let mut apps = self.0.lock();
        if apps.len() >= APPS_MAX && !apps.contains_key(name) {
            apps.clear();
        }
        apps.insert(name.to_owned(), (Instant::now(), app.clone()));
    }

    /// Removes an app that is being deleted: the next request asks the database.
    pub(crate) fn forget(&self, app: AppId) {
        self.0.lock().retain(|_, (_, known)| known.id != app);
    }

    /// Returns the app as it was a few seconds ago.
    pub(crate) fn lately(&self, name: &str) -> Option<Arc<App>> {
        self.0.lock().get(name).filter(|(at, _)| at.elapsed() < KEPT_FOR).map(|(_, app)| app.clone())
    }

    /// Returns the app as it was at the last request for it.
    pub(crate) fn recall(&self, name: &str) -> Option<Arc<App>> {
        self.0.lock().get(name).map(|(_, app)| app.clone())
    }
}
