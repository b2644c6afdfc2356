//! The description of the API, OpenAPI 3.1, made from the handlers and served at `/openapi.json`.

use axum::Router;
use axum::body::Bytes;
use axum::http::header;
use axum::routing::get;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, ContentBuilder, OpenApi, Ref, RefOr, ResponseBuilder};
use utoipa::{PartialSchema as _, ToSchema as _};

use super::ApiState;
use super::problem::{Details, FieldError};

const ABOUT: &str = "Self-hosted web-push delivery.

Every route may refuse a body that is too large (413, `body_too_large`) or takes too long (408, `body_too_slow`), and \
whoever asks too often: 429 (`rate_limited`) with `Retry-After`. `RateLimit` and `RateLimit-Policy` tell what is left: of \
the `key`'s limit to servers, of the `client`'s, the IPv6 `network`'s or that of `receipts` to browsers. API keys that are \
not valid count against their client, too (`keys`). No path or query value may hold NUL (400).";

/// What the handlers cannot say of themselves: title, keys, and that every route may answer with a problem.
pub fn complete(mut api: OpenApi) -> OpenApi {
    api.info.title = "Bellwire".into();
    api.info.version = env!("CARGO_PKG_VERSION").into();
    api.info.description = Some(ABOUT.into());
    api.info.license = None;
    let components = api.components.get_or_insert_with(Components::new);
    let bearer = |description: &str| {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description.to_owned()));
        SecurityScheme::Http(scheme.build())
    };
    components.add_security_scheme("api_key", bearer("An API key, `bw_…`, with the scope that the route names."));
    components.add_security_scheme("browser_token", bearer("A subscription's own token, `bt_…`."));
    components.schemas.insert(Details::name().into_owned(), Details::schema());
    components.schemas.insert(FieldError::name().into_owned(), FieldError::schema());
    let problem = ResponseBuilder::new()
        .description("A problem (RFC 9457)")
        .content(
            "application/problem+json",
            ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build(),
        )
        .build();
    for item in api.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        for operation in operations.into_iter().flatten() {
            operation.responses.responses.insert("default".into(), RefOr::T(problem.clone()));
        }
    }
    api
}

/// The route that serves it, written down once.
pub fn route(api: OpenApi) -> Router<ApiState> {
    let text = complete(api).to_json().expect("a description consists of strings and numbers");
    let text = Bytes::from(text);
    Router::new().route("/openapi.json", get(|| async move { ([(header::CONTENT_TYPE, "application/json")], text) }))
}
