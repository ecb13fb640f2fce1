//! What is requested, and how it is measured.

use super::names::Resolver;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;

/// What is requested.
#[derive(Clone, Debug)]
pub struct Target {
    /// The URL, for the report.
    pub url: String,
    /// The host: a name, or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The `Host` header.
    pub authority: String,
    /// The path and the query.
    pub path: String,
    /// The settings of TLS, and the name in the certificate; `None` for HTTP.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// How a request is measured.
#[derive(Clone, Debug)]
pub struct RequestOptions {
    /// The number of connections, each with two requests.
    pub count: usize,
    /// How long to pause between two connections.
    pub pause: Duration,
    /// How long each step may take.
    pub timeout: Duration,
    /// The resolver.
    pub resolver: Resolver,
}
