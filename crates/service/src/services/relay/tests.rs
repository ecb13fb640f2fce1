//! Tests of relays between a board in the simulator and a pair of Unix sockets.

use super::*;
use kiban_board::{BoardConfig, IpPortConfig, Owner, PortConfig, Program};
use kiban_sim::{Attachment, CableConfig, World};
use std::any::Any;
use std::io::Write;
use std::os::unix::net::UnixStream;

/// The board's reads of the socket are this long.
const READ_BYTES: usize = 16;

fn peer() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 80))
}

/// A board's program: connects, and relays what a program on the host has written before it shut its socket
/// down or, if `is_early`, closed it, which then happens before the stream is open.
struct OneRelay {
    relays: Relays,
    files: EpollSet,
    counters: ServiceCounters,
    options: StreamOptions,
    written: Vec<u8>,
    is_early: bool,
    look_at: Instant,
}

impl OneRelay {
    fn new(written: &[u8], is_corked: bool, is_early: bool) -> OneRelay {
        let mut options = StreamOptions::default();
        options.set(StreamOption::Cork, is_corked.into());
        let mut relays = Relays::new(0, 1);
        relays.piece = vec![0; READ_BYTES];
        let (files, counters) = (EpollSet::new().expect("a file"), ServiceCounters::default());
        let (written, look_at) = (written.to_vec(), Instant::NEVER);
        OneRelay { relays, files, counters, options, written, is_early, look_at }
    }

    fn begin(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) {
        let OneRelay { relays, files, counters, is_early, .. } = self;
        let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
        theirs.write_all(&self.written).expect("room");
        let slot = relays.take_slot(None, host, counters, now).expect("the only one");
        let begin = Begin {
            syn_waits: *is_early,
            tells_why: *is_early,
            options: self.options,
            ..Begin::plain(Peer::new(ours.into()).expect("a socket"), true, !*is_early, slot)
        };
        relays.begin(stream, begin, counters, now);
        theirs.shutdown(Shutdown::Write).expect("it is open");
        if *is_early {
            drop(theirs);
        } else {
            // The socket stays open, so that only the end of its data is an event.
            std::mem::forget(theirs);
        }
        relays.pump(stream, host, files, counters, now);
        if *is_early {
            let mut ready = Vec::new();
            files.ready(&mut ready);
            assert!(ready.is_empty(), "no event repeats until the stream is open");
        }
        self.look_at = now + Duration::from_millis(1);
    }
}

impl Program for OneRelay {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        // The first connection only fetches a cookie, with which the SYN of the next one may carry data.
        let (_, syn_waits) = host.open_fast(Owner::BOARD, None, peer()).expect("a route");
        assert!(!syn_waits, "no cookie yet");
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, now: Instant) {
        if let (Completion::Opened { stream }, Instant::NEVER) = (completion, self.look_at) {
            if !self.is_early {
                return self.begin(stream, host, now);
            }
            host.abort(stream).expect("it is open");
            let (stream, syn_waits) = host.open_fast(Owner::BOARD, None, peer()).expect("a route");
            assert!(syn_waits, "there is a cookie");
            return self.begin(stream, host, now);
        }
        let OneRelay { relays, files, counters, .. } = self;
        relays.on_completion(completion, host, files, counters, now);
    }

    fn deadline(&self) -> Instant {
        self.look_at.min(self.relays.deadline())
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        let OneRelay { relays, files, counters, .. } = self;
        relays.on_timeout(host, files, counters, now);
        let mut ready = Vec::new();
        files.ready(&mut ready);
        for number in ready {
            relays.on_ready(number, host, files, counters, now);
        }
        self.look_at = now + Duration::from_millis(1);
    }

    fn is_done(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The peer: collects what arrives until the end of the stream.
#[derive(Default)]
struct Peers {
    heard: Vec<u8>,
    has_ended: bool,
}

impl Program for Peers {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        let listener = host.listen(peer()).expect("a free port");
        host.set_fast_open(listener, 1).expect("it listens");
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        if let Completion::Readable { stream } | Completion::PeerFinished { stream } = completion {
            let mut room = [0; 4096];
            while let Ok(count @ 1..) = host.read(stream, &mut room) {
                self.heard.extend_from_slice(&room[..count]);
            }
            self.has_ended |= matches!(completion, Completion::PeerFinished { .. });
        }
    }

    fn is_done(&self) -> bool {
        self.has_ended
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn the_end_of_a_programs_data_is_forwarded_whichever_read_finds_it() {
    // A turn has `PIECES_MAX` reads. The last one of a turn, or the first one of the next, may find the end.
    let ways = [(false, false), (true, false), (false, true)];
    for (reads, rest, (is_corked, is_early)) in (0..=2 * PIECES_MAX + 2)
        .flat_map(|reads| [0, 5].into_iter().flat_map(move |rest| ways.map(|way| (reads, rest, way))))
    {
        let written: Vec<u8> = (0..reads * READ_BYTES + rest).map(|at| at as u8).collect();
        if is_early && written.is_empty() {
            // Such a program opens no stream.
            continue;
        }
        let mut world = World::new(1);
        let boards = [1, 2].map(|side: u8| {
            let port = IpPortConfig {
                address: IpAddr::from([10, 0, 0, side]),
                prefix: "10.0.0.0/24".parse().expect("a prefix"),
                mtu_bytes: 1500,
                packets_max: 256,
                cuts: false,
                merges: false,
                believe_sums: false,
            };
            world.add_board(&BoardConfig { ports: vec![PortConfig::Ip(port)], ..BoardConfig::default() })
        });
        let cable = CableConfig::ethernet(100_000_000, Duration::from_millis(1));
        let ends = boards.map(|board| Attachment::Board(board, 0));
        world.connect_packets(ends[0], ends[1], &cable).expect("both take packets");
        world.run_program(boards[0], Box::new(OneRelay::new(&written, is_corked, is_early)));
        world.run_program(boards[1], Box::new(Peers::default()));
        world.settle(Instant::ZERO + Duration::from_millis(150));
        let peer = world.program::<Peers>(boards[1]).expect("it was given");
        let case = format!("{reads} reads and {rest} bytes, corked: {is_corked}, early: {is_early}");
        assert!(peer.has_ended, "no end after {case}");
        assert!(peer.heard == written, "{} bytes after {case}", peer.heard.len());
    }
}
