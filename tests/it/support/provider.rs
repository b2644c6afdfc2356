//! A small OpenID provider without code of the server: discovery, keys, authorization and tokens, over plain HTTP on this machine. It
//! checks like a real provider (codes work once, with the right secret, redirect and PKCE verifier). Tests can make it misbehave.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{self, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bellwire::testkit::api::OidcSignInConfig;
use bellwire_net::oidc::{self, ClientSecret, OidcConfig};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use url::Url;

use super::app::PATIENCE;

const CLIENT: &str = "bellwire";
const SECRET: &str = "a client's secret: with & and ü";
/// Callback URL of the server, as registered at the provider.
const REDIRECT: &str = "https://push.example/v1/session/oidc/callback";

/// Start of the API tests. Tokens are valid for a day.
pub const NOW_S: i64 = 1_800_000_000;

/// Signature of ID tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signing {
    Rs256,
    Es256,
    /// By a key that is not among the published ones, under the name of one that is.
    Stolen,
    /// By the client's secret, which is readable in its settings.
    Hs256,
    /// Not at all.
    None,
}

/// Misbehaviour of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It never answers.
    Silent,
    /// It answers with 2 MiB.
    Huge,
    /// It sends the client elsewhere, where the right answer is.
    Redirect,
    /// It fails.
    Broken,
}

/// A change of claims before they are signed.
pub type Twist = Box<dyn Fn(&mut Value) + Send + Sync>;

struct Keys {
    kid: String,
    es256: EcdsaKeyPair,
}

impl Keys {
    fn new(n: u32) -> Self {
        let es256 = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self { kid: n.to_string(), es256 }
    }
}

/// To make one takes long.
static RSA: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate(KeySize::Rsa2048).unwrap());

/// User who signed in at the provider.
struct Granted {
    claims: Value,
    redirect: String,
    challenge: String,
}

struct Inner {
    issuer: String,
    keys: Mutex<Keys>,
    signing: Mutex<Signing>,
    twist: Mutex<Option<Twist>>,
    faults: Mutex<HashMap<&'static str, Fault>>,
    codes: Mutex<HashMap<String, Granted>>,
    /// Requests by path.
    asked: Mutex<HashMap<String, usize>>,
}

/// The provider.
#[derive(Clone)]
pub struct Provider(Arc<Inner>);

pub const DISCOVERY: &str = "/.well-known/openid-configuration";
pub const KEYS: &str = "/keys";
pub const TOKEN: &str = "/token";
pub const ELSEWHERE: &str = "/elsewhere";

impl Provider {
    /// Starts one.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let provider = Self(Arc::new(Inner {
            issuer: format!("http://{}", listener.local_addr().unwrap()),
            keys: Mutex::new(Keys::new(1)),
            signing: Mutex::new(Signing::Rs256),
            twist: Mutex::default(),
            faults: Mutex::default(),
            codes: Mutex::default(),
            asked: Mutex::default(),
        }));
        let router = Router::new().fallback(answer).with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }

    /// Configuration of a server for this provider.
    pub fn settings(&self) -> OidcConfig {
        OidcConfig {
            issuer: self.issuer().to_owned(),
            client_id: CLIENT.to_owned(),
            client_secret: ClientSecret::new(SECRET.to_owned()),
            redirect_url: REDIRECT.to_owned(),
            extra_ca_pem: None,
            egress: None,
            timeout: PATIENCE,
        }
    }

    pub fn issuer(&self) -> &str {
        &self.0.issuer
    }

    pub fn sign_by(&self, signing: Signing) {
        *self.0.signing.lock() = signing;
    }

    /// Changes the claims of the next tokens.
    pub fn twist(&self, twist: impl Fn(&mut Value) + Send + Sync + 'static) {
        *self.0.twist.lock() = Some(Box::new(twist));
    }

    pub fn fail(&self, path: &'static str, fault: Fault) {
        self.0.faults.lock().insert(path, fault);
    }

    /// Does everything right again.
    pub fn behave(&self) {
        self.0.faults.lock().clear();
        *self.0.twist.lock() = None;
        self.sign_by(Signing::Rs256);
    }

    /// Signs by another key from now on, and publishes it alone.
    pub fn change_keys(&self) {
        let mut keys = self.0.keys.lock();
        let n: u32 = keys.kid.parse().unwrap();
        *keys = Keys::new(n + 1);
    }

    /// Number of requests to a path.
    pub fn asked(&self, path: &str) -> usize {
        self.0.asked.lock().get(path).copied().unwrap_or(0)
    }

    /// Signs a user in at the provider's page and returns the query of the callback. `url` is the server's redirect.
    #[track_caller]
    pub fn let_through(&self, url: &str, subject: &str, email: &str) -> String {
        let url = Url::parse(url).unwrap();
        assert_eq!(
            format!("{}{}", url.origin().ascii_serialization(), url.path()),
            format!("{}/authorize", self.issuer())
        );
        let asked: HashMap<String, String> = url.query_pairs().into_owned().collect();
        let said = |name: &str| asked.get(name).map_or("", String::as_str);
        for (name, value) in [
            ("response_type", "code"),
            ("client_id", CLIENT),
            ("redirect_uri", REDIRECT),
            ("scope", "openid email"),
            ("code_challenge_method", "S256"),
        ] {
            assert_eq!(said(name), value, "{name}");
        }
        assert!(
            said("state").len() >= 22 && said("nonce").len() >= 22 && said("code_challenge").len() == 43,
            "{asked:?}"
        );
        let claims = json!({
            "iss": self.issuer(), "aud": CLIENT, "sub": subject, "email": email, "email_verified": true,
            "iat": NOW_S, "exp": NOW_S + 86_400, "nonce": said("nonce"),
        });
        let mut codes = self.0.codes.lock();
        let code = format!("code-{}-{}", codes.len(), uuid::Uuid::now_v7());
        let granted =
            Granted { claims, redirect: said("redirect_uri").to_owned(), challenge: said("code_challenge").to_owned() };
        codes.insert(code.clone(), granted);
        let query = [("state", said("state")), ("code", code.as_str()), ("session_state", "beside the standard")];
        format!("?{}", serde_urlencoded::to_string(query).unwrap())
    }

    fn discovery(&self) -> Value {
        let issuer = self.issuer();
        json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}{TOKEN}"),
            "jwks_uri": format!("{issuer}{KEYS}"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            // More than the server is to take.
            "id_token_signing_alg_values_supported": ["RS256", "ES256", "HS256", "none"],
        })
    }

    fn published(&self) -> Value {
        let keys = self.0.keys.lock();
        let point = keys.es256.public_key().as_ref();
        let rsa = RSA.public_key();
        let text = |octets: &[u8]| URL_SAFE_NO_PAD.encode(octets);
        json!({"keys": [
            {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": format!("rsa-{}", keys.kid),
             "n": text(rsa.modulus().big_endian_without_leading_zero()),
             "e": text(rsa.exponent().big_endian_without_leading_zero())},
            {"kty": "EC", "use": "sig", "crv": "P-256", "kid": format!("ec-{}", keys.kid),
             "x": text(&point[1..33]), "y": text(&point[33..65])},
        ]})
    }

    fn token(&self, headers: &HeaderMap, body: &[u8]) -> Response {
        let refuse = |code: &str| (StatusCode::BAD_REQUEST, Json(json!({"error": code}))).into_response();
        let form: HashMap<String, String> = serde_urlencoded::from_bytes(body).unwrap();
        let said = |name: &str| form.get(name).map_or("", String::as_str);
        // Both parts are form-encoded first (RFC 6749 section 2.3.1).
        let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let basic = format!("Basic {}", STANDARD.encode(format!("{}:{}", encoded(CLIENT), encoded(SECRET))));
        if headers.get(header::AUTHORIZATION).is_none_or(|shown| *shown != *basic) {
            return refuse("invalid_client");
        }
        let Some(granted) = self.0.codes.lock().remove(said("code")) else { return refuse("invalid_grant") };
        let proof = URL_SAFE_NO_PAD.encode(digest(&SHA256, said("code_verifier").as_bytes()));
        if proof != granted.challenge || said("redirect_uri") != granted.redirect {
            return refuse("invalid_grant");
        }
        let mut claims = granted.claims;
        if let Some(twist) = &*self.0.twist.lock() {
            twist(&mut claims);
        }
        let token = self.sign(&claims);
        Json(json!({"access_token": "opaque", "token_type": "Bearer", "expires_in": 300, "id_token": token}))
            .into_response()
    }

    fn sign(&self, claims: &Value) -> String {
        let (keys, signing) = (self.0.keys.lock(), *self.0.signing.lock());
        let (alg, kid) = match signing {
            Signing::Rs256 => ("RS256", format!("rsa-{}", keys.kid)),
            Signing::Es256 | Signing::Stolen => ("ES256", format!("ec-{}", keys.kid)),
            Signing::Hs256 => ("HS256", format!("ec-{}", keys.kid)),
            Signing::None => ("none", String::new()),
        };
        let header = json!({"alg": alg, "kid": kid, "typ": "JWT"});
        let parts = [header, claims.clone()].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = parts.join(".");
        let (rng, message) = (SystemRandom::new(), signed.as_bytes());
        let signature = match signing {
            Signing::Rs256 => {
                let mut signature = vec![0; RSA.public_modulus_len()];
                RSA.sign(&signature::RSA_PKCS1_SHA256, &rng, message, &mut signature).unwrap();
                signature
            }
            Signing::Es256 => keys.es256.sign(&rng, message).unwrap().as_ref().to_vec(),
            Signing::Stolen => Keys::new(0).es256.sign(&rng, message).unwrap().as_ref().to_vec(),
            Signing::Hs256 => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), message).as_ref().to_vec()
            }
            Signing::None => Vec::new(),
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

async fn answer(State(provider): State<Provider>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    *provider.0.asked.lock().entry(path.clone()).or_default() += 1;
    let fault = provider.0.faults.lock().get(path.as_str()).copied();
    match fault {
        Some(Fault::Silent) => std::future::pending::<()>().await,
        Some(Fault::Huge) => {
            let padded = format!("{}{}", provider.discovery(), " ".repeat(2 << 20));
            return ([(header::CONTENT_TYPE, "application/json")], padded).into_response();
        }
        Some(Fault::Redirect) => return (StatusCode::FOUND, [(header::LOCATION, ELSEWHERE)]).into_response(),
        Some(Fault::Broken) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        None => {}
    }
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    match path.as_str() {
        DISCOVERY | ELSEWHERE => Json(provider.discovery()).into_response(),
        KEYS => Json(provider.published()).into_response(),
        TOKEN => provider.token(&head.headers, &body),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Sign-in settings of a server for this provider.
pub fn oidc_config(provider: &Provider) -> OidcSignInConfig {
    let provider = oidc::Provider::new(provider.settings()).unwrap();
    OidcSignInConfig { provider, label: "Example".to_owned(), domains: Vec::new(), newcomers: None }
}
