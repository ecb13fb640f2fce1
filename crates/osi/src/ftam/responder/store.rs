//! The resources that the caller passes to a responder.

use crate::ftam::filestore::{Authenticator, Concurrency, Disk};

/// The resources that the caller passes to a responder for the duration of a call.
pub struct Store<'a> {
    /// The files.
    pub disk: &'a mut dyn Disk,
    /// The locks.
    pub locks: &'a mut dyn Concurrency,
    /// The authentication of initiators.
    pub authenticator: &'a mut dyn Authenticator,
}
