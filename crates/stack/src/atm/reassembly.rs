//! AAL5 up: cells into frames (I.363.5 §9.2), any number of circuits interleaved.
//!
//! Goal      deliver a frame whole or not at all; touch its payload once. A cell is copied into a content page and summed
//!           in the same pass, per circuit (paper \[1\]: per-VC on-the-fly checksum), and when the last is in, the slices
//!           know their sums.
//! Up        HEC → circuit → the first cell into the PDU's head (LLC 8, IP 20, TCP 20: header and content memory apart,
//!           paper \[1\]), the rest into pages → at the mark: CRC, length, deliver.
//! Last      the trailer is read before the last cell is placed: pad and trailer are not stored (a pad that began in the
//!           cell before is cut off). The CRC runs over what a page has received when the page is full or the
//!           frame ends, at memory speed.
//! Runs      consecutive cells with the same header are looked up once and placed in one loop.
//! Failing   a frame that cannot be kept (too long, no page, no block) is given up at once, its memory goes home, the
//!           cells up to its mark are skipped. A lost last cell joins two frames: both are lost, no third.
//! Limits    one frame in assembly per circuit; `frame_bytes_max` bounds it; pages belong to one frame.
//! F4        a path's OAM cells come on VCs of their own, with the payload type of user cells: [`Reassembly::open_oam`].
//! Left out  reassembly timers (an unfinished frame keeps its pages until [`Reassembly::close`]), the corrupted-data
//!           delivery option.

use crate::atm::Circuit;
use crate::atm::cell::{HeaderReceiver, Received, TimedCell, is_end, is_management};
use crate::atm::counters::ReassemblyCounters;
use crate::atm::table::{Names, name_mask, name_of};
use alloc::vec::Vec;
use kiban_ground::{Context, Instant, Page, Pdu, Slice, Sum};
use kiban_wire::Malformed;
use kiban_wire::aal5::{self, FRAME_BYTES_MAX, TRAILER_BYTES, Trailer};
use kiban_wire::atm::{CELL_PAYLOAD_BYTES, Header, Interface, PTI_CONGESTED, Vc, is_physical, is_unassigned};
use kiban_wire::crc::Crc32Aal5;

/// How a circuit receives.
#[derive(Clone, Copy, Debug)]
pub struct Inlet {
    /// Its name on the line.
    pub vc: Vc,
    /// The longest frame it takes, in bytes without pad and trailer.
    pub frame_bytes_max: usize,
    /// Cells of each frame that go into the PDU's head: 0 or 1.
    pub head_cells: u8,
}

impl Inlet {
    /// A circuit for IP with the MTU of RFC 2225 §7: 9180 bytes and LLC/SNAP, headers apart.
    pub const fn classical_ip(vc: Vc) -> Inlet {
        Inlet { vc, frame_bytes_max: 9188, head_cells: 1 }
    }
}

/// What came out of a train.
#[derive(Debug)]
pub enum Arrival {
    /// A frame, whole.
    Frame {
        /// On which circuit.
        circuit: Circuit,
        /// Its bytes: head and body with sums, no tail.
        pdu: Pdu,
        /// Whether its last cell met congestion (EFCI; I.363.5: CPCS-CI).
        congested: bool,
        /// Whether any of its cells was of low priority (CLP; I.363.5: CPCS-LP).
        low_priority: bool,
        /// The trailer's byte from user to user.
        user_to_user: u8,
        /// The moment of its last cell.
        at: Instant,
    },
    /// A management cell of the circuit: F5 OAM or resource management; or of a path, F4 OAM.
    Oam {
        /// On which circuit.
        circuit: Circuit,
        /// Its header; `pti` says which kind.
        header: Header,
        /// Its payload, not looked at.
        payload: [u8; CELL_PAYLOAD_BYTES],
        /// Its moment.
        at: Instant,
    },
}

/// A port's receiving side.
pub struct Reassembly {
    interface: Interface,
    receiver: HeaderReceiver,
    names: Names,
    assemblies: Vec<Option<Assembly>>,
    counters: ReassemblyCounters,
}

impl Reassembly {
    /// A port at which no circuit is open.
    pub fn new(interface: Interface) -> Reassembly {
        Reassembly {
            interface,
            receiver: HeaderReceiver::default(),
            names: Names::new(),
            assemblies: Vec::new(),
            counters: ReassemblyCounters::default(),
        }
    }

    /// Opens a circuit; what was open under its number or its name is closed.
    ///
    /// # Panics
    /// When more than one cell is to go into the head.
    pub fn open(&mut self, circuit: Circuit, inlet: Inlet) {
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

    /// Opens a circuit of which every cell is a management cell: the F4 flow of a path (I.361 §2.2.3).
    pub fn open_oam(&mut self, circuit: Circuit, vc: Vc) {
        self.open(circuit, Inlet { vc, frame_bytes_max: 1, head_cells: 0 });
        if let Some(assembly) = &mut self.assemblies[circuit.0 as usize] {
            assembly.is_oam = true;
        }
    }

    /// Closes a circuit; its unfinished frame goes home.
    pub fn close(&mut self, circuit: Circuit) {
        if let Some(assembly) = self.assemblies.get_mut(circuit.0 as usize).and_then(Option::take) {
            self.names.remove(assembly.name);
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> &ReassemblyCounters {
        &self.counters
    }

    /// Takes a train in; appends what came out of it to `out`.
    pub fn cells(&mut self, train: &[TimedCell], cx: &mut Context<'_>, out: &mut Vec<Arrival>) {
        self.counters.cells_in += train.len() as u64;
        let mut rest = train;
        while let [first, following @ ..] = rest {
            let word = match self.receiver.receive(first) {
                Received::Intact => first.header,
                Received::Corrected(word) => {
                    self.counters.cells_hec_corrected += 1;
                    self.cell(word, first, cx, out);
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
                self.cell(word, first, cx, out);
                rest = following;
                continue;
            }
            // What repeats an intact header is intact.
            let same =
                following.iter().take_while(|cell| cell.header == word && cell.hec == first.hec).count();
            let (run, after) = rest.split_at(1 + same);
            if let Some((assembly, counters)) = self.assembly(word, run.len()) {
                if assembly.is_oam {
                    run.iter().for_each(|one| self.cell(word, one, cx, out));
                } else {
                    assembly.place_run(run, word & 1 == 1, cx, counters);
                }
            }
            rest = after;
        }
    }

    /// The assembly of the circuit that a header names; a run of unknown cells is counted.
    #[inline]
    fn assembly(&mut self, word: u32, run: usize) -> Option<(&mut Assembly, &mut ReassemblyCounters)> {
        let name = word & name_mask(self.interface);
        match self.names.look_up(name) {
            Some(index) => {
                let assembly =
                    self.assemblies[index as usize].as_mut().expect("a name leads to an open circuit");
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

    /// One cell that is not a plain member of a run.
    fn cell(&mut self, word: u32, cell: &TimedCell, cx: &mut Context<'_>, out: &mut Vec<Arrival>) {
        let interface = self.interface;
        let Some((assembly, counters)) = self.assembly(word, 1) else { return };
        if assembly.is_oam || is_management(word) {
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

/// Why a frame is given up.
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
    /// Counts it, with the cells that its frame had.
    #[cold]
    fn count(self, cells: usize, counters: &mut ReassemblyCounters) {
        if matches!(self, Failure::Oversized | Failure::Pages | Failure::Blocks | Failure::Slices) {
            counters.cells_given_up += cells as u64;
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

/// One circuit: the frame in assembly, if there is one.
struct Assembly {
    circuit: Circuit,
    name: u32,
    cells_max: usize,
    frame_bytes_max: usize,
    head_bytes_max: usize,
    pdu: Option<Pdu>,
    /// The page being filled and the sum of what it received.
    page: Option<Page>,
    sum: Sum,
    /// Over the head and the pages that are full.
    crc: Crc32Aal5,
    cells: usize,
    low_priority: bool,
    /// The frame was given up: its cells are skipped up to the mark.
    skipping: bool,
    /// All its cells are management's.
    is_oam: bool,
}

impl Assembly {
    fn new(circuit: Circuit, name: u32, inlet: Inlet) -> Assembly {
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
        }
    }

    /// Forgets the frame; its memory goes home.
    fn clear(&mut self) {
        self.pdu = None;
        self.page = None;
        self.sum = Sum::ZERO;
        self.crc = Crc32Aal5::new();
        self.cells = 0;
    }

    /// Places cells of which none is the last.
    #[inline]
    fn place_run(
        &mut self,
        run: &[TimedCell],
        low_priority: bool,
        cx: &mut Context<'_>,
        counters: &mut ReassemblyCounters,
    ) {
        if self.skipping {
            counters.cells_given_up += run.len() as u64;
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
            let mut pdu = cx.memory.blocks.take().ok_or(Failure::Blocks)?;
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
            // Where in a page a cell begins is even or odd for all of them: cells are of even length.
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

    /// Places bytes across as many pages as they need.
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

    /// Runs the CRC over what the page received and hands it to the PDU.
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

    /// Places the last cell and judges the frame.
    fn place_last(
        &mut self,
        cell: &TimedCell,
        cx: &mut Context<'_>,
        counters: &mut ReassemblyCounters,
    ) -> Option<(Pdu, Trailer)> {
        if self.skipping {
            self.skipping = false;
            counters.cells_given_up += 1;
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
        // I.363.5 §9.2.1.2: a length of zero gives the frame up, whatever the rest says.
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
            self.pdu = Some(cx.memory.blocks.take().ok_or(Failure::Blocks)?);
        }
        let own = &cell.payload[..payload_bytes.saturating_sub(placed_bytes)];
        if placed_bytes < self.head_bytes_max {
            self.pdu.as_mut().expect("taken above").extend_head(own);
        } else {
            self.place(own, cx)?;
        }
        self.close_page()?;
        if payload_bytes < placed_bytes {
            // The pad began in the cell before.
            self.pdu.as_mut().expect("taken above").truncate(payload_bytes);
        }
        Ok(trailer)
    }
}
