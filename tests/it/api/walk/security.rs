//! Credentials of a request, and the response that the description promises for them.

use bellwire_core::scope::Scope;
use serde_json::Value;

use super::text;

/// Credential of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Nothing,
    /// No key and no token.
    Garbage,
    MadeUpKey,
    MadeUpToken,
    /// Keys of the app that had every scope.
    ExpiredKey,
    RevokedKey,
    /// Of another app, with every scope.
    KeyOfAnotherApp,
    /// With this scope alone.
    Key(Scope),
    TokenOfAnother,
    /// Of the subscription that the path names.
    Token,
    /// The cookie of a teammate with that role.
    Session(&'static str, On),
    /// One that has ended.
    EndedSession,
}

/// App or server to which a teammate's role applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    TheApp,
    AnotherApp,
    All,
}

/// From the least to the greatest.
const ROLES: [&str; 4] = ["viewer", "sender", "operator", "admin"];

fn rank(role: &str) -> usize {
    ROLES.iter().position(|known| *known == role).expect("a role")
}

impl Shown {
    pub fn all() -> Vec<Self> {
        let keys = Scope::OF_APPS.into_iter().chain(Scope::OF_SERVER).map(Self::Key);
        let sessions =
            ROLES.into_iter().flat_map(|role| [On::TheApp, On::AnotherApp, On::All].map(|on| Self::Session(role, on)));
        let others = [
            Self::Nothing,
            Self::Garbage,
            Self::MadeUpKey,
            Self::MadeUpToken,
            Self::ExpiredKey,
            Self::RevokedKey,
            Self::KeyOfAnotherApp,
            Self::TokenOfAnother,
            Self::Token,
            Self::EndedSession,
        ];
        others.into_iter().chain(keys).chain(sessions).collect()
    }
}

/// Parsed `security` of an operation.
#[derive(Debug, Default)]
pub struct Security {
    /// It may be called with nothing.
    pub anybody: bool,
    /// … by a browser with its subscription's token.
    pub token: bool,
    /// … with a key that has this scope.
    pub scopes: Vec<String>,
    /// Session of a signed-in teammate, with this role if one is named.
    pub session: Option<Option<String>>,
    /// That role is enough on any app: what is shown is of those on which it is held.
    pub any_app: bool,
    /// The path names an app, and what is done concerns that alone.
    pub of_app: bool,
    /// The path names something of the app.
    pub of_thing: bool,
}

impl Security {
    /// Parses the member. An operation without it is public.
    pub fn of(path: &str, operation: &Value) -> Self {
        let Some(ways) = operation["security"].as_array() else { return Self { anybody: true, ..Self::default() } };
        let mut read = Self::default();
        for way in ways {
            let way = way.as_object().expect("an object");
            read.anybody |= way.is_empty();
            read.token |= way.contains_key("browser_token");
            for scope in way.get("api_key").and_then(Value::as_array).into_iter().flatten() {
                read.scopes.push(scope.as_str().expect("a scope").to_owned());
            }
            if let Some(roles) = way.get("session").and_then(Value::as_array) {
                read.session = Some(roles.first().map(text));
                read.any_app = roles.iter().any(|role| role == "any_app");
            }
        }
        read.of_thing = path.contains('{');
        read.of_app = path.starts_with("/v1/apps/{app}") && read.scopes != [Scope::Operator.name()];
        read
    }

    /// Expected status of a refusal. `None`: the request is allowed.
    pub fn refusal(&self, shown: Shown) -> Option<u16> {
        if self.anybody && !self.token && self.scopes.is_empty() {
            return None; // the credential is not checked
        }
        match shown {
            Shown::EndedSession => Some(401),
            Shown::Session(held, on) => self.refusal_of_teammate(held, on),
            // What takes a session takes no key; what takes a role in one knows keys and lets none in.
            Shown::KeyOfAnotherApp | Shown::Key(_) if self.scopes.is_empty() => {
                Some(if self.session == Some(None) { 401 } else { 403 })
            }
            Shown::Nothing => (!self.anybody).then_some(401),
            Shown::Garbage | Shown::MadeUpKey | Shown::MadeUpToken | Shown::ExpiredKey | Shown::RevokedKey => Some(401),
            // For operators only, a key of an app lacks the scope whichever app it is of.
            Shown::KeyOfAnotherApp if self.scopes == [Scope::Operator.name()] => Some(403),
            Shown::KeyOfAnotherApp => Some(404),
            Shown::Key(Scope::Operator) => None,
            Shown::Key(scope) => (!self.scopes.iter().any(|needed| needed == scope.name())).then_some(403),
            Shown::TokenOfAnother | Shown::Token if !self.token => Some(401),
            Shown::TokenOfAnother => (!self.anybody).then_some(404),
            Shown::Token => None,
        }
    }

    fn refusal_of_teammate(&self, held: &str, on: On) -> Option<u16> {
        let needed = self.session.as_ref().expect("whatever takes a key or a token takes a role");
        let Some(needed) = needed else { return None };
        match on {
            On::AnotherApp if self.of_app || self.any_app && self.of_thing => Some(404),
            On::TheApp | On::AnotherApp if !self.of_app && !self.any_app => Some(403),
            _ => (rank(held) < rank(needed)).then_some(403),
        }
    }
}
