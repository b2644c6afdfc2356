//! Registers handlers. Their argument types add the allowed callers and parameters to the OpenAPI description.

use std::mem::take;

use axum::extract::{Extension, RawQuery, Request, State};
use axum::handler::Handler;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use utoipa::IntoParams;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::{RefOr, SecurityRequirement};
use utoipa_axum::router::UtoipaMethodRouter;

use super::auth::{Needed, Onlooker, Operator, RegistrationCaller, Server, TeamAdmin, Watcher};
use super::draft::Draft;
use super::extract::{Json, PathId, Query};
use super::idempotency::{Making, Pending};
use crate::api::ApiState;
use bellwire_core::role::Role;
use bellwire_core::scope::Scope;

/// Registers the handlers of one path, as [`utoipa_axum::routes`] does, with descriptions from their arguments.
macro_rules! routes {
    ($($handler:path),+) => {{
        let mut routes = $crate::api::http::routes::PathRoutes::default();
        $(routes.add(utoipa_axum::routes!($handler), &$handler);)+
        routes.0
    }};
}
pub(crate) use routes;

/// Handlers of one path.
#[derive(Default)]
pub(crate) struct PathRoutes(pub UtoipaMethodRouter<ApiState>);

impl PathRoutes {
    pub(crate) fn add<H, T>(&mut self, (schemas, mut paths, methods): UtoipaMethodRouter<ApiState>, _handler: &H)
    where
        H: Handler<T, ApiState>,
        T: Arguments,
    {
        for item in paths.paths.values_mut() {
            let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
            operations.into_iter().flatten().for_each(T::describe);
        }
        self.0.0.extend(schemas);
        self.0.1.merge(paths);
        self.0.2 = take(&mut self.0.2).merge(methods);
    }
}

/// A way to authenticate: name of a security scheme, with required scopes or roles.
pub(crate) type Access = (&'static str, &'static [&'static str]);

/// Argument type of a handler, which can describe itself in OpenAPI.
pub(crate) trait Argument {
    const ACCESS: &'static [Access] = &[];

    fn parameters() -> Vec<Parameter> {
        Vec::new()
    }
}

/// Adds the description of an argument to an operation. Query parameters come before header parameters.
fn describe<T: Argument>(operation: &mut Operation) {
    let parameters = T::parameters();
    if !parameters.is_empty() {
        operation.parameters.get_or_insert_default().splice(..0, parameters.into_iter().map(RefOr::T));
    }
    let access = T::ACCESS.iter().map(|(scheme, scopes)| SecurityRequirement::new(*scheme, scopes.iter().copied()));
    operation.security.get_or_insert_default().extend(access);
}

/// The arguments of a handler.
pub(crate) trait Arguments {
    fn describe(operation: &mut Operation);
}

macro_rules! arguments {
    ($($T:ident)*) => {
        /// `Via` is axum's marker type for the extraction of the last argument.
        impl<Via, $($T: Argument),*> Arguments for (Via, $($T,)*) {
            fn describe(_operation: &mut Operation) {
                $(describe::<$T>(_operation);)*
            }
        }
    };
}
arguments!();
arguments!(A);
arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);
arguments!(A B C D E F);

impl<S: Needed> Argument for Server<S> {
    const ACCESS: &'static [Access] =
        &[("api_key", &[S::SCOPE.name()]), ("session", &[Role::least_for(S::SCOPE).name()])];
}

impl<S: Needed> Argument for RegistrationCaller<S> {
    const ACCESS: &'static [Access] = &[("browser_token", &[]), Server::<S>::ACCESS[0], Server::<S>::ACCESS[1]];
}

impl Argument for Operator {
    const ACCESS: &'static [Access] = &[OPERATOR_KEY, ("session", &[Role::least_for(Scope::Operator).name()])];
}

impl Argument for Watcher {
    const ACCESS: &'static [Access] = &[OPERATOR_KEY, ("session", &[Role::Viewer.name()])];
}

impl Argument for Onlooker {
    const ACCESS: &'static [Access] = &[OPERATOR_KEY, ("session", &[Role::Viewer.name(), "any_app"])];
}

impl Argument for TeamAdmin {
    const ACCESS: &'static [Access] = &[("session", &[Role::Admin.name()])];
}

const OPERATOR_KEY: Access = ("api_key", &[Scope::Operator.name()]);

impl<T: IntoParams> Argument for Query<T> {
    fn parameters() -> Vec<Parameter> {
        T::into_params(|| Some(ParameterIn::Query))
    }
}

/// Path parameters are derived from the path; utoipa describes bodies.
impl<T> Argument for PathId<T> {}
impl<T> Argument for Draft<T> {}
impl<T> Argument for Json<T> {}
impl<T> Argument for Making<T> {}
impl<T> Argument for State<T> {}
impl<T> Argument for Extension<T> {}
impl<T> Argument for Option<Extension<T>> {}
impl Argument for HeaderMap {}
impl Argument for Parts {}
impl Argument for Pending {}
impl Argument for RawQuery {}
impl Argument for Request {}
impl Argument for Uri {}
