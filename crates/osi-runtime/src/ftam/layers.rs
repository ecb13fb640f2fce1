//! The protocol machines of an association: in this process, or on a board.
//!
//! Here        [`End`]: the stack of all layers, over a connection to the peer.
//! On a board  [`UserSide`]: the state of the file service, over a stream of the board's OSI service. This
//!             process encodes and decodes no PDU of the layers below FTAM.

use kiban_base::{Bytes, Instant, RopeQueue};
use kiban_osi::ftam::{self, Machine, Role};
use kiban_osi::hif::UserSide;
use kiban_osi::network::Origin;
use kiban_osi::presentation::Refuser;
use kiban_osi::stack::end::End;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::stack::meter::Meter;
use kiban_osi::stack::stream::ConnectionAction;
use kiban_osi::transport::Disconnected;
use kiban_osi::wire::hif::Open;

/// The protocol machines of an association, for the endpoint that drives them.
pub(super) trait Layers {
    fn machine(&mut self) -> &mut Machine;
    fn room(&self) -> usize;
    fn arrive(&mut self, bytes: Bytes, now: Instant, meter: &mut impl Meter);
    fn ended(&mut self, origin: Origin, now: Instant, meter: &mut impl Meter);
    fn settle(&mut self, now: Instant, meter: &mut impl Meter) -> bool;
    fn outgoing(&mut self) -> &mut RopeQueue;
    fn is_over(&self) -> bool;
    fn deadline(&self) -> Instant;
    fn disconnected(&self) -> Option<&Disconnected>;
    /// Returns which layer of the peer refused the association, if it is known.
    fn refused(&self) -> Option<Refuser> {
        None
    }
    fn set_tsdu_bytes_max(&mut self, bytes: usize);
    /// Returns the first rule that the other end has broken.
    fn broken(&self) -> Option<&'static str>;
}

impl Layers for End {
    fn machine(&mut self) -> &mut Machine {
        End::machine(self)
    }

    fn room(&self) -> usize {
        End::room(self)
    }

    fn arrive(&mut self, bytes: Bytes, now: Instant, meter: &mut impl Meter) {
        End::arrive(self, bytes, now, meter);
    }

    fn ended(&mut self, origin: Origin, now: Instant, meter: &mut impl Meter) {
        End::ended(self, origin, now, meter);
    }

    fn settle(&mut self, now: Instant, meter: &mut impl Meter) -> bool {
        let moved = End::settle(self, now, meter);
        // The socket is already connected; see `client` and `serve`.
        let asks = self.connection_action() == ConnectionAction::Connect;
        if asks {
            self.connected(now, meter);
        }
        moved | asks
    }

    fn outgoing(&mut self) -> &mut RopeQueue {
        End::outgoing(self)
    }

    fn is_over(&self) -> bool {
        self.connection_action() == ConnectionAction::Close
    }

    fn deadline(&self) -> Instant {
        End::deadline(self)
    }

    fn disconnected(&self) -> Option<&Disconnected> {
        self.files().stack().disconnected()
    }

    fn refused(&self) -> Option<Refuser> {
        self.files().refused()
    }

    fn set_tsdu_bytes_max(&mut self, bytes: usize) {
        End::set_tsdu_bytes_max(self, bytes);
    }

    fn broken(&self) -> Option<&'static str> {
        End::broken(self).map(|rule| rule.name()).or_else(|| broken_above(self))
    }
}

impl Layers for UserSide {
    fn machine(&mut self) -> &mut Machine {
        UserSide::machine(self)
    }

    fn room(&self) -> usize {
        UserSide::room(self)
    }

    fn arrive(&mut self, bytes: Bytes, _: Instant, _: &mut impl Meter) {
        UserSide::arrive(self, bytes);
    }

    fn ended(&mut self, _: Origin, _: Instant, _: &mut impl Meter) {
        UserSide::ended(self);
    }

    fn settle(&mut self, _: Instant, _: &mut impl Meter) -> bool {
        UserSide::settle(self)
    }

    fn outgoing(&mut self) -> &mut RopeQueue {
        UserSide::outgoing(self)
    }

    fn is_over(&self) -> bool {
        UserSide::is_over(self)
    }

    fn deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn disconnected(&self) -> Option<&Disconnected> {
        UserSide::disconnected(self)
    }

    fn set_tsdu_bytes_max(&mut self, bytes: usize) {
        UserSide::set_tsdu_bytes_max(self, u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    fn broken(&self) -> Option<&'static str> {
        UserSide::broken(self).map(|rule| rule.name())
    }
}

/// Returns the machine of a user whose layers are in this process.
pub(super) fn machine(role: Role) -> Machine {
    Machine::new(ftam::Config { role, abstract_syntaxes: ftam::ABSTRACT_SYNTAXES.to_vec() })
}

/// Returns the side of a user whose layers are on a board.
pub(super) fn user_side(machine: Machine, role: Role, stack: &StackConfig) -> UserSide {
    let bytes = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let open = Open {
        role,
        tpdu_bytes_max: bytes(stack.transport.tpdu_bytes_max),
        tsdu_bytes_max: bytes(stack.transport.tsdu_bytes_max),
        called: stack.session.transport_called.clone(),
        calling: stack.session.transport_calling.clone(),
    };
    UserSide::new(machine, open)
}

/// Returns the machine of a user whose layers are on a board.
pub(super) fn machine_of_user(role: Role) -> Machine {
    Machine::user_side(ftam::Config { role, abstract_syntaxes: ftam::ABSTRACT_SYNTAXES.to_vec() })
}

/// Returns the first protocol error that a layer above TPKT has counted, if any.
fn broken_above(end: &End) -> Option<&'static str> {
    let (transport, session, presentation, acse) = end.files().stack().layers();
    let (transport, session) = (transport.counters(), session.counters());
    let rows = [
        (transport.tpdus_malformed, "malformed TPDU"),
        (transport.tpdus_unexpected, "unexpected TPDU"),
        (transport.tsdus_oversized, "TSDU too long"),
        (transport.connects_refused, "the transport connection was refused"),
        (transport.connects_timed_out, "the transport connection was not established in time"),
        (session.tsdus_malformed, "malformed SPDU"),
        (session.spdus_unexpected, "unexpected SPDU"),
        (session.ssdus_oversized, "SSDU too long"),
        (session.connects_refused, "the session was refused"),
        (presentation.counters.malformed_in, "malformed PPDU"),
        (presentation.counters.contexts_in, "unknown presentation context"),
        (presentation.counters.unexpected_in, "unexpected PPDU"),
        (acse.counters.malformed_in, "malformed APDU"),
        (acse.counters.unexpected_in, "unexpected APDU"),
        (session.timeouts, "the session was not established in time"),
    ];
    rows.into_iter().find(|(count, _)| *count > 0).map(|(_, words)| words)
}
