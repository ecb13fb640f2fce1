//! kiban's side of the comparison: two boards whose IP ports are connected by queues of PDUs.

use super::joined::{Application, Joined, MSS, MTU_BYTES, Setting, WHOLE_BYTES};
use kiban_base::{Instant, Pdu, RngKey};
use kiban_board::{
    Board, BoardConfig, Completion, Input, IpPortConfig, MemoryConfig, Output, PortConfig, StreamId,
};
use kiban_os::clock::Clock;
use kiban_tcpip::tcp;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// A page holds a whole number of segments, so that each segment is one slice.
const PAGE_BYTES: usize = WHOLE_BYTES;

pub(super) struct Boards {
    boards: [Board; 2],
    wires: [VecDeque<Pdu>; 2],
    sending: Option<StreamId>,
    receiving: Option<StreamId>,
    /// Whether the sender may write, because data was acknowledged or nothing has been written yet.
    writable: bool,
}

fn address(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + side as u8])
}

/// How segments travel between the two boards.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Segmentation {
    /// TCP makes packets of the MTU.
    Frames,
    /// TCP passes large segments down, the port splits them into packets of the MTU, and the other port
    /// merges the packets.
    Cut,
    /// Segments of up to 64 KB travel whole.
    Whole,
}

fn config(side: usize, setting: Setting, segmentation: Segmentation) -> BoardConfig {
    let segment_bytes_max = match segmentation {
        Segmentation::Frames => MSS,
        Segmentation::Cut => kiban_base::SLICES_MAX * MSS,
        Segmentation::Whole => WHOLE_BYTES,
    };
    let port = IpPortConfig {
        address: address(side),
        prefix: "10.0.0.0/24".parse().expect("a prefix"),
        mtu_bytes: MTU_BYTES,
        packets_max: setting.packets,
        cuts: segmentation == Segmentation::Cut,
        merges: segmentation == Segmentation::Cut,
        believe_sums: false,
    };
    let window_bytes = setting.window_bytes as u32;
    let tcp = tcp::Config {
        mss: MSS as u16,
        segment_bytes_max: segment_bytes_max as u32,
        segmentation_offload: segmentation == Segmentation::Cut,
        receive_buffer_bytes: window_bytes,
        send_buffer_bytes: window_bytes.max(2 * segment_bytes_max as u32),
        timestamps: setting.timestamps,
        ..tcp::Config::default()
    };
    // One session may use half of the memory. Received data stays in the sender's pages, so the receive pool
    // is not used. The memory ledger, however, counts received data as if each segment occupied a page of
    // that pool.
    let memory = MemoryConfig {
        page_bytes: PAGE_BYTES,
        transmit_bytes: (2 * tcp.send_buffer_bytes as usize).next_multiple_of(PAGE_BYTES) + PAGE_BYTES,
        receive_bytes: 2 * setting.window_bytes * PAGE_BYTES / MSS + PAGE_BYTES,
        // Enough PDUs for the window and the queues, plus only a few: the pool is used in rotation, and a
        // small pool stays in the cache.
        pdus: setting.window_bytes / MSS + 2 * setting.packets + 64,
    };
    BoardConfig { memory, tcp, ports: vec![PortConfig::Ip(port)], ..BoardConfig::default() }
}

impl Boards {
    #[expect(
        clippy::disallowed_methods,
        reason = "both boards are in memory and behave the same in each run"
    )]
    pub(super) fn new(setting: Setting, segmentation: Segmentation) -> Boards {
        let boards = [0, 1].map(|side| {
            Board::new(&config(side, setting, segmentation), RngKey::for_simulation(side as u64))
        });
        let mut joined = Boards {
            boards,
            wires: [VecDeque::new(), VecDeque::new()],
            sending: None,
            receiving: None,
            writable: true,
        };
        let server = SocketAddr::new(address(1), 80);
        joined.boards[1].host().listen(server).expect("the port is free");
        joined.boards[0].host().open(server).expect("there is a route");
        joined
    }

    /// Passes arrivals to the board, handles its completions, and takes its output.
    fn work(&mut self, side: usize, now: Instant, application: &mut Application) {
        let board = &mut self.boards[side];
        board.handle(Input::Packets { port: 0, packets: &mut self.wires[1 - side] }, now);
        loop {
            match board.poll() {
                Output::Transmit { pdu, .. } => self.wires[side].push_back(pdu),
                Output::Completions => {
                    let mut host = board.host();
                    while let Some(completion) = host.completion() {
                        match completion {
                            Completion::Opened { stream } => {
                                self.sending = Some(stream);
                                self.writable = true;
                            }
                            Completion::Writable { .. } => self.writable = true,
                            Completion::Accepted { stream, .. } => self.receiving = Some(stream),
                            Completion::Readable { stream } => {
                                application
                                    .read(|buffer| host.read(stream, buffer).expect("the stream is open"));
                            }
                            other => panic!("unexpected in a transfer: {other:?}"),
                        }
                    }
                    if let (true, Some(stream), 0) = (self.writable, self.sending, side) {
                        application.write(|bytes| host.write(stream, bytes).expect("the stream is open"));
                        self.writable = false;
                    }
                }
                Output::Idle { .. } => return,
            }
        }
    }
}

impl Joined for Boards {
    fn turn(&mut self, clock: &Clock, application: &mut Application) {
        let now = clock.now();
        self.work(0, now, application);
        self.work(1, now, application);
    }

    fn check(&self) {
        let counters = |name| self.boards.iter().map(|board| board.counter("tcp", name)).sum::<u64>();
        for name in ["retransmits", "checksum_errors", "timeouts", "no_memory", "out_of_order"] {
            assert_eq!(counters(name), 0, "{name}");
        }
        assert!(self.boards.iter().all(|board| board.copies().gather_bytes == 0));
    }
}
