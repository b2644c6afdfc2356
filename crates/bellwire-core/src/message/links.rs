//! Makes the links of a notification absolute.

use super::{Notification, unfit_url};

impl Notification {
    /// Makes links and pictures absolute with `site`, an origin. A click without a link also gets an absolute URL, because
    /// Safari displays a declarative push itself only if `navigate` is absolute. Without a site, paths stay, and service
    /// workers resolve them. Nothing is checked.
    pub fn complete(&mut self, site: Option<&str>) {
        let Some(site) = site else { return };
        let actions = self.actions.iter_mut().flat_map(|action| [&mut action.url, &mut action.icon]);
        for url in [&mut self.icon, &mut self.image, &mut self.badge].into_iter().chain(actions).flatten() {
            absolute(url, site);
        }
        absolute(self.url.get_or_insert_with(|| "/".to_owned()), site);
    }
}

/// Converts a path that [`unfit_url`] accepts to a URL.
fn absolute(url: &mut String, site: &str) {
    if url.starts_with('/') && unfit_url(url).is_none() {
        url.insert_str(0, site);
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/core/unit/message/links.rs"]
mod tests;
