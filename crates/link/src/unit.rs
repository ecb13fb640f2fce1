//! Units that links carry, abstracted for code that is common to all of them: packets and frames ([`Pdu`]),
//! and cells ([`TimedCell`]).
//!
//! Copies           a unit that waits in a link, or that comes from a file, is a copy in separate memory
//!                  ([`Unit::Copy`]), so a unit with a long delay does not hold the board's pages.
//! Memory           a unit that enters the board's memory is copied and checksummed in one pass; packets
//!                  share pages ([`ReceivePage`]).

use super::LinkContext;
use super::cells::sar;
use kiban_atm::TimedCell;
use kiban_atm::wire::aal5::FRAME_BYTES_MAX;
use kiban_atm::wire::atm::{CELL_BYTES, Header, Interface, PTI_LAST};
use kiban_base::{Instant, Memory, Page, Pdu};
use kiban_board::impairment::Impairment;
use kiban_board::recorder::Recorder;
use kiban_capture::{Erf, LINK_TYPE_SUNATM, SunAtm};
use std::collections::VecDeque;

/// Number of bytes at the front of a packet that go into a PDU's head: the headers of TCP over IPv4 on
/// Ethernet.
const HEAD_BYTES: usize = 54;
/// The longest packet or frame: an IP packet and its Ethernet header with two VLAN tags.
pub(super) const LONGEST_BYTES: usize = kiban_tcpip::wire::ipv4::PACKET_BYTES_MAX + 22;

/// The reason why bytes could not be turned into a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UnitError {
    /// There is no memory for the unit.
    Starved,
    /// It is malformed.
    Malformed,
}

/// The page that is being filled with received packets.
#[derive(Default, Debug)]
pub struct ReceivePage {
    page: Option<Page>,
}

impl ReceivePage {
    /// Copies bytes into a PDU whose sums are known; `None` if there is no memory.
    pub(super) fn copy_in(&mut self, bytes: &[u8], memory: &mut Memory) -> Option<Pdu> {
        let mut pdu = memory.pdus.take()?;
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES));
        pdu.extend_head(head);
        pdu.extend_body(rest, &mut memory.receive, &mut self.page)?;
        Some(pdu)
    }
}

/// A unit that links carry.
pub trait Unit: Sized + Send + 'static {
    /// The copy of a unit, in memory that does not belong to the board.
    type Copy: Send + 'static;

    /// Returns the length in bytes.
    fn bytes(&self) -> usize;

    /// Appends the unit's bytes to `target`.
    fn append_to(&self, target: &mut Vec<u8>);

    /// Makes a unit from received bytes.
    ///
    /// # Errors
    /// The bytes are malformed, or there is no memory.
    fn from_received(
        bytes: &[u8],
        page: &mut ReceivePage,
        lent: &mut LinkContext<'_>,
    ) -> Result<Self, UnitError>;

    /// Returns a copy in memory that does not belong to the board.
    fn copy(&self) -> Self::Copy;

    /// Makes a unit from a copy; `None` if there is no memory.
    fn from_copy(copy: &Self::Copy, page: &mut ReceivePage, lent: &mut LinkContext<'_>) -> Option<Self>;

    /// Applies impairments to a copy that would arrive at `at`; passes the resulting copies to `put`.
    fn impair(
        copy: Self::Copy,
        at: Instant,
        impairment: &mut Impairment,
        put: &mut dyn FnMut(Instant, Self::Copy),
    );

    /// Returns the link type of captures; `frames` distinguishes frames from packets.
    fn link_type(frames: bool) -> u32;

    /// Appends the units in a capture record of this link type to `into`.
    ///
    /// # Errors
    /// The record holds no such unit, or there is no memory.
    fn replay(
        link_type: u32,
        record: &[u8],
        page: &mut ReceivePage,
        lent: &mut LinkContext<'_>,
        into: &mut VecDeque<Self>,
    ) -> Result<(), UnitError>;

    /// Records the unit; `interface` is 0 for received units and 1 for sent ones.
    fn record(&self, recorder: &mut Recorder, nanoseconds: u64, interface: u8, target: &mut Vec<u8>);
}

/// A packet or frame in separate memory, with the notes of its PDU.
#[derive(Clone, Debug)]
pub struct PduCopy {
    bytes: Vec<u8>,
    cut: u16,
    verified: bool,
}

impl Unit for Pdu {
    type Copy = PduCopy;

    fn bytes(&self) -> usize {
        self.len()
    }

    fn append_to(&self, target: &mut Vec<u8>) {
        self.runs().for_each(|run| target.extend_from_slice(run));
    }

    fn from_received(
        bytes: &[u8],
        page: &mut ReceivePage,
        lent: &mut LinkContext<'_>,
    ) -> Result<Pdu, UnitError> {
        if bytes.is_empty() || bytes.len() > LONGEST_BYTES {
            return Err(UnitError::Malformed);
        }
        page.copy_in(bytes, lent.memory).ok_or(UnitError::Starved)
    }

    fn copy(&self) -> PduCopy {
        let mut bytes = Vec::with_capacity(self.len());
        self.append_to(&mut bytes);
        PduCopy { bytes, cut: self.segment_bytes() as u16, verified: self.is_verified() }
    }

    fn from_copy(copy: &PduCopy, page: &mut ReceivePage, lent: &mut LinkContext<'_>) -> Option<Pdu> {
        let mut pdu = page.copy_in(&copy.bytes, lent.memory)?;
        pdu.set_segment_bytes(copy.cut);
        if copy.verified {
            pdu.set_verified();
        }
        Some(pdu)
    }

    fn impair(
        copy: PduCopy,
        at: Instant,
        impairment: &mut Impairment,
        put: &mut dyn FnMut(Instant, PduCopy),
    ) {
        let PduCopy { bytes, cut, verified } = copy;
        impairment.apply_to_packet(at, bytes, &mut |at, bytes| put(at, PduCopy { bytes, cut, verified }));
    }

    fn link_type(frames: bool) -> u32 {
        if frames { kiban_capture::LINK_TYPE_ETHERNET } else { kiban_capture::LINK_TYPE_RAW }
    }

    fn replay(
        _: u32,
        record: &[u8],
        page: &mut ReceivePage,
        lent: &mut LinkContext<'_>,
        into: &mut VecDeque<Pdu>,
    ) -> Result<(), UnitError> {
        into.push_back(Pdu::from_received(record, page, lent)?);
        Ok(())
    }

    fn record(&self, recorder: &mut Recorder, nanoseconds: u64, _: u8, target: &mut Vec<u8>) {
        let runs: arrayvec::ArrayVec<&[u8], { kiban_base::SLICES_MAX + 2 }> = self.runs().collect();
        recorder.packet(nanoseconds, runs.iter().copied(), target);
    }
}

impl Unit for TimedCell {
    type Copy = TimedCell;

    fn bytes(&self) -> usize {
        CELL_BYTES
    }

    fn append_to(&self, target: &mut Vec<u8>) {
        target.extend_from_slice(&self.to_bytes());
    }

    fn from_received(
        bytes: &[u8],
        _: &mut ReceivePage,
        lent: &mut LinkContext<'_>,
    ) -> Result<TimedCell, UnitError> {
        let bytes = bytes.try_into().map_err(|_| UnitError::Malformed)?;
        Ok(TimedCell::from_bytes(lent.now, bytes))
    }

    fn copy(&self) -> TimedCell {
        *self
    }

    fn from_copy(copy: &TimedCell, _: &mut ReceivePage, lent: &mut LinkContext<'_>) -> Option<TimedCell> {
        Some(TimedCell { at: lent.now, ..*copy })
    }

    fn impair(
        copy: TimedCell,
        at: Instant,
        impairment: &mut Impairment,
        put: &mut dyn FnMut(Instant, TimedCell),
    ) {
        let mut cells = vec![TimedCell { at, ..copy }];
        impairment.apply(&mut cells, 0);
        cells.into_iter().for_each(|cell| put(cell.at, cell));
    }

    fn link_type(_: bool) -> u32 {
        kiban_capture::LINK_TYPE_ERF
    }

    fn replay(
        link_type: u32,
        record: &[u8],
        _: &mut ReceivePage,
        lent: &mut LinkContext<'_>,
        into: &mut VecDeque<TimedCell>,
    ) -> Result<(), UnitError> {
        if link_type == LINK_TYPE_SUNATM {
            let (SunAtm { vc, .. }, length) = SunAtm::read(record).map_err(|_| UnitError::Malformed)?;
            let frame = &record[length..];
            if !(1..=FRAME_BYTES_MAX).contains(&frame.len()) {
                return Err(UnitError::Malformed);
            }
            sar::segment(frame, Header::user(vc, false).to_word(Interface::Uni), lent.now, into);
            return Ok(());
        }
        let (erf, length) = Erf::read(record).map_err(|_| UnitError::Malformed)?;
        let (payloads @ [.., _], []) = record[length..][..erf.captured_bytes.into()].as_chunks() else {
            return Err(UnitError::Malformed);
        };
        // The record carries the header of the last cell. The other cells have no end-of-frame mark.
        let mark = u32::from(PTI_LAST) << 1;
        let words = std::iter::repeat_n(erf.word & !mark, payloads.len() - 1).chain([erf.word | mark]);
        into.extend(words.zip(payloads).map(|(word, payload)| TimedCell::new(lent.now, word, *payload)));
        Ok(())
    }

    fn record(&self, recorder: &mut Recorder, nanoseconds: u64, interface: u8, target: &mut Vec<u8>) {
        recorder.cell(nanoseconds, interface, self, target);
    }
}
