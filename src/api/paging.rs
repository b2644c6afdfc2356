//! Lists by opaque cursor, newest first: stable while rows come and go, and as cheap on the last page as on the first.

use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::problem::Problem;
use crate::model::base64url;

/// Rows in a page unless the request says otherwise.
const LIMIT_DEFAULT: u16 = 50;
/// Most rows in a page.
const LIMIT_MAX: u16 = 250;

/// How much of a list is wanted.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// Rows per page, 1 to 250; 50 by default.
    pub limit: Option<u16>,
    /// `iterator` of the page before.
    pub iterator: Option<String>,
}

/// A checked [`Paging`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// Rows in the page.
    pub limit: u16,
    /// Where the page begins: with the first id below this.
    pub before: Uuid,
}

impl Paging {
    /// Checks limit and iterator.
    pub(crate) fn cut(&self) -> Result<Cut, Problem> {
        let limit = self.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Problem::invalid_parameter("limit", format!("must be 1 to {LIMIT_MAX}")));
        }
        let before = match &self.iterator {
            None => Uuid::max(),
            Some(text) => base64url::decode(text)
                .and_then(|octets| Uuid::from_slice(&octets).ok())
                .ok_or_else(|| Problem::invalid_parameter("iterator", "is not one that a page of this list gave"))?,
        };
        Ok(Cut { limit, before })
    }
}

impl Cut {
    /// Rows to ask the database for: one more than the page, to see whether it is the last.
    pub(crate) fn ask(self) -> i64 {
        i64::from(self.limit) + 1
    }

    /// Makes a page of what the database gave for [`ask`](Self::ask).
    pub(crate) fn page<R, T, I: Into<Uuid>>(
        self,
        mut rows: Vec<R>,
        id: impl Fn(&R) -> I,
        show: impl FnMut(R) -> T,
    ) -> Page<T> {
        let done = rows.len() <= usize::from(self.limit);
        rows.truncate(usize::from(self.limit));
        let iterator = if done { None } else { rows.last().map(|row| base64url::encode(id(row).into())) };
        Page { data: rows.into_iter().map(show).collect(), iterator, done, limit: self.limit }
    }
}

/// A number in the form that cursors have.
pub(crate) fn number_cursor(number: i32) -> Uuid {
    Uuid::from_u128(u128::from(number.unsigned_abs()))
}

impl Cut {
    /// Where the page begins, in a list by numbers.
    pub(crate) fn below(self) -> i32 {
        i32::try_from(self.before.as_u128()).unwrap_or(i32::MAX)
    }
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    /// The rows.
    pub data: Vec<T>,
    /// What to ask the next page with; null on the last one.
    pub iterator: Option<String>,
    /// Whether this is the last page.
    pub done: bool,
    /// Rows per page.
    pub limit: u16,
}

/// An RFC 8288 `Link` from a page to the next one.
pub(crate) fn next_link(uri: &Uri, iterator: &str) -> Option<HeaderValue> {
    let kept =
        url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).filter(|(name, _)| name != "iterator");
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(kept)
        .append_pair("iterator", iterator)
        .finish();
    HeaderValue::try_from(format!("<{}?{query}>; rel=\"next\"", uri.path())).ok()
}

impl<T> Page<T> {
    /// The same of a list that was looked through no further than to that id: there may be more behind it.
    pub(crate) fn looked_through_to(mut self, id: Option<Uuid>) -> Self {
        if let Some(id) = id.filter(|_| self.done) {
            (self.iterator, self.done) = (Some(base64url::encode(id)), false);
        }
        self
    }
}

impl<T: Serialize> Page<T> {
    /// The answer, with an RFC 8288 `Link` to the next page.
    pub(crate) fn answer(self, uri: &Uri) -> Response {
        let link = self.iterator.as_deref().and_then(|iterator| next_link(uri, iterator));
        let mut response = axum::Json(self).into_response();
        if let Some(link) = link {
            response.headers_mut().insert(header::LINK, link);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_knows_whether_it_is_the_last_and_where_the_next_begins() {
        let paging = Paging { limit: Some(2), iterator: None };
        let cut = paging.cut().unwrap();
        let ids: Vec<Uuid> = (1..=3).rev().map(Uuid::from_u128).collect();
        let page = cut.page(ids.clone(), |id| *id, |id| id);
        assert_eq!((page.data.as_slice(), page.done), (&ids[..2], false));
        let next = Paging { limit: None, iterator: page.iterator.clone() }.cut().unwrap();
        assert_eq!(next.before, Uuid::from_u128(2));
        let response = page.answer(&"/v1/x?a=1&iterator=old&limit=2".parse().unwrap());
        let link = response.headers()[header::LINK].to_str().unwrap();
        assert!(link.starts_with("</v1/x?a=1&limit=2&iterator=") && link.ends_with("rel=\"next\""), "{link}");
        let last = cut.page(ids[..2].to_vec(), |id| *id, |id| id);
        assert!(last.done && last.iterator.is_none());
    }

    #[test]
    fn wrong_limits_and_iterators_are_refused() {
        for limit in [0, 251] {
            assert!(Paging { limit: Some(limit), iterator: None }.cut().is_err());
        }
        assert!(Paging { limit: None, iterator: Some("x".into()) }.cut().is_err());
    }
}
