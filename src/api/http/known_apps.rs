//! Cache of apps for requests from browsers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use bellwire_core::id::AppId;
use bellwire_store::keys::apps::App;

/// Time for which an app is cached. Its origins may change.
const KEPT_FOR: Duration = Duration::from_secs(5);
/// Maximum number of cached apps.
const APPS_MAX: usize = 1_000;

/// Cached apps by id or slug, with the time of reading.
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

    /// Removes an app that is being deleted, so that the next request reads the database.
    pub(crate) fn forget(&self, app: AppId) {
        self.0.lock().retain(|_, (_, known)| known.id != app);
    }

    /// Returns a cached app that is at most [`KEPT_FOR`] old.
    pub(crate) fn lately(&self, name: &str) -> Option<Arc<App>> {
        self.0.lock().get(name).filter(|(at, _)| at.elapsed() < KEPT_FOR).map(|(_, app)| app.clone())
    }

    /// Returns a cached app of any age.
    pub(crate) fn recall(&self, name: &str) -> Option<Arc<App>> {
        self.0.lock().get(name).map(|(_, app)| app.clone())
    }
}
