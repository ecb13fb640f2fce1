//! Helpers for the benchmarks in virtual time: sessions from one board to the other, whose bytes are checked
//! and counted.

use kiban_sim::program::{Receiver, Sender, Sink, Source};
use kiban_sim::{Pair, Plan, World};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The highest rate of payload in PDUs of 8192 bytes that cell, AAL5 and packet headers leave on an OC-3c
/// line, Mbit/s; each PDU takes 172 cells. (Paper \[1\], table 2, has 134.581.)
pub(crate) const LIMIT_MBIT_PER_SECOND: f64 = 149.76 * 8192.0 / (172.0 * 53.0);

const PATTERN_BYTES: usize = 64 << 10;

/// Bytes received so far, by session.
pub(crate) type Tally = Rc<RefCell<Vec<u64>>>;

/// Two boards with sessions that are about to start.
pub(crate) struct Transfer {
    pub(crate) pair: Pair,
    /// For each direction: from board 0 to board 1, and from board 1 to board 0.
    pub(crate) tallies: [Tally; 2],
}

impl Transfer {
    /// Creates `sessions` in each direction (from board 0, from board 1) that transfer `bytes_each`; every
    /// byte that arrives is compared.
    pub(crate) fn new(plan: &Plan, sessions: [usize; 2], bytes_each: u64) -> Transfer {
        let mut pair = Pair::new(plan);
        // The pattern is stored twice in a row, so that a slice of up to the pattern's length can start at
        // any position.
        let pattern: Rc<[u8]> = crate::noise::noise(1, PATTERN_BYTES).repeat(2).into();
        let tallies = [0, 1].map(|from| {
            let tally: Tally = Rc::new(RefCell::new(vec![0; sessions[from]]));
            if sessions[from] > 0 {
                Transfer::start(&mut pair, from, &tally, bytes_each, &pattern);
            }
            tally
        });
        Transfer { pair, tallies }
    }

    fn start(pair: &mut Pair, from: usize, tally: &Tally, bytes_each: u64, pattern: &Rc<[u8]>) {
        let sessions = tally.borrow().len();
        let port = 5000 + from as u16;
        let sent = || -> Source {
            let pattern = pattern.clone();
            Box::new(move |at, buffer| {
                let start = at as usize % PATTERN_BYTES;
                buffer.copy_from_slice(&pattern[start..start + buffer.len()]);
            })
        };
        let streams = (0..sessions).map(|_| (bytes_each, sent())).collect();
        let (pattern, tally) = (pattern.clone(), tally.clone());
        let sink = move |session: usize| -> Sink {
            let (pattern, tally) = (pattern.clone(), tally.clone());
            Box::new(move |at, bytes| {
                let start = at as usize % PATTERN_BYTES;
                assert!(pattern[start..start + bytes.len()] == *bytes, "the bytes arrive intact");
                tally.borrow_mut()[session] = at + bytes.len() as u64;
            })
        };
        let receiver = Receiver::new(port, sessions, Box::new(sink));
        pair.world.run_program(pair.boards[1 - from], Box::new(receiver));
        pair.world
            .run_program(pair.boards[from], Box::new(Sender::new(Pair::socket(1 - from, port), streams)));
    }

    /// Runs until every session has finished; `look` is called after each event.
    pub(crate) fn run(&mut self, look: &mut dyn FnMut(&World)) {
        let until = self.pair.world.now() + Duration::from_secs(3600);
        assert!(self.pair.world.run_with(until, look), "every session finishes");
    }
}
