//! Two stacks with file services, connected by two queues of bytes or of network service data units.

use kiban_base::{Bytes, Instant};
use kiban_osi::ftam::{Config, Indication, Machine, Request, Role};
use kiban_osi::network;
use kiban_osi::stack::files::Files;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::stack::stream::{ConnectionAction, Stream};
use kiban_osi::wire::ftam::oids;

/// How the two systems are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Join {
    /// Over a byte stream of TPKTs, in reads of this size.
    Bytes(usize),
    /// Below the transport layer: the paper's internal loopback.
    Loopback,
}

/// The initiator has index 0, the responder index 1.
pub(crate) struct Pair {
    pub(crate) files: [Files; 2],
    streams: [Stream; 2],
    join: Join,
    connected: bool,
    /// All bytes that each side has sent so far.
    pub(crate) sent: [Vec<u8>; 2],
    pub(crate) now: Instant,
}

impl Pair {
    pub(crate) fn new(join: Join) -> Pair {
        let files = |role| {
            let abstract_syntaxes = vec![oids::UNSTRUCTURED_BINARY, oids::UNSTRUCTURED_TEXT, oids::FADU];
            Files::new(Machine::new(Config { role, abstract_syntaxes }), &StackConfig::default())
        };
        Pair {
            files: [files(Role::Initiator), files(Role::Responder)],
            streams: [Stream::new(65531), Stream::new(65531)],
            join,
            connected: false,
            sent: Default::default(),
            now: Instant::ZERO,
        }
    }

    /// Makes a request that is valid in the current state.
    pub(crate) fn ask(&mut self, side: usize, request: Request) {
        self.files[side].machine().request(request).expect("it can be asked for");
        self.files[side].settle(self.now, &mut ());
    }

    /// Returns the indications on one side once everything has been delivered.
    pub(crate) fn hear(&mut self, side: usize) -> Vec<Indication> {
        while self.carry(0) | self.carry(1) {}
        std::iter::from_fn(|| self.files[side].machine().poll_up()).collect()
    }

    /// Returns whether a side has closed its connection, or is about to.
    pub(crate) fn closes(&self, side: usize) -> bool {
        self.streams[side].connection_action() == ConnectionAction::Close
    }

    fn carry(&mut self, from: usize) -> bool {
        let mut moved = false;
        while let Some(request) = self.files[from].poll_network() {
            moved = true;
            match (self.join, request) {
                (_, network::Request::Connect) => {
                    assert!(!self.connected);
                    self.connected = true;
                    for side in [1 - from, from] {
                        self.files[side].arrive(network::Indication::Connected, self.now, &mut ());
                        self.files[side].settle(self.now, &mut ());
                    }
                }
                (Join::Loopback, network::Request::Data(unit)) => {
                    self.files[1 - from].arrive(network::Indication::Data(unit), self.now, &mut ());
                    self.files[1 - from].settle(self.now, &mut ());
                }
                (_, request) => self.streams[from].request(request),
            }
        }
        if let Join::Bytes(portion) = self.join {
            let bytes: Vec<u8> = self.streams[from].outgoing().runs().flatten().copied().collect();
            self.streams[from].outgoing().clear();
            self.sent[from].extend(&bytes);
            for read in bytes.chunks(portion) {
                moved = true;
                self.streams[1 - from].arrive(Bytes::copy_from_slice(read));
                while let Some(indication) = self.streams[1 - from].poll() {
                    self.files[1 - from].arrive(indication, self.now, &mut ());
                    self.files[1 - from].settle(self.now, &mut ());
                }
            }
        }
        if self.closes(from)
            && let Some(indication) = self.streams[1 - from].ended(network::Origin::User)
        {
            self.files[1 - from].arrive(indication, self.now, &mut ());
            self.files[1 - from].settle(self.now, &mut ());
            moved = true;
        }
        moved
    }
}
