//! Cursor-based pages, newest row first, in both directions. They are stable while rows are added and deleted, and the last
//! page costs as little as the first.

use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::problem::Problem;
use bellwire_core::base64url;
use bellwire_store::keyset::{Keyset, Towards};

/// Default number of rows in a page.
const LIMIT_DEFAULT: u16 = 50;
/// Maximum number of rows in a page.
const LIMIT_MAX: u16 = 250;

/// Paging parameters of a list.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// Rows per page, 1 to 250; 50 by default.
    pub limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    pub iterator: Option<String>,
}

/// Validated form of [`Paging`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageRequest {
    pub limit: u16,
    pub towards: Towards,
    beyond: Uuid,
}

impl Paging {
    /// Validates limit and iterator.
    pub(crate) fn cut(&self) -> Result<PageRequest, Problem> {
        let limit = self.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Problem::invalid_parameter("limit", format!("must be 1 to {LIMIT_MAX}")));
        }
        let Some(text) = &self.iterator else {
            return Ok(PageRequest { limit, towards: Towards::Older, beyond: Uuid::max() });
        };
        let read = read(text, 16).and_then(|(towards, key)| Some((towards, Uuid::from_slice(&key).ok()?)));
        let (towards, beyond) = read.ok_or_else(|| {
            Problem::invalid_parameter("iterator", "must be a value that an earlier page of this list returned")
        })?;
        Ok(PageRequest { limit, towards, beyond })
    }
}

impl PageRequest {
    /// Returns the database query: one row more than the page, to detect the last page.
    pub(crate) fn ask(self) -> Keyset {
        Keyset { towards: self.towards, beyond: self.beyond, limit: i64::from(self.limit) + 1 }
    }

    /// Cuts a page out of a short list that was read as a whole, newest row first.
    pub(crate) fn page_of_all<R, T, I: Into<Uuid>>(
        self, mut rows: Vec<R>, id: impl Fn(&R) -> I, show: impl FnMut(R) -> T,
    ) -> Page<T> {
        match self.towards {
            Towards::Older => rows.retain(|row| id(row).into() < self.beyond),
            Towards::Newer => {
                rows.retain(|row| id(row).into() > self.beyond);
                rows.reverse();
            }
        }
        self.page(rows, id, show)
    }

    /// Builds a page from the rows of [`ask`](Self::ask), nearest row first.
    pub(crate) fn page<R, T, I: Into<Uuid>>(
        self, rows: Vec<R>, id: impl Fn(&R) -> I, show: impl FnMut(R) -> T,
    ) -> Page<T> {
        self.page_of_search(rows, None, id, show)
    }

    /// Builds a page of a search that stopped at the id `looked_to`, beyond which more rows may match.
    pub(crate) fn page_of_search<R, T, I: Into<Uuid>>(
        self, mut rows: Vec<R>, looked_to: Option<Uuid>, id: impl Fn(&R) -> I, show: impl FnMut(R) -> T,
    ) -> Page<T> {
        let is_full = rows.len() > usize::from(self.limit);
        rows.truncate(usize::from(self.limit));
        let further = if is_full { rows.last().map(|row| id(row).into()) } else { looked_to };
        let nearest = rows.first().map_or_else(|| stepped_back(self.beyond, self.towards), |row| id(row).into());
        let has_begun = self.beyond != Uuid::max();
        let (iterator, prev_iterator) = sides(self.towards, nearest, further, has_begun);
        let mut data: Vec<T> = rows.into_iter().map(show).collect();
        if self.towards == Towards::Newer {
            data.reverse();
        }
        Page { data, done: iterator.is_none(), iterator, prev_iterator, limit: self.limit }
    }
}

/// Returns the iterators of the older and the newer page. `towards` is the direction of this page, `nearest` its first key, and
/// `further` its last key if more rows follow. The first page has no newer one.
pub(crate) fn sides<K: AsRef<[u8]>>(
    towards: Towards, nearest: K, further: Option<K>, has_begun: bool,
) -> (Option<String>, Option<String>) {
    let further = further.map(|key| write(towards, key));
    match towards {
        Towards::Older => (further, has_begun.then(|| write(Towards::Newer, nearest))),
        Towards::Newer => (Some(write(Towards::Older, nearest)), further),
    }
}

/// Returns a key for the page in the opposite direction of an empty page, so that it includes the row `beyond`.
pub(crate) fn stepped_back(beyond: Uuid, towards: Towards) -> Uuid {
    let beyond = beyond.as_u128();
    Uuid::from_u128(match towards {
        Towards::Older => beyond.saturating_sub(1),
        Towards::Newer => beyond.saturating_add(1),
    })
}

/// Last byte of iterators that lead to newer rows.
const NEWER: u8 = 1;

/// Encodes the iterator of the page beyond a key.
pub(crate) fn write(towards: Towards, key: impl AsRef<[u8]>) -> String {
    let mut octets = key.as_ref().to_vec();
    octets.extend((towards == Towards::Newer).then_some(NEWER));
    base64url::encode(octets)
}

/// Decodes an iterator whose key has `octets` bytes.
pub(crate) fn read(iterator: &str, octets: usize) -> Option<(Towards, Vec<u8>)> {
    let decoded = base64url::decode(iterator)?;
    let (key, way) = decoded.split_at_checked(octets)?;
    match way {
        [] => Some((Towards::Older, key.to_vec())),
        [NEWER] => Some((Towards::Newer, key.to_vec())),
        _ => None,
    }
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    /// Rows in the order of the list, for both paging directions.
    pub data: Vec<T>,
    /// Iterator of the next page, with older rows. Null on the last page.
    pub iterator: Option<String>,
    /// Iterator of the previous page, with newer rows. Null on the first page.
    pub prev_iterator: Option<String>,
    /// Whether this is the last page.
    pub done: bool,
    /// Maximum rows of a page.
    pub limit: u16,
}

/// Returns the `Link` header (RFC 8288) with the next and previous page.
pub(crate) fn links(uri: &Uri, next: Option<&str>, prev: Option<&str>) -> Option<HeaderValue> {
    let link = |iterator: &str, rel: &str| {
        let query = uri.query().unwrap_or_default();
        let kept = url::form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name != "iterator");
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let query = query.extend_pairs(kept).append_pair("iterator", iterator).finish();
        format!("<{}?{query}>; rel=\"{rel}\"", uri.path())
    };
    let links = [next.map(|next| link(next, "next")), prev.map(|prev| link(prev, "prev"))];
    let links: Vec<String> = links.into_iter().flatten().collect();
    (!links.is_empty()).then(|| HeaderValue::try_from(links.join(", ")).ok()).flatten()
}

impl<T> Page<T> {
    /// Builds the only page of a list.
    pub(crate) fn complete(data: Vec<T>) -> Self {
        let limit = u16::try_from(data.len()).unwrap_or(u16::MAX);
        Self { data, iterator: None, prev_iterator: None, done: true, limit }
    }
}

impl<T: Serialize> Page<T> {
    /// Returns the response with a `Link` header (RFC 8288).
    pub(crate) fn answer(self, uri: &Uri) -> Response {
        let link = links(uri, self.iterator.as_deref(), self.prev_iterator.as_deref());
        let mut response = axum::Json(self).into_response();
        response.headers_mut().extend(link.map(|link| (header::LINK, link)));
        response
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/paging.rs"]
mod tests;
