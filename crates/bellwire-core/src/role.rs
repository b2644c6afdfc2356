//! Roles of teammates: each role includes the ones before it, and is granted for one app or for all.

use crate::id::AppId;
use crate::named;
use crate::scope::Scope;

named! {
    /// Role of a teammate in an app, or in all apps and the server, as stored in `teammate_roles.role`.
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
    /// The least role that may do what asks for that scope. The only place where that is decided.
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

/// A role on one app, or on all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Role in that app.
    pub role: Role,
    /// On this app; none: on all of them, and on the server itself.
    pub app: Option<AppId>,
}

/// All roles of one teammate: at most one for each app, and one for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants(pub Vec<Grant>);

impl Grants {
    /// Whether they allow what asks for that scope, of that app or (none) of the server itself. What concerns the server is
    /// never allowed by a role for one app.
    pub fn may(&self, app: Option<AppId>, scope: Scope) -> bool {
        let of_server = Scope::OF_SERVER.contains(&scope);
        self.0.iter().any(|grant| {
            let holds = grant.app.is_none() || (grant.app == app && !of_server);
            holds && grant.role >= Role::least_for(scope)
        })
    }

    /// Whether a role for that app exists. Without one, the app looks like one that does not exist.
    pub fn know(&self, app: AppId) -> bool {
        self.0.iter().any(|grant| grant.app.is_none_or(|of| of == app))
    }

    /// Whether they allow reading data of the server as a whole.
    pub fn may_watch_server(&self) -> bool {
        self.everywhere().is_some()
    }

    /// Returns the apps whose data they allow to read. `None`: all apps, and the server as a whole.
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
