//! Association control (X.227): kernel and authentication functional units.
//!
//! Purpose          two application entities identify each other, agree on an application context, and
//!                  release the association in an orderly way.
//! Encoding         each APDU is the user data of the presentation primitive to which it is mapped, in ACSE's
//!                  own presentation context.
//! Bypassing ACSE   P-DATA, P-SYNC-MINOR and similar primitives pass directly between the presentation layer
//!                  and the user. The owner of the stack reports a P-RESYNCHRONIZE with
//!                  [`Acse::on_resynchronise`], since it cancels a release in progress (§7.2.3.6).
//! Errors           an unexpected or malformed APDU is answered with ABRT (source: provider) and indicated as
//!                  A-ABORT (§7.3.3.4); a malformed AARQ is not indicated.
//! Authentication   the user provides and verifies the mechanism and the value. If the functional unit was
//!                  not negotiated, received authentication parameters are dropped.
//! State            `state.rs` is the table of Annex A.
//! Limits           the same as the presentation layer's.
//! Not implemented  negotiation of application contexts; passive release of the layers above.

mod counters;
mod machine;
mod primitives;
pub mod state;
#[cfg(test)]
mod tests;

pub use counters::Counters;
pub use machine::Acse;
pub use primitives::{Abort, Associate, AssociateAnswer, Authentication, EntityName, Indication, Request};
