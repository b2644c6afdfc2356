//! Parts of the API that any resource uses: credentials, limits, requests, responses, problems and pages.

pub(crate) mod app_ref;
pub(crate) mod auth;
pub(crate) mod caller;
pub(crate) mod cors;
pub(in crate::api) mod csv_cells;
pub(crate) mod etag;
pub(crate) mod extract;
pub(in crate::api) mod failover;
pub(crate) mod fair_semaphore;
pub(crate) mod hsts;
pub(crate) mod idempotency;
pub(crate) mod if_match;
pub(crate) mod keyed_lock;
pub(crate) mod known_apps;
pub(crate) mod known_keys;
pub(crate) mod limits;
pub(crate) mod location;
pub(crate) mod nul;
pub(crate) mod outgoing;
pub(crate) mod paging;
pub(crate) mod problem;
pub(crate) mod query_parameters;
pub(crate) mod remembered;
pub(crate) mod routes;
pub(crate) mod schema_errors;
pub(crate) mod signed_in;
pub(crate) mod tabular;
