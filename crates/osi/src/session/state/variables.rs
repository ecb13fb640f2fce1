//! The variables and parameters on which the predicates depend.

use crate::session::{Resynchronisation, Tokens, Units};

/// The variables of §A.5.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(in crate::session) struct Variables {
    /// FU(f): the selected functional units.
    pub(in crate::session) units: Units,
    /// OWNED(mi): this end holds the synchronise-minor token.
    pub(in crate::session) owns_minor: bool,
    /// The negation of Vtca: this end initiated the transport connection, and therefore the session
    /// connection.
    pub(in crate::session) initiator: bool,
    /// V(A): the lowest serial number whose confirmation is expected.
    pub(in crate::session) va: u32,
    /// V(M): the next serial number.
    pub(in crate::session) vm: u32,
    /// V(R): the lowest serial number to restart from.
    pub(in crate::session) vr: u32,
    /// Vsc: the user may confirm minor synchronisation points.
    pub(in crate::session) vsc: bool,
    /// Vcoll: both ends have requested the release.
    pub(in crate::session) vcoll: bool,
    /// Vdnr: DISCONNECT has been received after a collision.
    pub(in crate::session) vdnr: bool,
    /// Vrsp: the kind of resynchronisation in progress.
    pub(in crate::session) vrsp: Option<Resynchronisation>,
    /// Vrspnb: the serial number of that resynchronisation, if it is a restart.
    pub(in crate::session) vrspnb: u32,
    /// Discard-rcv-flow: received data is discarded until the resynchronisation ends.
    pub(in crate::session) discard: bool,
}

/// The parameters of an event on which predicates depend.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct Given {
    /// Serial number of the synchronisation point.
    pub(in crate::session) serial: u32,
    /// The kind of resynchronisation.
    pub(in crate::session) kind: Resynchronisation,
    /// Tokens given or requested.
    pub(in crate::session) tokens: Tokens,
    /// p204: there are more than 10240 octets of user data.
    pub(in crate::session) overflow: bool,
    /// p76: the CONNECT is not acceptable.
    pub(in crate::session) unacceptable: bool,
    /// p202: this SPDU ends the user data.
    pub(in crate::session) end: bool,
}

impl Default for Given {
    fn default() -> Given {
        Given {
            serial: 0,
            kind: Resynchronisation::Restart,
            tokens: Tokens::NONE,
            overflow: false,
            unacceptable: false,
            end: true,
        }
    }
}

impl Variables {
    pub(in crate::session) fn has(&self, units: Units) -> bool {
        self.units.has(units)
    }

    /// AV(mi): the synchronise-minor token is available.
    pub(in crate::session) fn has_minor(&self) -> bool {
        self.has(Units::MINOR_SYNCHRONISE)
    }

    /// ALL(AV, tokens): all of these tokens are available.
    pub(in crate::session) fn all_available(&self, tokens: Tokens) -> bool {
        tokens.is_empty() || tokens == Tokens::MINOR && self.has_minor()
    }

    /// p63: ALL(I, tk-dom). This end holds every token that is available.
    pub(in crate::session) fn may_release(&self) -> bool {
        !self.has_minor() || self.owns_minor
    }

    /// p68: ALL(A, tk-dom). The peer holds every token that is available.
    pub(in crate::session) fn peer_may_release(&self) -> bool {
        !self.has_minor() || !self.owns_minor
    }

    /// p21: the synchronisation point exists and is not yet confirmed.
    pub(in crate::session) fn is_outstanding(&self, serial: u32) -> bool {
        self.vm > serial && serial >= self.va
    }

    /// p25: restart and set are possible only if there are synchronisation points.
    pub(in crate::session) fn may_name_points(&self) -> bool {
        self.has(Units::RESYNCHRONISE) && self.has_minor()
    }

    /// SPMwinner (§A.5.4.6.1): returns whether the resynchronisation in progress prevails over the new one.
    pub(in crate::session) fn wins(&self, given: &Given, by_initiator: bool) -> bool {
        const fn rank(kind: Resynchronisation) -> u8 {
            match kind {
                Resynchronisation::Restart => 1,
                Resynchronisation::Set => 2,
                Resynchronisation::Abandon => 3,
            }
        }
        let Some(current) = self.vrsp else { return false };
        match rank(current).cmp(&rank(given.kind)) {
            core::cmp::Ordering::Greater => true,
            core::cmp::Ordering::Less => false,
            core::cmp::Ordering::Equal
                if current == Resynchronisation::Restart && self.vrspnb != given.serial =>
            {
                self.vrspnb < given.serial
            }
            core::cmp::Ordering::Equal => !by_initiator,
        }
    }
}
