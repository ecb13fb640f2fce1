//! Connection setup: one frame each way (RFC 5044 §7.1, RFC 6581).
//!
//! ```text
//! Initiator                                    Responder
//!   new(…)            request ───────────────▶   take(…)    → Asked: the host decides
//!   take(…)         ◀─────────────── reply       accept(…)  → Agreed, or reject(…)
//!     → Agreed, or Rejected
//!   first FPDU, the RTR if one is agreed on ──▶  may send now
//! ```
//!
//! CRC              used in both directions if either end requests it (RFC 5044 §7.1.1). Like siw's, a reply
//!                  repeats the CRC bit of the request, because some initiators check only that bit.
//! Depths           a responder offers no more than was requested and accepts no more than its own maximum.
//!                  An initiator adopts the values in the reply: it lowers its ORD to the peer's IRD and
//!                  raises its IRD to the peer's ORD, up to its maximum.
//! Errors           a responder answers invalid requests as siw of Linux 6.1 does: with a reject if the
//!                  frame was readable but its request cannot be met, and otherwise not at all.
//! Limits           512 bytes of private data, including the setup word; siw accepts 256. No timer.
//! Not implemented  retrying with revision 1 when a peer supports no other revision. The caller can do so.

use crate::wire::mpa::{
    DEPTH_MAX, PRIVATE_DATA_BYTES_MAX, Rtr, SETUP_BYTES, START_BYTES, Setup, Side, Start, error,
};
use alloc::vec::Vec;
use kiban_base::Malformed;

kiban_base::choices! {
    /// Whether FPDUs are protected by a CRC.
    pub enum CrcUse {
        /// Does not request CRCs, but uses them if the peer requests them.
        Off = "off",
        /// Requests CRCs, and uses them even if the reply does not confirm the request (RFC 5044 §7.1.1).
        Wanted = "wanted",
        /// Requests CRCs, and treats a reply that does not confirm the request as a fault.
        Required = "required",
    }
}

kiban_base::settings! {
    /// Settings of connection setup. The defaults are those of siw in Linux 6.1.
    pub struct Config {
        /// Revision of MPA that an initiator uses, 1 or 2; a responder follows the request.
        revision: u8 = 2,
        /// Whether an initiator that uses revision 2 negotiates depths and the side that sends first (flag S
        /// in RFC 6581).
        enhanced: bool = true,
        /// Whether FPDUs are protected by a CRC.
        crc: CrcUse = CrcUse::Off,
        /// Whether to request markers from the peer.
        markers: bool = false,
        /// Whether to send markers to a peer that requests them. If not, such a peer is rejected, as siw
        /// does although RFC 5044 forbids it.
        markers_out: bool = true,
        /// Maximum number of RDMA Reads from one peer that are outstanding at a time. siw allows 128.
        ird_max: u16 = 128,
        /// Maximum number of outstanding RDMA Reads to one peer. siw allows 128.
        ord_max: u16 = 128,
        /// Whether an initiator offers to let either side send first (flag A in RFC 6581).
        peer_to_peer: bool = false,
        /// Whether an empty FPDU is offered and accepted as the ready-to-receive message.
        rtr_empty: bool = false,
        /// Whether a zero-length RDMA Write is offered and accepted as the ready-to-receive message.
        rtr_write: bool = true,
        /// Whether a zero-length RDMA Read is offered and accepted as the ready-to-receive message.
        rtr_read: bool = true,
        /// Whether an initiator requests immediate data and atomics (RFC 7306); only kiban peers confirm
        /// them.
        extensions: bool = false,
        /// Maximum private data in bytes, in either direction, including the setup word. siw allows 256.
        private_data_bytes_max: usize = PRIVATE_DATA_BYTES_MAX,
    }
}

impl Config {
    /// Returns a setup word that offers the supported ready-to-receive messages.
    fn setup(&self, peer_to_peer: bool, ird: u16, ord: u16) -> Setup {
        Setup {
            peer_to_peer,
            rtr_empty: peer_to_peer && self.rtr_empty,
            rtr_write: peer_to_peer && self.rtr_write,
            rtr_read: peer_to_peer && self.rtr_read,
            ird,
            ord,
        }
    }
}

/// Returns a ready-to-receive message that both ends support. A Write is preferred, as in siw, because it
/// needs no response and no resources.
fn common_rtr(ours: &Setup, theirs: &Setup) -> Option<Rtr> {
    [Rtr::Write, Rtr::Read, Rtr::Empty].into_iter().find(|&rtr| ours.has(rtr) && theirs.has(rtr))
}

/// The result of a negotiation: the format of FPDUs and the limits of each end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The revision of MPA.
    pub revision: u8,
    /// Whether depths were negotiated (RFC 6581). If not, they are the local host's values.
    pub enhanced: bool,
    /// Whether both ends support RFC 7306.
    pub extensions: bool,
    /// Whether FPDUs are protected by a CRC, in both directions.
    pub crc: bool,
    /// Whether received FPDUs have markers.
    pub markers_in: bool,
    /// Whether sent FPDUs need markers.
    pub markers_out: bool,
    /// Maximum number of outstanding RDMA Reads from the peer.
    pub ird: u16,
    /// Maximum number of outstanding RDMA Reads to the peer.
    pub ord: u16,
    /// The ready-to-receive message: an initiator sends it before anything else, and a responder sends
    /// nothing before it arrives.
    pub rtr: Option<Rtr>,
    /// Private data in the reply. Empty for a responder, which received the initiator's in [`PeerRequest`].
    pub private_data: Vec<u8>,
    /// How many of the bytes last passed to [`Initiator::take`] belonged to the reply; FPDUs follow them.
    /// Zero for a responder.
    pub consumed: usize,
}

/// The reason why a peer's start frame was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SetupFault {
    /// The frame does not begin with the key of a request or a reply, whichever was expected.
    Key,
    /// The revision is unknown, or the revision in a reply differs from the request's.
    Revision,
    /// The frame has more private data than the settings allow.
    PrivateDataLength,
    /// The setup-word flag (S) is set, but the private data is too short for the word.
    SetupLength,
    /// The reply has a setup word (S) that was not requested, or lacks a requested one.
    Enhanced,
    /// The peer requests markers, which the settings disable.
    Markers,
    /// The reply does not confirm the required CRCs.
    Crc,
    /// The reply's ORD exceeds the local IRD maximum (RFC 6581 §8).
    Ird,
    /// The reply has none of the offered ready-to-receive messages (RFC 6581 §8).
    Rtr,
    /// Bytes followed the request before it was answered (RFC 5044 §7.1.2).
    Early,
}

impl SetupFault {
    /// All faults: `ALL[fault as usize] == fault`.
    pub const ALL: &[SetupFault] = &[
        SetupFault::Key,
        SetupFault::Revision,
        SetupFault::PrivateDataLength,
        SetupFault::SetupLength,
        SetupFault::Enhanced,
        SetupFault::Markers,
        SetupFault::Crc,
        SetupFault::Ird,
        SetupFault::Rtr,
        SetupFault::Early,
    ];

    /// Returns the stable name for counters and records.
    pub const fn name(self) -> &'static str {
        match self {
            SetupFault::Key => "key",
            SetupFault::Revision => "revision",
            SetupFault::PrivateDataLength => "private_data_length",
            SetupFault::SetupLength => "setup_length",
            SetupFault::Enhanced => "enhanced",
            SetupFault::Markers => "markers",
            SetupFault::Crc => "crc",
            SetupFault::Ird => "ird",
            SetupFault::Rtr => "rtr",
            SetupFault::Early => "early",
        }
    }

    /// Returns the error code for the Terminate message (layer LLP, error type MPA) that an initiator may
    /// send before it closes the connection.
    pub const fn code(self) -> u8 {
        match self {
            SetupFault::Ird => error::IRD,
            SetupFault::Rtr => error::RTR,
            _ => error::START,
        }
    }
}

impl core::fmt::Display for SetupFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            SetupFault::Key => "the frame does not begin with the MPA key",
            SetupFault::Revision => "the MPA revision is unknown, or differs from the requested one",
            SetupFault::PrivateDataLength => "the private data is too long",
            SetupFault::SetupLength => {
                "the private data is too short for the enhanced connection setup data (RFC 6581)"
            }
            SetupFault::Enhanced => {
                "only one of request and reply has enhanced connection setup data (RFC 6581)"
            }
            SetupFault::Markers => "the peer requires markers, which this side does not send",
            SetupFault::Crc => "the reply does not confirm the required CRCs",
            SetupFault::Ird => "the peer requires more outstanding RDMA Reads than are supported",
            SetupFault::Rtr => "the reply accepts none of the offered ready-to-receive (RTR) messages",
            SetupFault::Early => "the initiator sent data before its request was answered",
        })
    }
}

impl core::error::Error for SetupFault {}

/// The host's private data does not fit into the frame. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrivateDataTooLong {
    /// Number of bytes that would fit.
    pub bytes_max: usize,
}

impl core::fmt::Display for PrivateDataTooLong {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "private data is too long: the maximum is {} bytes", self.bytes_max)
    }
}

impl core::error::Error for PrivateDataTooLong {}

/// Builds a complete frame: fixed part, setup word if any, private data.
fn frame(
    config: &Config,
    start: Start,
    setup: Option<Setup>,
    private_data: &[u8],
) -> Result<Vec<u8>, PrivateDataTooLong> {
    let setup_bytes = if setup.is_some() { SETUP_BYTES } else { 0 };
    let bytes_max = config.private_data_bytes_max.min(PRIVATE_DATA_BYTES_MAX).saturating_sub(setup_bytes);
    if private_data.len() > bytes_max {
        return Err(PrivateDataTooLong { bytes_max });
    }
    let mut bytes = alloc::vec![0; START_BYTES + setup_bytes];
    Start { private_data_bytes: (setup_bytes + private_data.len()) as u16, ..start }.write(&mut bytes);
    if let Some(setup) = setup {
        setup.write(&mut bytes[START_BYTES..]);
    }
    bytes.extend_from_slice(private_data);
    Ok(bytes)
}

/// A start frame that may arrive in parts.
#[derive(Clone, Debug)]
struct Incoming {
    side: Side,
    private_data_bytes_max: usize,
    bytes: Vec<u8>,
}

impl Incoming {
    fn new(side: Side, config: &Config) -> Incoming {
        Incoming { side, private_data_bytes_max: config.private_data_bytes_max, bytes: Vec::new() }
    }

    /// Takes the bytes that belong to the frame. Returns its fixed part and the number of bytes taken from
    /// `run` when it is complete.
    ///
    /// A fault is reported as soon as it is detected, so that a peer that uses another protocol is not kept
    /// waiting until a timeout.
    fn take(&mut self, run: &[u8]) -> Result<Option<(Start, usize)>, SetupFault> {
        let front_bytes = run.len().min(START_BYTES.saturating_sub(self.bytes.len()));
        self.bytes.extend_from_slice(&run[..front_bytes]);
        let key = self.side.key();
        let key_bytes = self.bytes.len().min(key.len());
        if self.bytes[..key_bytes] != key[..key_bytes] {
            return Err(SetupFault::Key);
        }
        let start = match Start::read(&self.bytes) {
            Ok((start, _)) => start,
            Err(Malformed::Truncated) => return Ok(None),
            Err(Malformed::Version) => return Err(SetupFault::Revision),
            Err(Malformed::TotalLength) => return Err(SetupFault::PrivateDataLength),
            Err(_) => return Err(SetupFault::Key),
        };
        let private_data_bytes = usize::from(start.private_data_bytes);
        if private_data_bytes > self.private_data_bytes_max {
            return Err(SetupFault::PrivateDataLength);
        }
        let rest = &run[front_bytes..];
        let missing = START_BYTES + private_data_bytes - self.bytes.len();
        let rest_bytes = rest.len().min(missing);
        self.bytes.extend_from_slice(&rest[..rest_bytes]);
        Ok((rest_bytes == missing).then_some((start, front_bytes + rest_bytes)))
    }

    fn private_data(&self) -> &[u8] {
        self.bytes.get(START_BYTES..).unwrap_or(&[])
    }

    /// Returns the setup word, if the frame has one, and the host's part of the private data.
    fn split(&self, start: &Start) -> Result<(Option<Setup>, &[u8]), SetupFault> {
        // Below revision 2 the bit is reserved, and reserved bits are ignored (RFC 5044 §7.1.1).
        if !start.enhanced || start.revision < 2 {
            return Ok((None, self.private_data()));
        }
        let (setup, used) = Setup::read(self.private_data()).map_err(|_| SetupFault::SetupLength)?;
        Ok((Some(setup), &self.private_data()[used..]))
    }
}

/// The state of an initiator's negotiation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The reply is not complete yet.
    NeedMore,
    /// The connection is established.
    Agreed(Agreed),
    /// The responder rejected the connection.
    Rejected(Rejected),
}

/// A responder's rejection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// The private data from the responder's host.
    pub private_data: Vec<u8>,
}

/// The initiator: the side that requests the connection.
#[derive(Clone, Debug)]
pub struct Initiator {
    config: Config,
    request: Vec<u8>,
    setup: Option<Setup>,
    ird: u16,
    ord: u16,
    reply: Incoming,
}

impl Initiator {
    /// Begins a connection with at most `ird` outstanding RDMA Reads from the peer and `ord` to it. Both
    /// values are capped at the maxima in the settings.
    ///
    /// # Errors
    /// [`PrivateDataTooLong`].
    pub fn new(
        config: &Config,
        ird: u16,
        ord: u16,
        private_data: &[u8],
    ) -> Result<Initiator, PrivateDataTooLong> {
        let (ird, ord) = (ird.min(config.ird_max).min(DEPTH_MAX), ord.min(config.ord_max).min(DEPTH_MAX));
        let enhanced = config.enhanced && config.revision >= 2;
        let setup = enhanced.then(|| config.setup(config.peer_to_peer, ird, ord));
        let start = Start {
            side: Side::Request,
            markers: config.markers,
            crc: config.crc != CrcUse::Off,
            rejected: false,
            enhanced,
            extensions: config.extensions,
            revision: config.revision,
            private_data_bytes: 0,
        };
        let request = frame(config, start, setup, private_data)?;
        Ok(Initiator {
            config: config.clone(),
            request,
            setup,
            ird,
            ord,
            reply: Incoming::new(Side::Reply, config),
        })
    }

    /// Returns the request. Nothing may follow it before the reply has arrived.
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Processes received bytes. Each byte must be passed exactly once.
    ///
    /// # Errors
    /// The fault in the peer's frame; the connection must be closed.
    pub fn take(&mut self, run: &[u8]) -> Result<Answer, SetupFault> {
        match self.reply.take(run)? {
            None => Ok(Answer::NeedMore),
            Some((start, _)) if start.rejected => {
                // When siw rejects an invalid request, its reply has flag S but no private data. Treat it as
                // a reject all the same.
                let private_data = self.reply.split(&start).map_or(&[][..], |(_, rest)| rest).to_vec();
                Ok(Answer::Rejected(Rejected { private_data }))
            }
            Some((start, consumed)) => self.validate_reply(start, consumed).map(Answer::Agreed),
        }
    }

    fn validate_reply(&self, start: Start, consumed: usize) -> Result<Agreed, SetupFault> {
        // RFC 6581 §10: no downgrade within a connection.
        if start.revision != self.config.revision {
            return Err(SetupFault::Revision);
        }
        if start.markers && !self.config.markers_out {
            return Err(SetupFault::Markers);
        }
        if self.config.crc == CrcUse::Required && !start.crc {
            return Err(SetupFault::Crc);
        }
        let (theirs, private_data) = self.reply.split(&start)?;
        let (ird, ord, rtr) = match (&self.setup, &theirs) {
            (None, None) => (self.ird, self.ord, None),
            (Some(ours), Some(theirs)) => self.negotiate(ours, theirs)?,
            _ => return Err(SetupFault::Enhanced),
        };
        Ok(Agreed {
            revision: start.revision,
            enhanced: theirs.is_some(),
            extensions: start.extensions && self.config.extensions,
            crc: start.crc || self.config.crc != CrcUse::Off,
            markers_in: self.config.markers,
            markers_out: start.markers,
            ird,
            ord,
            rtr,
            private_data: private_data.to_vec(),
            consumed,
        })
    }

    fn negotiate(&self, ours: &Setup, theirs: &Setup) -> Result<(u16, u16, Option<Rtr>), SetupFault> {
        // 3FFF means that the hosts negotiate the depth themselves (RFC 6581 §9). Keep the value in the
        // request.
        let ird = if theirs.ord == DEPTH_MAX { self.ird } else { theirs.ord };
        // A responder that requests a higher depth than was offered gets it, up to the maximum (siw's
        // relaxed negotiation).
        if ird > self.config.ird_max {
            return Err(SetupFault::Ird);
        }
        let rtr = match (ours.peer_to_peer, common_rtr(ours, theirs)) {
            (true, None) => return Err(SetupFault::Rtr),
            (true, rtr) => rtr,
            // A reply may name messages that were not offered.
            (false, _) => None,
        };
        Ok((ird, theirs.ird.min(self.ord), rtr))
    }
}

/// A connection request, as seen by the responder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerRequest {
    /// The revision of MPA.
    pub revision: u8,
    /// Whether depths are negotiated.
    pub enhanced: bool,
    /// Whether the peer supports RFC 7306.
    pub extensions: bool,
    /// Number of outstanding RDMA Reads that the peer wants, capped at the maximum in the settings. If the
    /// peer stated no number, this is the maximum.
    pub ird: u16,
    /// Number of concurrent RDMA Reads that the peer accepts, with the same cap.
    pub ord: u16,
    /// Whether the peer allows this side to send first, after a ready-to-receive message.
    pub peer_to_peer: bool,
    /// Private data from the initiator's host.
    pub private_data: Vec<u8>,
}

/// A request that cannot be accepted. Send `reply` unless it is empty, and then close the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The reason.
    pub fault: SetupFault,
    /// A reject, or empty if the request was unreadable.
    pub reply: Vec<u8>,
}

/// The responder: the side that accepts or rejects the connection.
#[derive(Clone, Debug)]
pub struct Responder {
    config: Config,
    request: Incoming,
    /// The fixed part and the setup word of the complete request.
    received_request: Option<(Start, Option<Setup>)>,
}

impl Responder {
    /// Creates a responder that waits for a request.
    pub fn new(config: &Config) -> Responder {
        Responder {
            config: config.clone(),
            request: Incoming::new(Side::Request, config),
            received_request: None,
        }
    }

    /// Processes received bytes, including those that arrive before the host has decided. Each byte must be
    /// passed exactly once. Returns `None` while the request is incomplete.
    ///
    /// # Errors
    /// The fault in the peer's frame.
    pub fn take(&mut self, run: &[u8]) -> Result<Option<PeerRequest>, Refused> {
        let silent = |fault| Refused { fault, reply: Vec::new() };
        if self.received_request.is_some() {
            return if run.is_empty() { Ok(None) } else { Err(silent(SetupFault::Early)) };
        }
        let Some((start, used)) = self.request.take(run).map_err(silent)? else { return Ok(None) };
        if used < run.len() {
            return Err(silent(SetupFault::Early));
        }
        let (theirs, private_data) = match self.request.split(&start) {
            Ok(split) => split,
            Err(fault) => return Err(self.refuse(start, None, fault)),
        };
        let private_data = private_data.to_vec();
        if start.markers && !self.config.markers_out {
            return Err(self.refuse(start, theirs, SetupFault::Markers));
        }
        self.received_request = Some((start, theirs));
        let (ird, ord) = self.depths(theirs.as_ref());
        Ok(Some(PeerRequest {
            revision: start.revision,
            enhanced: theirs.is_some(),
            extensions: start.extensions,
            ird,
            ord,
            peer_to_peer: theirs.is_some_and(|theirs| theirs.peer_to_peer),
            private_data,
        }))
    }

    /// Accepts the request. Returns the reply and the agreed values. `ord` is lowered to what the peer
    /// accepts; `ird` is raised to what the peer wants, within the settings' maximum.
    ///
    /// The peer may send as soon as it has the reply. siw fails the connection if an FPDU arrives in the
    /// same segment as the reply. The caller must therefore send no FPDU until the peer's first FPDU has
    /// arrived or the reply is known to have arrived.
    ///
    /// # Errors
    /// [`PrivateDataTooLong`].
    ///
    /// # Panics
    /// If [`Responder::take`] has not returned [`PeerRequest`].
    pub fn accept(
        &self,
        private_data: &[u8],
        ird: u16,
        ord: u16,
    ) -> Result<(Vec<u8>, Agreed), PrivateDataTooLong> {
        let (start, theirs) = self.received_request.expect("a request is accepted after it was asked");
        let (ird_asked, ord_asked) = self.depths(theirs.as_ref());
        let ird_floor = if theirs.is_some() { ird_asked } else { 0 };
        let (ird, ord) = (ird.min(self.config.ird_max).max(ird_floor), ord.min(ord_asked));
        let rtr = theirs.and_then(|theirs| self.choose_rtr(&theirs));
        let reply = self.reply(start, false);
        let setup = theirs.map(|theirs| self.reply_setup(&theirs, rtr, ird, ord));
        let agreed = Agreed {
            revision: start.revision,
            enhanced: theirs.is_some(),
            extensions: start.extensions,
            crc: reply.crc,
            markers_in: reply.markers,
            markers_out: start.markers,
            ird,
            ord,
            rtr,
            private_data: Vec::new(),
            consumed: 0,
        };
        Ok((frame(&self.config, reply, setup, private_data)?, agreed))
    }

    /// Rejects the request with private data. Returns the reply, after which the connection must be closed.
    ///
    /// # Errors
    /// [`PrivateDataTooLong`].
    ///
    /// # Panics
    /// If [`Responder::take`] has not returned [`PeerRequest`].
    pub fn reject(&self, private_data: &[u8]) -> Result<Vec<u8>, PrivateDataTooLong> {
        let (start, theirs) = self.received_request.expect("a request is rejected after it was asked");
        let (ird, ord) = self.depths(theirs.as_ref());
        let setup = theirs.map(|theirs| self.reply_setup(&theirs, self.choose_rtr(&theirs), ird, ord));
        frame(&self.config, self.reply(start, true), setup, private_data)
    }

    /// Returns the fixed part of a reply. Like siw's, it repeats the flag bits of the request.
    fn reply(&self, request: Start, rejected: bool) -> Start {
        Start {
            side: Side::Reply,
            markers: self.config.markers && !rejected,
            crc: request.crc || self.config.crc != CrcUse::Off,
            rejected,
            enhanced: request.enhanced && request.revision >= 2,
            extensions: request.extensions && !rejected,
            revision: request.revision,
            private_data_bytes: 0,
        }
    }

    fn reply_setup(&self, theirs: &Setup, rtr: Option<Rtr>, ird: u16, ord: u16) -> Setup {
        Setup {
            peer_to_peer: theirs.peer_to_peer,
            rtr_empty: rtr == Some(Rtr::Empty),
            rtr_write: rtr == Some(Rtr::Write),
            rtr_read: rtr == Some(Rtr::Read),
            ird: ird.min(DEPTH_MAX),
            ord: ord.min(DEPTH_MAX),
        }
    }

    /// Returns the ready-to-receive message to wait for. If the peer offers none that is supported here, the
    /// result is a Write, as in siw: the peer may support it although it did not offer it.
    fn choose_rtr(&self, theirs: &Setup) -> Option<Rtr> {
        let ours = self.config.setup(true, 0, 0);
        theirs.peer_to_peer.then(|| common_rtr(&ours, theirs).unwrap_or(Rtr::Write))
    }

    /// Returns the depths requested by the peer, capped at the maxima in the settings. A depth of 3FFF,
    /// which means that the hosts negotiate it (RFC 6581 §9), is capped like any other large value.
    fn depths(&self, theirs: Option<&Setup>) -> (u16, u16) {
        let (ird_max, ord_max) = (self.config.ird_max, self.config.ord_max);
        theirs.map_or((ird_max, ord_max), |theirs| (theirs.ord.min(ird_max), theirs.ird.min(ord_max)))
    }

    fn refuse(&self, start: Start, theirs: Option<Setup>, fault: SetupFault) -> Refused {
        let (ird, ord) = self.depths(theirs.as_ref());
        let setup = theirs.map(|theirs| self.reply_setup(&theirs, None, ird, ord));
        let reply = frame(&self.config, self.reply(start, true), setup, &[]).unwrap_or_default();
        Refused { fault, reply }
    }
}
