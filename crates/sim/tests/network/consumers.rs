//! Several programs on one board: each gets its own completions, and no others.

use kiban_base::Instant;
use kiban_board::{Completion, Host, StreamId};
use kiban_sim::{Pair, Plan, Program};
use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Clone, Copy)]
enum Does {
    Listen(u16),
    Open(u16),
    Ping(u16),
    /// Sends a datagram to a port that is not bound.
    Send,
}

/// Makes one request, and keeps the completions it gets.
struct Ear {
    does: Does,
    listener: Option<u32>,
    streams: Vec<StreamId>,
    heard: Vec<Completion>,
}

impl Ear {
    fn new(does: Does) -> Box<Ear> {
        Box::new(Ear { does, listener: None, streams: Vec::new(), heard: Vec::new() })
    }

    /// Returns whether a completion belongs to this program.
    fn has(&self, completion: &Completion) -> bool {
        match *completion {
            Completion::Accepted { listener, .. } => self.listener == Some(listener),
            Completion::Opened { stream }
            | Completion::Readable { stream }
            | Completion::Writable { stream }
            | Completion::PeerFinished { stream }
            | Completion::Ended { stream, .. } => self.streams.contains(&stream),
            Completion::EchoReply { identifier, .. } => {
                matches!(self.does, Does::Ping(own) if own == identifier)
            }
            Completion::DatagramError { .. } => matches!(self.does, Does::Send),
            _ => false,
        }
    }
}

impl Program for Ear {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        match self.does {
            Does::Listen(port) => self.listener = host.listen(Pair::socket(1, port)).ok(),
            Does::Open(port) => self.streams.extend(host.open(Pair::socket(1, port))),
            Does::Ping(identifier) => host.ping(Pair::address(1), identifier, 1, b"hello").expect("a way"),
            Does::Send => {
                let socket = host.bind(SocketAddr::new(Pair::address(0), 9)).expect("a socket");
                host.send_to(socket, Pair::socket(1, 9), b"hello").expect("a way");
            }
        }
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        match completion {
            Completion::Accepted { stream, listener, .. } if self.listener == Some(listener) => {
                self.streams.push(stream);
            }
            Completion::Opened { stream } if self.streams.contains(&stream) => {
                host.write(stream, b"hello").expect("it is open");
                host.finish(stream).expect("it is open");
            }
            Completion::PeerFinished { stream } if self.streams.contains(&stream) => {
                host.finish(stream).expect("it is open");
            }
            _ => {}
        }
        self.heard.push(completion);
    }

    fn is_done(&self) -> bool {
        !self.heard.is_empty()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn a_program_gets_only_the_completions_of_its_own_streams_sockets_and_pings() {
    let mut pair = Pair::new(&Plan::with_window(48 << 10));
    let of_board = [
        vec![Does::Open(80), Does::Open(81), Does::Ping(1), Does::Ping(2), Does::Send],
        vec![Does::Listen(80), Does::Listen(81)],
    ];
    for (board, programs) in pair.boards.into_iter().zip(&of_board).rev() {
        programs.iter().for_each(|does| pair.world.run_program(board, Ear::new(*does)));
    }
    pair.world.settle(Instant::ZERO + Duration::from_secs(200));
    for board in pair.boards {
        for (number, program) in pair.world.take_programs(board).iter().enumerate() {
            let ear = program.as_any().downcast_ref::<Ear>().expect("all are");
            let strange: Vec<_> = ear.heard.iter().filter(|completion| !ear.has(completion)).collect();
            assert!(strange.is_empty(), "program {number} of {board:?} hears {strange:?}");
            assert!(!ear.heard.is_empty(), "program {number} of {board:?} hears nothing");
        }
    }
}
