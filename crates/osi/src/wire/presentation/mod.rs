//! The presentation protocol's data units (X.226 §8.2), normal mode.
//!
//! Purpose          one connection can carry several abstract syntaxes. Contexts are negotiated when the
//!                  connection is established, and every presentation data value names its context.
//! Control          CP, CPA, CPR, ARU, ARP, RS and RSA are ASN.1 types, decoded from contiguous bytes.
//! Data             TD, and all other PPDUs that consist only of [`UserData`], are decoded from ropes, and
//!                  encoded by prepending headers to ropes. [`UserData::from_rope`] and
//!                  [`UserData::into_rope`] copy no payload, whatever lengths and segments the peer has
//!                  chosen.
//! Limits           [`PDVS_MAX`] values in one data unit.
//! Not implemented  X.410-1984 mode; context management (AC, ACA) and restoration, which are never proposed;
//!                  nominated contexts, short and packed encodings (later amendments), which are ignored if
//!                  proposed, as §8.5.1 demands.

mod ppdu;
#[cfg(test)]
mod tests;
mod user_data;

pub use ppdu::{
    Abort, AbortReason, Arp, Aru, BER, ContextDefinition, ContextIdentifier, ContextReason, ContextResult,
    Cp, CpParameters, Cpa, CpaParameters, Cpr, DefaultContext, Event, Mode, ModeSelector, ProviderReason,
    Requirements, ResultCode, Resynchronise, SessionRequirements, Version,
};
pub use user_data::{PDVS_MAX, Pdv, PdvValue, UserData};
