//! One TCP machine with its memory, and functions that move bytes into and out of that memory.

use core::net::{IpAddr, Ipv4Addr};
use kiban_base::checksum;
use kiban_base::numbers::protocol;
use kiban_base::{Context, Copies, Instant, Memory, Page, PagePool, Pdu, RngKey, SecureRng, SimRng, Slice};
use kiban_tcpip::tcp::{Config, Outbox, Refusal, Segment, SessionId, Tcp};
use kiban_tcpip::wire::tcp::{Flags, HEADER_BYTES, Header, Options, Sequence};

pub(crate) const SERVER_PORT: u16 = 80;

/// The amount of memory that a station has.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) transmit_pages: usize,
    pub(crate) receive_pages: usize,
    pub(crate) page_bytes: usize,
    pub(crate) blocks: usize,
    /// The pool size reported to TCP, in percent of the real size. It is smaller because segments do not fill
    /// their pages.
    pub(crate) ledger_percent: usize,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            transmit_pages: 1024,
            receive_pages: 1024,
            page_bytes: 4096,
            blocks: 1024,
            ledger_percent: 100,
        }
    }
}

pub(crate) struct Station {
    pub(crate) address: IpAddr,
    pub(crate) tcp: Tcp,
    pub(crate) memory: Memory,
    pub(crate) out: Outbox,
    rng: SecureRng,
    copies: Copies,
}

impl Station {
    /// The `n`-th station of a test.
    pub(crate) fn new(n: u8, config: Config, sizes: Sizes, seed: u64) -> Station {
        let mut rng = SecureRng::new(RngKey::for_simulation(SimRng::from_seed(seed).fork(n.into()).draw()));
        let bytes = |pages: usize| (pages * sizes.page_bytes * sizes.ledger_percent / 100) as u64;
        Station {
            address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)),
            tcp: Tcp::new(config, bytes(sizes.transmit_pages), bytes(sizes.receive_pages), &mut rng),
            memory: Memory {
                transmit: PagePool::new(sizes.transmit_pages, sizes.page_bytes),
                receive: PagePool::new(sizes.receive_pages, sizes.page_bytes),
                pdus: kiban_base::PduPool::new(sizes.blocks),
            },
            out: Outbox::default(),
            rng,
            copies: Copies::default(),
        }
    }

    /// Runs `work` with the protocol and its context.
    pub(crate) fn with<R>(
        &mut self,
        now: Instant,
        work: impl FnOnce(&mut Tcp, &mut Context<'_>, &mut Outbox) -> R,
    ) -> R {
        let mut cx = Context { now, memory: &mut self.memory, rng: &mut self.rng, copies: &mut self.copies };
        work(&mut self.tcp, &mut cx, &mut self.out)
    }

    /// Receives a frame from the cable. Returns false if there was no memory for it; it is then lost.
    pub(crate) fn arrive(&mut self, frame: &Frame, now: Instant) -> bool {
        // TCP must not depend on how a link splits a frame between head and pages, so the split varies with
        // the length.
        let head = match frame.bytes.len() {
            short @ ..=64 => short * (short % 2),
            odd if odd % 17 == 0 => 64,
            length => HEADER_BYTES * (length % 2),
        };
        let Some(pdu) = self.pdu_of(&frame.bytes, head) else { return false };
        let Frame { source, target, traffic_class, .. } = *frame;
        let segment = Segment { source, target, traffic_class, pdu };
        self.with(now, |tcp, cx, out| tcp.arrive(segment, 0, cx, out));
        true
    }

    fn pdu_of(&mut self, bytes: &[u8], head: usize) -> Option<Pdu> {
        let mut pdu = self.memory.pdus.take()?;
        let (first, mut rest) = bytes.split_at(head);
        pdu.extend_head(first);
        while !rest.is_empty() {
            let slice = self.memory.receive.take()?.append(rest).expect("a new page has room");
            rest = &rest[slice.len()..];
            pdu.push_body(slice).ok()?;
        }
        Some(pdu)
    }

    /// Settles at each deadline between two times. What the station sends and reports is dropped.
    pub(crate) fn idle(&mut self, from: Instant, until: Instant) {
        let mut now = from;
        for _ in 0..100_000 {
            if self.tcp.deadline() > until {
                return;
            }
            // A deadline may be early, or even in the past, if the timer wheel has not been advanced for a
            // long time.
            now = now.max(self.tcp.deadline());
            self.settle(1000, now);
            self.drop_output();
        }
        panic!("deadlines without end");
    }

    pub(crate) fn drop_output(&mut self) {
        self.out.up.clear();
        self.out.down.clear();
    }

    /// Returns the next segment that the station has sent.
    pub(crate) fn sent(&mut self) -> Option<Header> {
        self.out.down.pop_front().map(|segment| frames_of(segment)[0].header().0)
    }

    /// Checks that all memory is free and no session is left.
    pub(crate) fn check_home(&mut self) {
        assert_eq!(self.tcp.sessions(), 0, "the table is empty");
        assert!(self.memory.is_all_free(), "memory has come home");
        assert!(!self.tcp.has_work(0));
    }

    pub(crate) fn settle(&mut self, room: usize, now: Instant) {
        self.with(now, |tcp, cx, out| tcp.settle(&[room], cx, out));
    }

    /// Writes the beginning of `bytes`, as far as the room, the grain and the size of `page` allow. Returns
    /// the number of bytes written.
    pub(crate) fn write(
        &mut self,
        session: SessionId,
        page: &mut Option<Page>,
        bytes: &[u8],
    ) -> Result<usize, Refusal> {
        let count = bytes
            .len()
            .min(self.tcp.room(session))
            .min(self.tcp.writer(session).map_or(1, |writer| writer.grain()));
        if count == 0 {
            return Ok(0);
        }
        if page.as_ref().is_none_or(|page| page.room() == 0) {
            *page = self.memory.transmit.take();
        }
        let Some(page) = page else { return Ok(0) };
        let slice: Slice = page.append(&bytes[..count]).expect("a page with room takes bytes");
        let count = slice.len();
        self.tcp.send(session, slice).map_err(|(_, refusal)| refusal)?;
        Ok(count)
    }
}

/// Returns the header of a segment to the server's port.
pub(crate) fn header(source_port: u16, flags: Flags, sequence: Sequence, acknowledgment: Sequence) -> Header {
    Header {
        source_port,
        target_port: SERVER_PORT,
        sequence,
        acknowledgment,
        flags,
        window: 8000,
        urgent: 0,
        options: Options::NONE,
    }
}

/// A segment's bytes between two addresses.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) source: IpAddr,
    pub(crate) target: IpAddr,
    pub(crate) traffic_class: u8,
    pub(crate) bytes: Vec<u8>,
}

impl Frame {
    pub(crate) fn header(&self) -> (Header, &[u8]) {
        let (header, length) = Header::read(&self.bytes).expect("a station writes headers that can be read");
        (header, &self.bytes[length..])
    }

    /// Returns the frame for a header and payload, with its checksum.
    pub(crate) fn of(source: IpAddr, target: IpAddr, header: &Header, payload: &[u8]) -> Frame {
        let mut bytes = vec![0; header.length()];
        header.write(&mut bytes);
        bytes.extend_from_slice(payload);
        let mut frame = Frame { source, target, traffic_class: 0, bytes };
        frame.seal();
        frame
    }

    /// Writes the checksum of the bytes, computed by a plain loop.
    pub(crate) fn seal(&mut self) {
        self.bytes[16..18].fill(0);
        let sum = self.sum();
        self.bytes[16..18].copy_from_slice(&(!sum).to_be_bytes());
    }

    pub(crate) fn is_intact(&self) -> bool {
        self.sum() == 0xffff
    }

    fn sum(&self) -> u16 {
        let pseudo = checksum::pseudo(self.source, self.target, protocol::TCP, self.bytes.len());
        let mut wide = u32::from(pseudo.word());
        for pair in self.bytes.chunks(2) {
            wide += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            wide = (wide & 0xffff) + (wide >> 16);
        }
        wide as u16
    }
}

/// Splits a segment into frames like a port: one frame, or several if it is marked for segmentation.
pub(crate) fn frames_of(segment: Segment) -> Vec<Frame> {
    let Segment { source, target, traffic_class, pdu } = segment;
    let bytes: Vec<u8> = pdu.runs().flatten().copied().collect();
    let whole = Frame { source, target, traffic_class, bytes };
    assert!(whole.is_intact(), "a station's checksums are right: {:?}", whole.header().0);
    let (header, payload) = whole.header();
    if pdu.segment_bytes() == 0 || payload.len() <= pdu.segment_bytes() {
        return vec![whole];
    }
    let mut at = 0;
    let mut frames = Vec::new();
    for part in payload.chunks(pdu.segment_bytes()) {
        let mut header = Header { sequence: header.sequence + at as u32, ..header };
        if at > 0 {
            header.flags = header.flags.without(Flags::CWR);
        }
        at += part.len();
        if at < payload.len() {
            header.flags = header.flags.without(Flags::FIN | Flags::PSH);
        }
        frames.push(Frame { traffic_class, ..Frame::of(source, target, &header, part) });
    }
    frames
}
