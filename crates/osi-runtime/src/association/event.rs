//! Events of an association.

use kiban_osi::presentation;
use kiban_osi::wire::acse::{ReleaseRequestReason, ReleaseResponseReason};
use kiban_osi::wire::presentation::Pdv;

/// An indication or confirmation from the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A P-DATA: values, each with its context.
    Data(Vec<Pdv>),
    /// The peer requests a release; answer with `Association::answer_release`.
    ReleaseRequested {
        /// The peer's reason.
        reason: Option<ReleaseRequestReason>,
        /// The peer's user information.
        user_information: Vec<Pdv>,
    },
    /// The peer has confirmed the release, and the association has ended.
    Released {
        /// The peer's reason.
        reason: Option<ReleaseResponseReason>,
        /// The peer's user information.
        user_information: Vec<Pdv>,
    },
    /// Any other presentation indication: typed data, synchronisation points, tokens.
    Beside(Box<presentation::Indication>),
}
