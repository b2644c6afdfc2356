//! Authentication by the session cookie of a request.

use axum::http::request::Parts;
use uuid::Uuid;

use super::extract::Recheck;
use super::limits::KeyUsage;
use super::problem::Problem;
use crate::api::ApiState;
use crate::api::session::cookie::{self, Renewal};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::SessionId;
use bellwire_core::role::Grants;
use bellwire_store::keys::api_keys::{self, ApiKey};
use bellwire_store::keys::audit::Who;
use bellwire_store::keys::sessions::{self, Owner, Session};

#[derive(Debug, Clone)]
pub(crate) struct SignedIn {
    pub session: Session,
    /// Operator's key of the session. `None`: a teammate's session.
    pub key: Option<ApiKey>,
}

/// Session of a request and the roles of its teammate, as read at authentication. Stored in the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct Entered {
    pub session: SessionId,
    /// Roles of the teammate. Empty for a key's session.
    pub grants: Grants,
}

impl SignedIn {
    pub(crate) fn owner_id(&self) -> Uuid {
        match self.session.owner {
            Owner::Teammate(id) => id.into(),
            Owner::Key(id) => id.into(),
        }
    }

    pub(crate) fn who(&self) -> Who {
        match self.session.owner {
            Owner::Teammate(id) => Who::Teammate(id),
            Owner::Key(id) => Who::Operator(id),
        }
    }
}

/// Returns the caller of the session cookie, if a request has one. 401: the session has ended. 403: another site may have sent
/// the request. 429: the client has sent too many invalid cookies. Requests with a cookie skip the limits of anonymous clients,
/// so a cookie counts like a key.
pub(crate) async fn enter(parts: &mut Parts, state: &ApiState) -> Result<Option<SignedIn>, Problem> {
    let Some(text) = state.settings.cookies.shown(&parts.headers) else { return Ok(None) };
    let client = state.limits.client_of(&parts.headers, &parts.extensions);
    let now = state.clock.now();
    let checked = cookie::check_origin(&parts.method, &parts.headers);
    let token = match checked.and_then(|()| cookie::read(&state.vault, text, now).ok_or_else(ended)) {
        Ok(token) => token,
        Err(refused) => {
            state.limits.keys.attempt(text, client)?.failed();
            return Err(refused);
        }
    };
    // By its id: tokens are renewed all the time.
    let attempt = state.limits.keys.attempt(&token.session.to_string(), client)?;
    let Some(signed_in) = find(state, token.session, now).await? else {
        attempt.failed();
        return Err(ended());
    };
    let budget = attempt.succeeded(signed_in.owner_id())?;
    if let Some(account) = parts.extensions.get::<KeyUsage>() {
        account.note(budget);
    }
    if token.is_stale
        && let Some(renewal) = parts.extensions.get::<Renewal>()
    {
        let session = &signed_in.session;
        sessions::see(&state.pool, session.id, now).await?;
        renewal.note(state.settings.cookies.give(&state.vault, session.id, now, session.expires_at));
    }
    let (id, grants) = (signed_in.session.id, signed_in.session.grants.clone());
    parts.extensions.insert(Entered { session: id, grants: grants.clone() });
    parts.extensions.insert(Recheck::new(move |state| {
        let grants = grants.clone();
        async move { is_still(&state, id, &grants).await }
    }));
    Ok(Some(signed_in))
}

/// Returns a valid session with its key, if it is a key's session. `None`: the session or its key has ended.
async fn find(state: &ApiState, session: SessionId, now: Timestamp) -> sqlx::Result<Option<SignedIn>> {
    let Some(session) = sessions::find(&state.pool, session, now).await? else { return Ok(None) };
    let key = match session.owner {
        Owner::Teammate(_) => None,
        Owner::Key(id) => match api_keys::find_valid_of_server(&state.pool, id, now).await? {
            None => return Ok(None),
            key => key,
        },
    };
    Ok(Some(SignedIn { session, key }))
}

/// Checks that the session is still valid with the same roles. 401 otherwise.
async fn is_still(state: &ApiState, session: SessionId, grants: &Grants) -> Result<(), Problem> {
    let now = find(state, session, state.clock.now()).await?.ok_or_else(ended)?;
    if now.session.grants == *grants { Ok(()) } else { Err(ended()) }
}

/// Returns a 401 problem: the session does not exist or has ended.
pub(crate) fn ended() -> Problem {
    Problem::unauthorized("You are not signed in, or your session has ended.")
}
