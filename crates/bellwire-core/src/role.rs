//! Roles of teammates. Each role includes the previous ones, and is granted for one app or for all.

use serde::Serialize;

use crate::id::AppId;
use crate::named;
use crate::scope::Scope;

named! {
    /// Role of a teammate in an app, or in all apps and the server.
    #[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
    pub enum Role {
        /// Reads everything but secrets and what dead letters hold.
        Viewer = "viewer",
        /// Sends messages too, and stops, resumes and repeats what was sent.
        Sender = "sender",
        /// Looks after subscriptions, policies and settings too; for all apps, runs the server: gateways, alerts, apps.
        Operator = "operator",
        /// Does everything: keys and exports too; for all apps, the team.
        Admin = "admin",
    }
}

impl Role {
    /// Returns the lowest role that has the scope. No other code decides this.
    pub const fn least_for(scope: Scope) -> Self {
        match scope {
            Scope::Read => Self::Viewer,
            // A role that may send must be able to stop a mistake.
            Scope::Send | Scope::Messages => Self::Sender,
            Scope::Subscribers | Scope::Policies | Scope::Settings | Scope::Operator | Scope::Metrics => Self::Operator,
            Scope::Keys | Scope::Export => Self::Admin,
        }
    }
}

/// Role of a teammate for one app or for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = GrantResponse))]
pub struct Grant {
    /// Role of the teammate.
    pub role: Role,
    /// App of the role. Null: all apps, and the server itself.
    pub app: Option<AppId>,
}

/// All roles of one teammate: at most one for each app, and one for all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Grants(pub Vec<Grant>);

/// Reads the roles from the database. Unknown roles are skipped.
impl From<Vec<(String, Option<AppId>)>> for Grants {
    fn from(rows: Vec<(String, Option<AppId>)>) -> Self {
        Self(rows.into_iter().filter_map(|(role, app)| Some(Grant { role: Role::from_name(&role)?, app })).collect())
    }
}

impl Grants {
    /// Whether they include the scope for an app or (`None`) the server. A role for one app never includes scopes of the
    /// server.
    pub fn may(&self, app: Option<AppId>, scope: Scope) -> bool {
        let of_server = Scope::OF_SERVER.contains(&scope);
        self.0.iter().any(|grant| {
            let holds = grant.app.is_none() || (grant.app == app && !of_server);
            holds && grant.role >= Role::least_for(scope)
        })
    }

    /// Whether any role covers the app. Without one, the app is reported as missing.
    pub fn know(&self, app: AppId) -> bool {
        self.0.iter().any(|grant| grant.app.is_none_or(|of| of == app))
    }

    /// Whether they include reading data of the whole server.
    pub fn may_watch_server(&self) -> bool {
        self.everywhere().is_some()
    }

    /// Returns the apps whose data they allow to read. `None`: all apps, and the server.
    pub fn apps(&self) -> Option<Vec<AppId>> {
        match self.may_watch_server() {
            true => None,
            false => Some(self.0.iter().filter_map(|grant| grant.app).collect()),
        }
    }

    /// Whether the teammate may change the team.
    pub fn may_change_team(&self) -> bool {
        self.everywhere() == Some(Role::Admin)
    }

    fn everywhere(&self) -> Option<Role> {
        self.0.iter().filter(|grant| grant.app.is_none()).map(|grant| grant.role).max()
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/role.rs"]
mod tests;
