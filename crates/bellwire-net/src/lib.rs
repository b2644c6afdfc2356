//! HTTP in and out, except push services: the server's listener, the bounded HTTPS client, certificates by ACME, and sign-in at an
//! OpenID provider.

#![allow(missing_docs, reason = "internal to the server: names and types document most items")]

pub mod acme;
pub mod http_server;
pub mod oidc;
pub mod outbound;
