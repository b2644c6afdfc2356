//! Callers: keys, teammates and the command line, with their permissions.

use std::fmt::Display;
use std::net::IpAddr;

use axum::http::request::Parts;
use uuid::Uuid;

use super::problem::Problem;
use crate::api::ApiState;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, TeammateId};
use bellwire_core::role::{Grants, Role};
use bellwire_core::scope::Scope;
use bellwire_store::keys::api_keys::ApiKey;
use bellwire_store::keys::audit::{Actor, AuditAction, AuditEntry, Who};

/// Identity and permissions of a caller.
#[derive(Debug, Clone)]
pub(crate) enum CallerIdentity {
    Local,
    Key(ApiKey),
    Teammate(TeammateId, Grants),
}

/// Identity of a caller: key, session or command line.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(super) holder: CallerIdentity,
    /// App in the request. `None`: the request concerns the whole server.
    pub(super) app: Option<AppId>,
    address: Option<IpAddr>,
}

impl Caller {
    pub(super) const LOCAL: Self = Self { holder: CallerIdentity::Local, app: None, address: None };

    pub(super) fn new(holder: CallerIdentity, app: Option<AppId>, parts: &Parts, state: &ApiState) -> Self {
        Self { holder, app, address: state.limits.known_address(&parts.headers, &parts.extensions) }
    }

    /// Whether the caller has the scope for its app.
    pub(crate) fn may(&self, scope: Scope) -> bool {
        match &self.holder {
            CallerIdentity::Local => true,
            CallerIdentity::Key(key) => key.may(scope),
            CallerIdentity::Teammate(_, grants) => grants.may(self.app, scope),
        }
    }

    /// Returns a 403 problem unless the caller has the scope for its app.
    pub(crate) fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.may(scope) { Ok(()) } else { Err(self.lacks(scope, Role::least_for(scope))) }
    }

    /// Returns a 403 problem unless the caller has the scope for the whole server.
    pub(crate) fn require_for_server(&self, scope: Scope) -> Result<(), Problem> {
        match &self.holder {
            CallerIdentity::Key(key) if key.app.is_some() => {
                Err(Problem::forbidden(format!("This requires a key of the server with the scope `{}`.", scope.name())))
            }
            _ => Self { app: None, ..self.clone() }.require(scope),
        }
    }

    /// Returns a 403 problem that names the missing scope or role.
    pub(super) fn lacks(&self, scope: Scope, role: Role) -> Problem {
        Problem::forbidden(match (&self.holder, self.app) {
            (CallerIdentity::Teammate(..), Some(_)) => format!("This requires the role `{}` on this app.", role.name()),
            (CallerIdentity::Teammate(..), None) => format!("This requires the role `{}` for all apps.", role.name()),
            _ => format!("This requires an API key with the scope `{}`.", scope.name()),
        })
    }

    /// Returns the expiry of the caller's key. `None`: no expiry, or a session. What is created in a session does not end with
    /// it.
    pub(crate) fn expires_at(&self) -> Option<Timestamp> {
        if let CallerIdentity::Key(key) = &self.holder { key.expires_at } else { None }
    }

    /// Id of the key or teammate whose rate limit applies.
    pub(crate) fn counted_as(&self) -> Option<Uuid> {
        match &self.holder {
            CallerIdentity::Local => None,
            CallerIdentity::Key(key) => Some(key.id.into()),
            CallerIdentity::Teammate(id, _) => Some((*id).into()),
        }
    }

    /// App that its key acts for. `None`: no key, or a key of the server.
    pub(crate) fn key_app(&self) -> Option<AppId> {
        if let CallerIdentity::Key(key) = &self.holder { key.app } else { None }
    }

    pub(crate) fn actor(&self) -> Actor {
        let who = match &self.holder {
            CallerIdentity::Local => Who::Local,
            CallerIdentity::Key(key) if key.app.is_none() => Who::Operator(key.id),
            CallerIdentity::Key(key) => Who::ApiKey(key.id),
            CallerIdentity::Teammate(id, _) => Who::Teammate(*id),
        };
        Actor { who, address: self.address }
    }

    /// Returns the audit entry of an action on an app, or on the server (`None`). Write it in the same transaction.
    pub(crate) fn did(&self, app: Option<AppId>, action: AuditAction, target: impl Display) -> AuditEntry {
        AuditEntry::new(self.actor(), app, action, target)
    }
}
