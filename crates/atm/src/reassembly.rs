//! AAL5 receive path: turns cells into frames (I.363.5 §9.2), with any number of circuits interleaved.
//!
//! Purpose          deliver a frame whole or not at all, and touch its payload once. A cell is copied into a
//!                  content page and checksummed in the same pass, per circuit (paper \[1\]: per-VC
//!                  on-the-fly checksum), so that the sums of the slices are known when the last cell has
//!                  arrived.
//! Receive path     check the HEC and find the circuit. Store the first cell in the PDU's head and the rest
//!                  in pages. (The first cell holds exactly LLC 8, IP 20 and TCP 20; paper \[1\] has separate
//!                  header and content memory.) At the end mark, check CRC and length, and deliver the frame.
//! Last cell        the trailer is read before the last cell is stored, so that pad and trailer are not
//!                  stored (a pad that began in the previous cell is cut off). The CRC of a page is computed
//!                  at memory speed when the page is full or the frame ends.
//! Runs             consecutive cells with the same header are looked up once and stored in one loop.
//! Failure          a frame that cannot be stored (because it is too long, or no page or block is free) is
//!                  dropped at once. Its memory is freed, and the cells up to its end mark are skipped. If a
//!                  frame's last cell is lost, the frame merges with the next: both are lost, but later
//!                  frames are not affected.
//! Limits           each circuit has at most one frame in reassembly, of at most `frame_bytes_max`; a page
//!                  belongs to one frame.
//! F4               a path's OAM cells have reserved VCIs and the payload type of user cells: see
//!                  [`Reassembly::open_oam`].
//! Foreign cells    of a circuit that is reassembled elsewhere are checked and reported, not stored:
//!                  [`Reassembly::open_foreign`].
//! Not implemented  reassembly timers (an unfinished frame keeps its pages until [`Reassembly::close`]), the
//!                  corrupted-data delivery option.

use crate::Circuit;
use crate::cell::{HeaderReceiver, Received, TimedCell, is_end, is_management};
use crate::counters::ReassemblyCounters;
use crate::table::{HeaderTable, name_mask, name_of};
use crate::wire::aal5::{self, FRAME_BYTES_MAX, TRAILER_BYTES, Trailer};
use crate::wire::atm::{
    CELL_PAYLOAD_BYTES, Header, Interface, PTI_CONGESTED, Vc, is_physical, is_unassigned,
};
use alloc::vec::Vec;
use core::ops::Range;
use kiban_base::Malformed;
use kiban_base::crc::Crc32Aal5;
use kiban_base::{Context, Instant, Page, Pdu, Slice, Sum};

/// Receive parameters of a circuit.
#[derive(Clone, Copy, Debug)]
pub struct RxCircuit {
    /// Its identifier on the line.
    pub vc: Vc,
    /// Maximum frame length in bytes, without pad and trailer.
    pub frame_bytes_max: usize,
    /// Number of cells at the front of each frame that go into the PDU's head: 0 or 1.
    pub head_cells: u8,
}

impl RxCircuit {
    /// Returns parameters for IP with the MTU of RFC 2225 §7 (9180 bytes), LLC/SNAP, and headers in the PDU's
    /// head.
    pub const fn classical_ip(vc: Vc) -> RxCircuit {
        RxCircuit { vc, frame_bytes_max: 9188, head_cells: 1 }
    }
}

/// An item received in a train.
#[derive(Debug)]
pub enum Arrival {
    /// A complete frame.
    Frame {
        /// The circuit.
        circuit: Circuit,
        /// The frame, in head and body with sums, and without a tail.
        pdu: Pdu,
        /// Whether the frame's last cell carried the congestion indication (EFCI; I.363.5: CPCS-CI).
        congested: bool,
        /// Whether any of the frame's cells had low priority (CLP; I.363.5: CPCS-LP).
        low_priority: bool,
        /// The user-to-user byte in the trailer.
        user_to_user: u8,
        /// The time of the frame's last cell.
        at: Instant,
    },
    /// A management cell: F5 OAM or resource management of a circuit, or F4 OAM of a path.
    Oam {
        /// The circuit.
        circuit: Circuit,
        /// The cell's header; `pti` gives the kind.
        header: Header,
        /// Its payload, not validated.
        payload: [u8; CELL_PAYLOAD_BYTES],
        /// The time of the cell.
        at: Instant,
    },
    /// Consecutive cells of a circuit that are processed elsewhere.
    Foreign {
        /// The circuit.
        circuit: Circuit,
        /// Whether they are management cells.
        is_management: bool,
        /// Their places in the train.
        cells: Range<usize>,
    },
}

/// The receive side of a port.
pub struct Reassembly {
    interface: Interface,
    receiver: HeaderReceiver,
    names: HeaderTable,
    assemblies: Vec<Option<Assembly>>,
    /// Whether management cells are processed elsewhere.
    is_management_foreign: bool,
    counters: ReassemblyCounters,
}

impl Reassembly {
    /// Creates the receive side of a port without open circuits.
    pub fn new(interface: Interface) -> Reassembly {
        Reassembly {
            interface,
            receiver: HeaderReceiver::default(),
            names: HeaderTable::new(),
            assemblies: Vec::new(),
            is_management_foreign: false,
            counters: ReassemblyCounters::default(),
        }
    }

    /// Opens a circuit. If a circuit is already open under this number or identifier, it is closed.
    ///
    /// # Panics
    /// If `head_cells` is more than one.
    pub fn open(&mut self, circuit: Circuit, inlet: RxCircuit) {
        assert!(inlet.head_cells <= 1, "a PDU's head has room for one cell behind its start");
        let name = name_of(self.interface, inlet.vc);
        self.close(circuit);
        if let Some(other) = self.names.insert(name, circuit.0) {
            self.assemblies[other as usize] = None;
        }
        let index = circuit.0 as usize;
        if self.assemblies.len() <= index {
            self.assemblies.resize_with(index + 1, || None);
        }
        self.assemblies[index] = Some(Assembly::new(circuit, name, inlet));
    }

    /// Opens a circuit whose cells are all management cells: the F4 flow of a path (I.361 §2.2.3).
    pub fn open_oam(&mut self, circuit: Circuit, vc: Vc) {
        self.open(circuit, RxCircuit { vc, frame_bytes_max: 1, head_cells: 0 });
        if let Some(assembly) = &mut self.assemblies[circuit.0 as usize] {
            assembly.is_oam = true;
        }
    }

    /// Opens a circuit whose user cells are reassembled elsewhere: they are reported as [`Arrival::Foreign`].
    pub fn open_foreign(&mut self, circuit: Circuit, vc: Vc) {
        self.open(circuit, RxCircuit { vc, frame_bytes_max: 1, head_cells: 0 });
        if let Some(assembly) = &mut self.assemblies[circuit.0 as usize] {
            assembly.is_foreign = true;
        }
    }

    /// Makes the management cells of all circuits foreign.
    pub fn set_management_foreign(&mut self) {
        self.is_management_foreign = true;
    }

    /// Closes a circuit and frees its unfinished frame.
    pub fn close(&mut self, circuit: Circuit) {
        if let Some(assembly) = self.assemblies.get_mut(circuit.0 as usize).and_then(Option::take) {
            self.names.remove(assembly.name);
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &ReassemblyCounters {
        &self.counters
    }

    /// Processes a train and appends the received items to `out`.
    pub fn cells(&mut self, train: &[TimedCell], cx: &mut Context<'_>, out: &mut Vec<Arrival>) {
        self.counters.cells_in += train.len() as u64;
        let mut rest = train;
        while let [first, following @ ..] = rest {
            let place = train.len() - rest.len();
            let word = match self.receiver.arrive(first) {
                Received::Intact => first.header,
                Received::Corrected(word) => {
                    self.counters.cells_hec_corrected += 1;
                    self.cell(word, (first, place), cx, out);
                    rest = following;
                    continue;
                }
                Received::Bad => {
                    self.counters.cells_hec_bad += 1;
                    rest = following;
                    continue;
                }
            };
            if is_end(word) {
                self.cell(word, (first, place), cx, out);
                rest = following;
                continue;
            }
            // A header that equals a valid one is valid.
            let same =
                following.iter().take_while(|cell| cell.header == word && cell.hec == first.hec).count();
            let (run, after) = rest.split_at(1 + same);
            if let Some((assembly, counters)) = self.assembly(word, run.len()) {
                if assembly.is_oam || assembly.is_foreign {
                    run.iter().zip(place..).for_each(|one| self.cell(word, one, cx, out));
                } else {
                    assembly.place_run(run, word & 1 == 1, cx, counters);
                }
            }
            rest = after;
        }
    }

    /// Returns the circuit that a header identifies. If the circuit is unknown, counts the run of cells.
    #[inline]
    fn assembly(&mut self, word: u32, run: usize) -> Option<(&mut Assembly, &mut ReassemblyCounters)> {
        let name = word & name_mask(self.interface);
        match self.names.look_up(name) {
            Some(index) => {
                let assembly =
                    self.assemblies[index as usize].as_mut().expect("the table names only open circuits");
                Some((assembly, &mut self.counters))
            }
            None => {
                let idle = is_physical(word) || is_unassigned(self.interface, word);
                let counter = if idle {
                    &mut self.counters.cells_idle
                } else {
                    &mut self.counters.cells_unknown_circuit
                };
                *counter += run as u64;
                None
            }
        }
    }

    /// Processes a cell that is not part of a run. `place` is its place in the train.
    fn cell(
        &mut self,
        word: u32,
        (cell, place): (&TimedCell, usize),
        cx: &mut Context<'_>,
        out: &mut Vec<Arrival>,
    ) {
        let (interface, is_management_foreign) = (self.interface, self.is_management_foreign);
        let Some((assembly, counters)) = self.assembly(word, 1) else { return };
        let is_management = assembly.is_oam || is_management(word);
        if if is_management { is_management_foreign } else { assembly.is_foreign } {
            // The place where the cell is processed counts it.
            counters.cells_in -= 1;
            let circuit = assembly.circuit;
            return report_foreign(circuit, is_management, place, out);
        }
        if is_management {
            counters.cells_management += 1;
            let header = Header::from_word(interface, word);
            out.push(Arrival::Oam { circuit: assembly.circuit, header, payload: cell.payload, at: cell.at });
        } else if !is_end(word) {
            assembly.place_run(core::slice::from_ref(cell), word & 1 == 1, cx, counters);
        } else if let Some((pdu, trailer)) = assembly.place_last(cell, cx, counters) {
            counters.frames_in += 1;
            out.push(Arrival::Frame {
                circuit: assembly.circuit,
                pdu,
                congested: (word >> 1) as u8 & PTI_CONGESTED != 0,
                low_priority: core::mem::take(&mut assembly.low_priority) || word & 1 == 1,
                user_to_user: trailer.user_to_user,
                at: cell.at,
            });
        } else {
            assembly.low_priority = false;
        }
    }
}

/// Reports a foreign cell; consecutive ones of a circuit together.
fn report_foreign(circuit: Circuit, is_management: bool, place: usize, out: &mut Vec<Arrival>) {
    if let Some(Arrival::Foreign { circuit: last, is_management: same, cells }) = out.last_mut()
        && (*last, *same, cells.end) == (circuit, is_management, place)
    {
        cells.end += 1;
    } else {
        out.push(Arrival::Foreign { circuit, is_management, cells: place..place + 1 });
    }
}

/// Why a frame is dropped.
#[derive(Clone, Copy)]
enum Failure {
    Crc,
    Length,
    Aborted,
    Indicator,
    Oversized,
    Pages,
    Blocks,
    Slices,
}

impl Failure {
    /// Counts the failure, with the cells received for its frame.
    #[cold]
    fn count(self, cells: usize, counters: &mut ReassemblyCounters) {
        if matches!(self, Failure::Oversized | Failure::Pages | Failure::Blocks | Failure::Slices) {
            counters.cells_abandoned += cells as u64;
        }
        *match self {
            Failure::Crc => &mut counters.frames_crc_wrong,
            Failure::Length => &mut counters.frames_length_wrong,
            Failure::Aborted => &mut counters.frames_aborted,
            Failure::Indicator => &mut counters.frames_indicator_wrong,
            Failure::Oversized => &mut counters.frames_oversized,
            Failure::Pages => &mut counters.frames_out_of_pages,
            Failure::Blocks => &mut counters.frames_out_of_blocks,
            Failure::Slices => &mut counters.frames_out_of_slices,
        } += 1;
    }
}

/// Reassembly state of one circuit.
struct Assembly {
    circuit: Circuit,
    name: u32,
    cells_max: usize,
    frame_bytes_max: usize,
    head_bytes_max: usize,
    pdu: Option<Pdu>,
    /// The page being filled and the checksum of its contents.
    page: Option<Page>,
    sum: Sum,
    /// The CRC over the head and the full pages.
    crc: Crc32Aal5,
    cells: usize,
    low_priority: bool,
    /// Whether the frame was dropped, so that its cells are skipped up to the end mark.
    skipping: bool,
    /// Whether all cells of this circuit are management cells.
    is_oam: bool,
    /// Whether the circuit's user cells are reassembled elsewhere.
    is_foreign: bool,
}

impl Assembly {
    fn new(circuit: Circuit, name: u32, inlet: RxCircuit) -> Assembly {
        let frame_bytes_max = inlet.frame_bytes_max.clamp(1, FRAME_BYTES_MAX);
        Assembly {
            circuit,
            name,
            cells_max: aal5::cells(frame_bytes_max),
            frame_bytes_max,
            head_bytes_max: usize::from(inlet.head_cells) * CELL_PAYLOAD_BYTES,
            pdu: None,
            page: None,
            sum: Sum::ZERO,
            crc: Crc32Aal5::new(),
            cells: 0,
            low_priority: false,
            skipping: false,
            is_oam: false,
            is_foreign: false,
        }
    }

    /// Drops the frame and frees its memory.
    fn clear(&mut self) {
        self.pdu = None;
        self.page = None;
        self.sum = Sum::ZERO;
        self.crc = Crc32Aal5::new();
        self.cells = 0;
    }

    /// Stores cells, none of which is the last of a frame.
    #[inline]
    fn place_run(
        &mut self,
        run: &[TimedCell],
        low_priority: bool,
        cx: &mut Context<'_>,
        counters: &mut ReassemblyCounters,
    ) {
        if self.skipping {
            counters.cells_abandoned += run.len() as u64;
            return;
        }
        self.low_priority |= low_priority;
        if let Err(failure) = self.try_run(run, cx) {
            failure.count(self.cells, counters);
            self.clear();
            self.skipping = true;
        }
    }

    #[inline]
    fn try_run(&mut self, mut run: &[TimedCell], cx: &mut Context<'_>) -> Result<(), Failure> {
        self.cells += run.len();
        // The last cell is still to come.
        if self.cells >= self.cells_max {
            return Err(Failure::Oversized);
        }
        cx.copies.sar_in_bytes += (run.len() * CELL_PAYLOAD_BYTES) as u64;
        if self.pdu.is_none() {
            let mut pdu = cx.memory.pdus.take().ok_or(Failure::Blocks)?;
            if self.head_bytes_max > 0
                && let [first, following @ ..] = run
            {
                pdu.extend_head(&first.payload);
                self.crc.update(&first.payload);
                run = following;
            }
            self.pdu = Some(pdu);
        }
        while let [first, following @ ..] = run {
            let whole = match &mut self.page {
                Some(page) => page.room() / CELL_PAYLOAD_BYTES,
                None => 0,
            };
            if whole == 0 {
                self.place(&first.payload, cx)?;
                run = following;
                continue;
            }
            let page = self.page.as_mut().expect("a page with room");
            let (now, later) = run.split_at(whole.min(run.len()));
            // All cells in this page start at the same parity, because the length of a cell is even.
            let parity = page.filled() & 1;
            let mut sum = Sum::ZERO;
            for cell in now {
                sum = sum.plus(page.fill(&cell.payload).1);
            }
            self.sum = self.sum.plus(sum.at(parity));
            run = later;
        }
        Ok(())
    }

    /// Stores bytes in as many pages as needed.
    fn place(&mut self, mut bytes: &[u8], cx: &mut Context<'_>) -> Result<(), Failure> {
        while !bytes.is_empty() {
            if self.page.as_ref().is_none_or(|page| page.room() == 0) {
                self.turn_page()?;
                self.page = Some(cx.memory.receive.take().ok_or(Failure::Pages)?);
            }
            let page = self.page.as_mut().expect("taken above");
            let from = page.filled();
            let (count, sum) = page.fill(bytes);
            self.sum = self.sum.then(from, sum);
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Runs the CRC over the current page and appends it to the PDU.
    fn turn_page(&mut self) -> Result<(), Failure> {
        if let Some(page) = &self.page {
            self.crc.update(page.written());
        }
        self.close_page()
    }

    fn close_page(&mut self) -> Result<(), Failure> {
        if let Some(page) = self.page.take() {
            let slice = Slice::from((page, core::mem::take(&mut self.sum)));
            let pdu = self.pdu.as_mut().expect("a page belongs to a PDU");
            pdu.push_body(slice).map_err(|_| Failure::Slices)?;
        }
        Ok(())
    }

    /// Stores the last cell and validates the frame.
    fn place_last(
        &mut self,
        cell: &TimedCell,
        cx: &mut Context<'_>,
        counters: &mut ReassemblyCounters,
    ) -> Option<(Pdu, Trailer)> {
        if self.skipping {
            self.skipping = false;
            counters.cells_abandoned += 1;
            return None;
        }
        let frame = self.try_last(cell, cx);
        if let Err(failure) = frame {
            failure.count(self.cells, counters);
        }
        let frame = frame.ok().and_then(|trailer| Some((self.pdu.take()?, trailer)));
        self.clear();
        frame
    }

    fn try_last(&mut self, cell: &TimedCell, cx: &mut Context<'_>) -> Result<Trailer, Failure> {
        let placed_bytes = self.cells * CELL_PAYLOAD_BYTES;
        self.cells += 1;
        if self.cells > self.cells_max {
            return Err(Failure::Oversized);
        }
        cx.copies.sar_in_bytes += CELL_PAYLOAD_BYTES as u64;
        let trailer_bytes: &[u8; TRAILER_BYTES] = cell.payload.last_chunk().expect("48 is more than 8");
        let [_, _, l0, l1, sent_crc @ ..] = *trailer_bytes;
        // I.363.5 §9.2.1.2: a length of zero aborts the frame, whatever the other fields contain.
        if [l0, l1] == [0, 0] {
            return Err(Failure::Aborted);
        }
        let mut crc = self.crc;
        if let Some(page) = &self.page {
            crc.update(page.written());
        }
        crc.update(&cell.payload[..CELL_PAYLOAD_BYTES - 4]);
        if crc.value() != u32::from_be_bytes(sent_crc) {
            return Err(Failure::Crc);
        }
        let (trailer, _) = Trailer::read(trailer_bytes).map_err(|broken| match broken {
            Malformed::CommonPartIndicator => Failure::Indicator,
            _ => Failure::Length,
        })?;
        let payload_bytes =
            trailer.payload_bytes(self.cells * CELL_PAYLOAD_BYTES).map_err(|_| Failure::Length)?;
        if payload_bytes > self.frame_bytes_max {
            return Err(Failure::Oversized);
        }
        if self.pdu.is_none() {
            self.pdu = Some(cx.memory.pdus.take().ok_or(Failure::Blocks)?);
        }
        let own = &cell.payload[..payload_bytes.saturating_sub(placed_bytes)];
        if placed_bytes < self.head_bytes_max {
            self.pdu.as_mut().expect("taken above").extend_head(own);
        } else {
            self.place(own, cx)?;
        }
        self.close_page()?;
        if payload_bytes < placed_bytes {
            // The pad began in the previous cell.
            self.pdu.as_mut().expect("taken above").truncate(payload_bytes);
        }
        Ok(trailer)
    }
}
