//! The target of a probe.

use crate::association::Tls;
use kiban_osi::Selectors;
use kiban_osi::session::Versions;
use std::time::Duration;

/// The peer to probe, and how to reach it.
#[derive(Clone)]
pub struct Target {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// TLS settings; `None` connects without TLS.
    pub tls: Option<Tls>,
    /// Called selectors, if the peer requires them.
    pub called: Selectors,
    /// The session versions to propose; `None` finds out which proposal the peer answers.
    pub versions: Option<Versions>,
    /// The identity used for FTAM.
    pub caller: Caller,
    /// The time limit for one question.
    pub timeout: Duration,
}

/// The FTAM user for the probe. Without a user name, no initiator identity is sent.
#[derive(Clone, Default)]
pub struct Caller {
    /// The initiator identity.
    pub user: Option<String>,
    /// The filestore password.
    pub password: Option<String>,
}
