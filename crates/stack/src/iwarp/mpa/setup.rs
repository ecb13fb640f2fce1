//! How a connection begins: one frame each way (RFC 5044 §7.1, RFC 6581).
//!
//! ```text
//! Initiator                                    Responder
//!   new(…)            request ───────────────▶   take(…)    → Asked: the host decides
//!   take(…)         ◀─────────────── reply       accept(…)  → Agreed, or reject(…)
//!     → Agreed, or Rejected
//!   first FPDU, the RTR if one is agreed on ──▶  may send now
//! ```
//!
//! CRC       used both ways if either end asks for it (RFC 5044 §7.1.1). A reply repeats it, as siw's does, since some
//!           initiators believe only that.
//! Depths    a responder offers no more than it was asked for, and takes no more than it has. An initiator takes what the
//!           reply says: its ORD sinks to the peer's IRD, its IRD rises to the peer's ORD as far as it goes.
//! Peers     a responder that is faced with the wrong answers as siw of Linux 6.1 does: with a reject where the frame could be
//!           read and only asks for the impossible, with silence where it could not.
//! Limits    private data of 512 bytes, the set-up word included; siw takes 256. No timer.
//! Left out  an initiator does not begin again with revision 1 when a peer knows no other; the caller can.

use alloc::vec::Vec;
use kiban_wire::Malformed;
use kiban_wire::mpa::{
    DEPTH_MAX, PRIVATE_DATA_BYTES_MAX, Rtr, SETUP_BYTES, START_BYTES, Setup, Side, Start, error,
};

kiban_ground::choices! {
    /// Whether FPDUs are checked by CRC.
    pub enum CrcUse {
        /// Not asked for; used if the peer asks.
        Off = "off",
        /// Asked for, and used from then on whatever the reply says (RFC 5044 §7.1.1).
        Wanted = "wanted",
        /// Asked for; a reply that does not repeat it is a fault.
        Required = "required",
    }
}

kiban_ground::settings! {
    /// How connections begin. The defaults are those of siw in Linux 6.1.
    pub struct Config {
        /// The revision an initiator speaks, 1 or 2; a responder follows the request.
        revision: u8 = 2,
        /// Whether an initiator of revision 2 negotiates depths and who sends first (S of RFC 6581).
        enhanced: bool = true,
        /// Whether FPDUs are checked.
        crc: CrcUse = CrcUse::Off,
        /// Whether the peer is asked for markers.
        markers: bool = false,
        /// Whether markers are sent to a peer that asks; else it is refused, which RFC 5044 does not allow and siw does.
        markers_out: bool = true,
        /// RDMA Reads of a peer answered at a time, at most. siw: 128.
        ird_max: u16 = 128,
        /// RDMA Reads asked of a peer at a time, at most. siw: 128.
        ord_max: u16 = 128,
        /// Whether an initiator offers that either side may send first (A of RFC 6581).
        peer_to_peer: bool = false,
        /// Whether an empty FPDU is among the ready-to-receive messages that are offered and taken.
        rtr_empty: bool = false,
        /// Whether an RDMA Write of no bytes is.
        rtr_write: bool = true,
        /// Whether an RDMA Read of no bytes is.
        rtr_read: bool = true,
        /// Whether an initiator asks for immediate data and atomics (RFC 7306); only kiban's ends answer that they know them.
        extensions: bool = false,
        /// Bytes of private data at most, either way, the set-up word included. siw: 256.
        private_data_bytes_max: usize = PRIVATE_DATA_BYTES_MAX,
    }
}

impl Config {
    /// The kinds of ready-to-receive message known here, as they stand in a set-up word.
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

/// The kind that two ends have in common. A write first, as siw prefers it: it is answered by nothing and needs nothing.
fn common_rtr(ours: &Setup, theirs: &Setup) -> Option<Rtr> {
    [Rtr::Write, Rtr::Read, Rtr::Empty].into_iter().find(|&rtr| ours.has(rtr) && theirs.has(rtr))
}

/// What two ends agreed on: how FPDUs look, and what each may ask of the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The revision of MPA.
    pub revision: u8,
    /// Whether depths were negotiated (RFC 6581); else they are what the host here said.
    pub enhanced: bool,
    /// Whether both ends know RFC 7306.
    pub extensions: bool,
    /// Whether FPDUs are checked by CRC, both ways.
    pub crc: bool,
    /// Whether received FPDUs have markers.
    pub markers_in: bool,
    /// Whether sent FPDUs need markers.
    pub markers_out: bool,
    /// RDMA Reads that the peer may have under way.
    pub ird: u16,
    /// RDMA Reads that may be under way towards the peer.
    pub ord: u16,
    /// The ready-to-receive message: an initiator sends it first of all, a responder sends nothing before it came.
    pub rtr: Option<Rtr>,
    /// The private data of a reply. Empty for a responder, who had it in [`Asked`].
    pub private_data: Vec<u8>,
    /// Bytes of the last run given to [`Initiator::take`] that the reply took; FPDUs follow them. Zero for a responder.
    pub consumed: usize,
}

/// A peer's start frame that breaks a rule, or asks for what is not to be had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SetupFault {
    /// It does not begin with the key of a request or of a reply, whichever was due.
    Key,
    /// A revision that is not known, or in a reply not the one asked for.
    Revision,
    /// More private data than is taken.
    PrivateDataLength,
    /// It has a set-up word (S) and not the private data for it.
    SetupLength,
    /// A reply that has a set-up word (S) which was not asked for, or lacks one that was.
    Enhanced,
    /// It asks for markers, and they are not sent here.
    Markers,
    /// A reply that does not confirm the CRCs required.
    Crc,
    /// A reply whose ORD is above what can be answered here (RFC 6581 §8).
    Ird,
    /// A reply that has none of the ready-to-receive messages offered (RFC 6581 §8).
    Rtr,
    /// Bytes behind a request before it was answered (RFC 5044 §7.1.2).
    Early,
}

impl SetupFault {
    /// Every fault: `ALL[fault as usize] == fault`.
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

    /// The stable name for counters and records.
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

    /// The error code of the Terminate (layer LLP, type MPA) that an initiator may send before it closes.
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
            SetupFault::Key => "the frame does not begin with its key",
            SetupFault::Revision => "the revision is not known, or not the one asked for",
            SetupFault::PrivateDataLength => "there is more private data than is taken",
            SetupFault::SetupLength => {
                "the private data is too short for the set-up word it should begin with"
            }
            SetupFault::Enhanced => "the reply has no set-up word although the request had, or the reverse",
            SetupFault::Markers => "the peer asks for markers, which are not sent",
            SetupFault::Crc => "the reply does not confirm the CRCs required",
            SetupFault::Ird => "the peer wants to have more RDMA Reads under way than are answered",
            SetupFault::Rtr => "the reply has none of the ready-to-receive messages offered",
            SetupFault::Early => "there are bytes behind the request before it was answered",
        })
    }
}

impl core::error::Error for SetupFault {}

/// The host's private data does not fit the frame: nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrivateDataTooLong {
    /// Bytes that would fit.
    pub bytes_max: usize,
}

impl core::fmt::Display for PrivateDataTooLong {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "private data can be {} bytes at most", self.bytes_max)
    }
}

impl core::error::Error for PrivateDataTooLong {}

/// A whole frame: front, set-up word if it has one, private data.
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

/// A start frame that trickles in.
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

    /// Takes what belongs to the frame. The front and the bytes taken of this run, when it is whole.
    ///
    /// A fault is told as soon as it shows: a stranger who sends something else waits for no timer.
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

    /// The set-up word, if the frame has it, and the host's part of the private data.
    fn split(&self, start: &Start) -> Result<(Option<Setup>, &[u8]), SetupFault> {
        // Below revision 2 the bit is reserved, and reserved bits are not looked at (RFC 5044 §7.1.1).
        if !start.enhanced || start.revision < 2 {
            return Ok((None, self.private_data()));
        }
        let (setup, used) = Setup::read(self.private_data()).map_err(|_| SetupFault::SetupLength)?;
        Ok((Some(setup), &self.private_data()[used..]))
    }
}

/// What an initiator learns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The reply is not whole yet.
    Wants,
    /// The connection stands.
    Agreed(Agreed),
    /// The responder does not want it.
    Rejected(Rejected),
}

/// A responder's refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// What the responder's host says to it.
    pub private_data: Vec<u8>,
}

/// The side that connects.
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
    /// Begins a connection that has `ird` RDMA Reads of the peer under way at most, and `ord` towards it; both are lowered
    /// to the settings' maximum.
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

    /// The request. Nothing may follow it before the reply has come.
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Takes bytes as they come, each once.
    ///
    /// # Errors
    /// The peer's fault; the connection is to be closed.
    pub fn take(&mut self, run: &[u8]) -> Result<Answer, SetupFault> {
        match self.reply.take(run)? {
            None => Ok(Answer::Wants),
            Some((start, _)) if start.rejected => {
                // siw's reject of a broken set-up has S and no private data: what it says is still "no".
                let private_data = self.reply.split(&start).map_or(&[][..], |(_, rest)| rest).to_vec();
                Ok(Answer::Rejected(Rejected { private_data }))
            }
            Some((start, consumed)) => self.judge(start, consumed).map(Answer::Agreed),
        }
    }

    fn judge(&self, start: Start, consumed: usize) -> Result<Agreed, SetupFault> {
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
            (Some(ours), Some(theirs)) => self.settle(ours, theirs)?,
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

    fn settle(&self, ours: &Setup, theirs: &Setup) -> Result<(u16, u16, Option<Rtr>), SetupFault> {
        // Both 3FFF: the hosts will see to it (RFC 6581 §9), and the request stands.
        let ird = if theirs.ord == DEPTH_MAX { self.ird } else { theirs.ord };
        // A responder that wants more than it was offered gets it if there is more (siw's relaxed negotiation).
        if ird > self.config.ird_max {
            return Err(SetupFault::Ird);
        }
        let rtr = match (ours.peer_to_peer, common_rtr(ours, theirs)) {
            (true, None) => return Err(SetupFault::Rtr),
            (true, rtr) => rtr,
            // A reply may name kinds that nobody asked for.
            (false, _) => None,
        };
        Ok((ird, theirs.ird.min(self.ord), rtr))
    }
}

/// What a request asks for, seen from the responder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The revision of MPA.
    pub revision: u8,
    /// Whether depths are negotiated.
    pub enhanced: bool,
    /// Whether the peer knows RFC 7306.
    pub extensions: bool,
    /// RDMA Reads that the peer wants to have under way, or the settings' maximum if that is less or nothing was said.
    pub ird: u16,
    /// RDMA Reads that the peer answers at a time, or the settings' maximum likewise.
    pub ord: u16,
    /// Whether the peer offers that this side may send first, after a ready-to-receive message.
    pub peer_to_peer: bool,
    /// What the initiator's host says.
    pub private_data: Vec<u8>,
}

/// A request that cannot be accepted. The connection is to be closed, after `reply` has been sent if there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why.
    pub fault: SetupFault,
    /// A reply that says so; empty where the request could not be read.
    pub reply: Vec<u8>,
}

/// The side that is connected to.
#[derive(Clone, Debug)]
pub struct Responder {
    config: Config,
    request: Incoming,
    /// The request once it is whole: its front and its set-up word.
    asked: Option<(Start, Option<Setup>)>,
}

impl Responder {
    /// Waits for a request.
    pub fn new(config: &Config) -> Responder {
        Responder { config: config.clone(), request: Incoming::new(Side::Request, config), asked: None }
    }

    /// Takes bytes as they come, each once: those too that come before the host has decided. `None` if the request is not
    /// whole.
    ///
    /// # Errors
    /// The peer's fault.
    pub fn take(&mut self, run: &[u8]) -> Result<Option<Asked>, Refused> {
        let silent = |fault| Refused { fault, reply: Vec::new() };
        if self.asked.is_some() {
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
        self.asked = Some((start, theirs));
        let (ird, ord) = self.depths(theirs.as_ref());
        Ok(Some(Asked {
            revision: start.revision,
            enhanced: theirs.is_some(),
            extensions: start.extensions,
            ird,
            ord,
            peer_to_peer: theirs.is_some_and(|theirs| theirs.peer_to_peer),
            private_data,
        }))
    }

    /// Accepts what was asked: the reply, and how it goes on. `ord` sinks to what the peer answers; `ird` rises to what the
    /// peer wants, within the settings' maximum.
    ///
    /// The peer may begin as soon as it has the reply. siw fails the connection when an FPDU comes in one segment with the
    /// reply, so the caller sends none before the peer's first, or before the reply is known to have arrived.
    ///
    /// # Errors
    /// [`PrivateDataTooLong`].
    ///
    /// # Panics
    /// Before [`Responder::take`] returned [`Asked`].
    pub fn accept(
        &self,
        private_data: &[u8],
        ird: u16,
        ord: u16,
    ) -> Result<(Vec<u8>, Agreed), PrivateDataTooLong> {
        let (start, theirs) = self.asked.expect("a request is accepted after it was asked");
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

    /// Refuses what was asked, with something to say: the reply. The connection is to be closed after it.
    ///
    /// # Errors
    /// [`PrivateDataTooLong`].
    ///
    /// # Panics
    /// Before [`Responder::take`] returned [`Asked`].
    pub fn reject(&self, private_data: &[u8]) -> Result<Vec<u8>, PrivateDataTooLong> {
        let (start, theirs) = self.asked.expect("a request is rejected after it was asked");
        let (ird, ord) = self.depths(theirs.as_ref());
        let setup = theirs.map(|theirs| self.reply_setup(&theirs, self.choose_rtr(&theirs), ird, ord));
        frame(&self.config, self.reply(start, true), setup, private_data)
    }

    /// The front of a reply: what the peer asked for stands in it again, as siw does it.
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

    /// The kind to wait for. Where the peer offers none that is known here, siw proposes a write, and so it is done here:
    /// the peer may yet know it.
    fn choose_rtr(&self, theirs: &Setup) -> Option<Rtr> {
        let ours = self.config.setup(true, 0, 0);
        theirs.peer_to_peer.then(|| common_rtr(&ours, theirs).unwrap_or(Rtr::Write))
    }

    /// What the peer asks for, as far as it can be had. Depths of 3FFF, "the hosts will see to it" (RFC 6581 §9), are like
    /// any that are too large.
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
