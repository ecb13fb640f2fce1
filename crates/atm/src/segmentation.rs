//! AAL5 transmit path: turns frames into cells (I.363.5 §9.2).
//!
//! Purpose          never copy a frame before its cells are sent: a cell is gathered from head, body and tail
//!                  when its slot is committed (paper \[1\]: the SAR's transfer from header and content
//!                  memory).
//! Transmit path    pad and trailer (length, CRC-32) go into the PDU's tail, and the PDU is queued on its
//!                  circuit. The scheduler takes one cell after another. The last cell carries the end mark,
//!                  and the PDU is freed with it.
//! Priority         management cells (OAM, RM) of a circuit are sent before its queued frames, and between
//!                  the cells of a frame.
//! Header           the two header words of a circuit (last cell, other cells) and their HECs are computed
//!                  when it is opened.
//! Limits           at most `frames_max` frames and [`MANAGEMENT_CELLS_MAX`] management cells per circuit,
//!                  and 65,535 bytes per frame.
//! Not implemented  streaming mode, AAL3/4, aborting a frame in transmission; the user-to-user byte is 0.

use crate::Circuit;
use crate::cell::{TimedCell, hec_of};
use crate::counters::SegmentationCounters;
use crate::gcra::Contract;
use crate::scheduler::{CellSource, Scheduler};
use crate::service::Service;
use crate::slots::{Interval, SlotClock};
use crate::wire::aal5::{self, FRAME_BYTES_MAX, TRAILER_BYTES, Trailer};
use crate::wire::atm::{CELL_PAYLOAD_BYTES, Header, Interface, Vc};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use kiban_base::crc::Crc32Aal5;
use kiban_base::{Copies, Instant, Pdu, TAIL_BYTES};

/// Maximum number of management cells queued on one circuit.
pub const MANAGEMENT_CELLS_MAX: usize = 16;

/// Transmit parameters of a circuit.
#[derive(Clone, Copy, Debug)]
pub struct TxCircuit {
    /// Its identifier on the line.
    pub vc: Vc,
    /// Maximum number of frames queued, including the one in transmission.
    pub frames_max: usize,
    /// Whether the circuit's cells have low priority (CLP 1).
    pub low_priority: bool,
    /// The contract to which the circuit's cells are shaped, if any.
    pub contract: Option<Contract>,
    /// How the circuit is served when others also have cells.
    pub service: Service,
}

/// The reason why a frame or cell was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RejectReason {
    /// The circuit has not been opened.
    UnknownCircuit,
    /// The circuit's queue is full: check [`Segmentation::room`].
    QueueFull,
    /// The frame has more than 65,535 bytes (I.363.5: the length field).
    Oversized,
    /// The frame is empty: a length of zero would mean an aborted frame.
    Empty,
    /// The PDU's tail has no room for pad and trailer: freeze it into the body first.
    TailFull,
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RejectReason::UnknownCircuit => "no such circuit: open it before sending",
            RejectReason::QueueFull => "the circuit's queue is full: wait until it has room",
            RejectReason::Oversized => "the frame is longer than 65535 bytes: send shorter frames",
            RejectReason::Empty => "the frame is empty: send at least one byte",
            RejectReason::TailFull => {
                "pad and trailer need room in the tail: freeze the tail into the body first"
            }
        })
    }
}

/// A rejected frame.
#[derive(Debug)]
pub struct RejectedFrame {
    /// The frame, unchanged.
    pub pdu: Pdu,
    /// The reason.
    pub reason: RejectReason,
}

/// The transmit side of a port.
pub struct Segmentation {
    scheduler: Scheduler<Outgoing>,
    interface: Interface,
    counters: SegmentationCounters,
}

impl Segmentation {
    /// Creates the transmit side of a line on which a cell takes `cell_time`.
    pub fn new(cell_time: Interval, interface: Interface) -> Segmentation {
        Segmentation {
            scheduler: Scheduler::new(cell_time),
            interface,
            counters: SegmentationCounters::default(),
        }
    }

    /// Opens a circuit. If a circuit is already open under this number, it is closed.
    pub fn open(&mut self, circuit: Circuit, outlet: TxCircuit) {
        let word = |last| {
            let header = Header { clp: outlet.low_priority, ..Header::user(outlet.vc, last) };
            header.to_word(self.interface)
        };
        let outgoing = Outgoing {
            middle: HeaderWithHec::of(word(false)),
            last: HeaderWithHec::of(word(true)),
            frames: VecDeque::new(),
            management: VecDeque::new(),
            frames_max: outlet.frames_max,
            cells: 0,
        };
        self.scheduler.insert(circuit.0, outgoing, outlet.contract, outlet.service);
    }

    /// Closes a circuit and frees its queued frames.
    pub fn close(&mut self, circuit: Circuit) {
        self.scheduler.remove(circuit.0);
    }

    /// Returns how many more frames a circuit accepts now.
    pub fn room(&self, circuit: Circuit) -> usize {
        self.scheduler
            .supply(circuit.0)
            .map_or(0, |outgoing| outgoing.frames_max.saturating_sub(outgoing.frames.len()))
    }

    /// Queues a frame. Call [`Segmentation::advance`] to `now` first.
    ///
    /// # Errors
    /// Returns the frame unchanged, with the reason.
    pub fn send(&mut self, circuit: Circuit, mut pdu: Pdu, now: Instant) -> Result<(), RejectedFrame> {
        if let Err(reason) = self.validate(circuit, &pdu) {
            self.counters.frames_refused += 1;
            return Err(RejectedFrame { pdu, reason });
        }
        let cells = append_trailer(&mut pdu);
        let outgoing = self.scheduler.supply_mut(circuit.0).expect("`validate` found the circuit open");
        outgoing.frames.push_back(Frame { pdu, left: cells as u32, part: 0, offset: 0 });
        outgoing.cells += cells;
        self.scheduler.wake(circuit.0, now);
        Ok(())
    }

    fn validate(&self, circuit: Circuit, pdu: &Pdu) -> Result<(), RejectReason> {
        let outgoing = self.scheduler.supply(circuit.0).ok_or(RejectReason::UnknownCircuit)?;
        match pdu.len() {
            0 => Err(RejectReason::Empty),
            length if length > FRAME_BYTES_MAX => Err(RejectReason::Oversized),
            length if pdu.tail().len() + aal5::pad_bytes(length) + TRAILER_BYTES > TAIL_BYTES => {
                Err(RejectReason::TailFull)
            }
            _ if outgoing.frames.len() >= outgoing.frames_max => Err(RejectReason::QueueFull),
            _ => Ok(()),
        }
    }

    /// Queues a management cell, to be sent before the circuit's frames. `pti` is one of the `PTI_OAM_`
    /// constants or the resource management PTI. Call [`Segmentation::advance`] to `now` first.
    ///
    /// # Errors
    /// `UnknownCircuit`, `QueueFull`.
    pub fn send_management(
        &mut self,
        circuit: Circuit,
        pti: u8,
        payload: [u8; CELL_PAYLOAD_BYTES],
        now: Instant,
    ) -> Result<(), RejectReason> {
        let outgoing = self.scheduler.supply_mut(circuit.0).ok_or(RejectReason::UnknownCircuit)?;
        if outgoing.management.len() >= MANAGEMENT_CELLS_MAX {
            return Err(RejectReason::QueueFull);
        }
        // Management cells have priority: CLP 0.
        let word = outgoing.middle.word & !0xf | (u32::from(pti) & 0b111) << 1;
        outgoing.management.push_back((HeaderWithHec::of(word), payload));
        outgoing.cells += 1;
        self.counters.management_cells_out += 1;
        self.scheduler.wake(circuit.0, now);
        Ok(())
    }

    /// Commits every slot that starts before `until` and appends their cells to `out`.
    pub fn advance(&mut self, until: Instant, out: &mut Vec<TimedCell>, copies: &mut Copies) {
        let (mut tally, before) = (WrittenCounts::default(), out.len());
        self.scheduler.advance(until, out, &mut tally);
        self.counters.cells_out += (out.len() - before) as u64;
        self.counters.frames_out += tally.frames;
        copies.sar_out_bytes += tally.cells * CELL_PAYLOAD_BYTES as u64;
    }

    /// Returns when the next frame or management cell will have left if no more input comes. See
    /// [`Scheduler::next_end`].
    pub fn next_end(&self) -> Instant {
        self.scheduler.next_end()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &SegmentationCounters {
        &self.counters
    }
}

/// Appends pad and trailer to a frame's tail and returns the number of cells it needs.
fn append_trailer(pdu: &mut Pdu) -> usize {
    let length = pdu.len();
    let pad_bytes = aal5::pad_bytes(length);
    let mut crc = Crc32Aal5::new();
    pdu.runs().for_each(|run| crc.update(run));
    let mut trailer = Trailer { user_to_user: 0, length: length as u16, crc: 0 };
    let before = pdu.tail().len();
    let added = &mut pdu.push_tail(pad_bytes + TRAILER_BYTES)[before..];
    trailer.write(&mut added[pad_bytes..]);
    // I.363.5 §9.2.1.2: the CRC covers everything before it, including pad and length.
    crc.update(&added[..pad_bytes + TRAILER_BYTES - 4]);
    trailer.crc = crc.value();
    trailer.write(&mut added[pad_bytes..]);
    aal5::cells(length)
}

/// A header word with its HEC.
#[derive(Clone, Copy)]
struct HeaderWithHec {
    word: u32,
    hec: u8,
}

impl HeaderWithHec {
    fn of(word: u32) -> HeaderWithHec {
        HeaderWithHec { word, hec: hec_of(word) }
    }

    #[inline]
    fn cell(self, at: Instant, payload: [u8; CELL_PAYLOAD_BYTES]) -> TimedCell {
        TimedCell { payload, at, header: self.word, hec: self.hec }
    }
}

/// Cells and frames written while slots were committed.
#[derive(Default)]
struct WrittenCounts {
    frames: u64,
    cells: u64,
}

/// A frame in transmission, and the position within it.
struct Frame {
    pdu: Pdu,
    left: u32,
    /// The current part: 0 is the head; the slices follow, and then the tail.
    part: u32,
    offset: u32,
}

impl Frame {
    #[inline]
    fn rest_of_part(&self) -> &[u8] {
        let part = self.part as usize;
        let bytes = if part == 0 {
            self.pdu.head()
        } else if let Some(slice) = self.pdu.body().get(part - 1) {
            slice.bytes()
        } else {
            self.pdu.tail()
        };
        &bytes[self.offset as usize..]
    }

    /// Gathers the next 48 bytes.
    #[inline]
    fn gather(&mut self) -> [u8; CELL_PAYLOAD_BYTES] {
        match self.rest_of_part().first_chunk() {
            Some(payload) => {
                let payload = *payload;
                self.offset += CELL_PAYLOAD_BYTES as u32;
                payload
            }
            None => self.gather_pieces(),
        }
    }

    fn gather_pieces(&mut self) -> [u8; CELL_PAYLOAD_BYTES] {
        let mut payload = [0; CELL_PAYLOAD_BYTES];
        let mut filled = 0;
        while filled < CELL_PAYLOAD_BYTES {
            let rest = self.rest_of_part();
            let count = rest.len().min(CELL_PAYLOAD_BYTES - filled);
            payload[filled..filled + count].copy_from_slice(&rest[..count]);
            filled += count;
            if count == rest.len() {
                self.part += 1;
                self.offset = 0;
            } else {
                self.offset += count as u32;
            }
        }
        payload
    }
}

/// One circuit's queue.
struct Outgoing {
    middle: HeaderWithHec,
    last: HeaderWithHec,
    frames: VecDeque<Frame>,
    management: VecDeque<(HeaderWithHec, [u8; CELL_PAYLOAD_BYTES])>,
    frames_max: usize,
    cells: usize,
}

impl CellSource for Outgoing {
    type Loan = WrittenCounts;

    #[inline]
    fn cells(&self) -> usize {
        self.cells
    }

    fn cells_to_end(&self) -> Option<usize> {
        if self.management.is_empty() {
            self.frames.front().map(|frame| frame.left as usize)
        } else {
            Some(1)
        }
    }

    #[inline]
    fn write(&mut self, at: Instant, out: &mut Vec<TimedCell>, tally: &mut WrittenCounts) {
        self.cells -= 1;
        if let Some((stamp, payload)) = self.management.pop_front() {
            out.push(stamp.cell(at, payload));
            return;
        }
        let frame = self.frames.front_mut().expect("the count includes only queued cells");
        tally.cells += 1;
        frame.left -= 1;
        let payload = frame.gather();
        if frame.left > 0 {
            out.push(self.middle.cell(at, payload));
        } else {
            out.push(self.last.cell(at, payload));
            tally.frames += 1;
            self.frames.pop_front();
        }
    }

    fn write_run(
        &mut self,
        clock: &mut SlotClock,
        until: Instant,
        out: &mut Vec<TimedCell>,
        tally: &mut WrittenCounts,
    ) {
        while self.cells > 0 && clock.start() < until {
            if self.management.is_empty() {
                self.write_middle(clock, until, out, tally);
            }
            // The next cell is not a plain middle cell: it is the last cell, spans parts, or is a management
            // cell.
            if clock.start() < until {
                clock.step();
                self.write(clock.start(), out, tally);
            }
        }
    }
}

impl Outgoing {
    /// Writes the middle cells that lie entirely within the current part of the first frame.
    #[inline]
    fn write_middle(
        &mut self,
        clock: &mut SlotClock,
        until: Instant,
        out: &mut Vec<TimedCell>,
        tally: &mut WrittenCounts,
    ) {
        let frame = self.frames.front_mut().expect("the count includes only queued cells");
        let (payloads, _) = frame.rest_of_part().as_chunks::<CELL_PAYLOAD_BYTES>();
        let payloads = &payloads[..payloads.len().min(frame.left as usize - 1)];
        out.reserve(payloads.len());
        let mut count = 0;
        for payload in payloads {
            if clock.start() >= until {
                break;
            }
            clock.step();
            out.push(self.middle.cell(clock.start(), *payload));
            count += 1;
        }
        frame.offset += (count * CELL_PAYLOAD_BYTES) as u32;
        frame.left -= count as u32;
        self.cells -= count;
        tally.cells += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::atm::PTI_OAM_END_TO_END;
    use alloc::vec;
    use core::time::Duration;
    use kiban_base::{PagePool, PduPool};

    const OUTLET: TxCircuit = TxCircuit {
        vc: Vc::new(0, 100),
        frames_max: 2,
        low_priority: false,
        contract: None,
        service: Service::UBR,
    };
    const CIRCUIT: Circuit = Circuit(0);

    fn port() -> Segmentation {
        let mut port = Segmentation::new(Interval::every(Duration::from_micros(1)), Interface::Uni);
        port.open(CIRCUIT, OUTLET);
        port
    }

    fn pdu(blocks: &mut PduPool, bytes: &[u8]) -> Pdu {
        let mut pdu = blocks.take().unwrap();
        let mut page = PagePool::new(1, 70_000).take().unwrap();
        pdu.push_head(bytes.len().min(40)).copy_from_slice(&bytes[..bytes.len().min(40)]);
        if let Some(slice) = page.append(bytes.get(40..).unwrap_or_default()) {
            pdu.push_body(slice).unwrap();
        }
        pdu
    }

    #[test]
    fn a_frame_becomes_the_bytes_of_the_standard() {
        for length in [1, 39, 40, 41, 47, 48, 87, 88, 89, 1000, 8240, 65535] {
            let (mut port, mut blocks, mut out) = (port(), PduPool::new(1), vec![]);
            let bytes: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            port.send(CIRCUIT, pdu(&mut blocks, &bytes), Instant::ZERO).unwrap();
            assert_eq!(port.next_end().as_nanos(), 1000 * aal5::cells(length) as u64);
            let mut copies = Copies::default();
            port.advance(Instant::from_nanos(u64::MAX / 2), &mut out, &mut copies);
            let whole: Vec<u8> = out.iter().flat_map(|cell| cell.payload).collect();
            let (trailer, payload) = aal5::open(&whole).unwrap();
            assert_eq!((payload, usize::from(trailer.length)), (&bytes[..], length));
            let marks: Vec<bool> =
                out.iter().map(|c| Header::from_word(Interface::Uni, c.header).is_last()).collect();
            assert!(marks.iter().enumerate().all(|(at, last)| *last == (at + 1 == marks.len())));
            assert!(out.iter().all(|cell| cell.hec == hec_of(cell.header)));
            assert_eq!(copies.sar_out_bytes as usize, whole.len());
            assert_eq!((blocks.available(), port.counters().frames_out), (1, 1));
        }
    }

    #[test]
    fn a_frame_that_cannot_be_sent_is_returned_unchanged() {
        let (mut port, mut blocks) = (port(), PduPool::new(4));
        let check = |port: &mut Segmentation, circuit, pdu: Pdu, expected| {
            let before = (pdu.len(), pdu.tail().len());
            let refused = port.send(circuit, pdu, Instant::ZERO).unwrap_err();
            assert_eq!((refused.reason, (refused.pdu.len(), refused.pdu.tail().len())), (expected, before));
        };
        let empty = blocks.take().unwrap();
        check(&mut port, CIRCUIT, empty, RejectReason::Empty);
        let long = pdu(&mut blocks, &vec![0; 65536]);
        check(&mut port, CIRCUIT, long, RejectReason::Oversized);
        let fine = pdu(&mut blocks, b"x");
        check(&mut port, Circuit(7), fine, RejectReason::UnknownCircuit);
        let mut tailed = pdu(&mut blocks, b"");
        tailed.push_tail(50);
        check(&mut port, CIRCUIT, tailed, RejectReason::TailFull);
        for room in [2, 1] {
            assert_eq!(port.room(CIRCUIT), room);
            port.send(CIRCUIT, pdu(&mut blocks, b"x"), Instant::ZERO).unwrap();
        }
        let third = pdu(&mut blocks, b"x");
        check(&mut port, CIRCUIT, third, RejectReason::QueueFull);
        port.close(CIRCUIT);
        assert_eq!((blocks.available(), port.next_end(), port.room(CIRCUIT)), (4, Instant::NEVER, 0));
    }

    #[test]
    fn management_goes_before_frames_and_between_their_cells() {
        let (mut port, mut blocks, mut out, mut copies) =
            (port(), PduPool::new(1), vec![], Copies::default());
        port.open(CIRCUIT, TxCircuit { low_priority: true, ..OUTLET });
        port.send(CIRCUIT, pdu(&mut blocks, &[0; 100]), Instant::ZERO).unwrap();
        port.advance(Instant::from_nanos(1), &mut out, &mut copies);
        port.send_management(CIRCUIT, PTI_OAM_END_TO_END, [0x6a; 48], Instant::from_nanos(1)).unwrap();
        assert_eq!(port.next_end().as_nanos(), 2000);
        port.advance(Instant::from_nanos(1_000_000), &mut out, &mut copies);
        let types: Vec<u8> =
            out.iter().map(|cell| Header::from_word(Interface::Uni, cell.header).pti).collect();
        assert_eq!(types, [0, 5, 0, 1]);
        // Management cells of a low-priority circuit have high priority.
        let priorities: Vec<u32> = out.iter().map(|cell| cell.header & 1).collect();
        assert_eq!(priorities, [1, 0, 1, 1]);
        for _ in 0..MANAGEMENT_CELLS_MAX {
            port.send_management(CIRCUIT, 4, [0; 48], Instant::from_nanos(1_000_000)).unwrap();
        }
        assert_eq!(
            port.send_management(CIRCUIT, 4, [0; 48], Instant::from_nanos(1_000_000)),
            Err(RejectReason::QueueFull)
        );
    }
}
