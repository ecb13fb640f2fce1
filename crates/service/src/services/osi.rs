//! The board's OSI stack for programs on this host: the user of the file service runs in the program, and all
//! seven layers run on the board (paper \[5\]; [`kiban_osi::hif`]).
//!
//! Program          attaches through shared memory, like a program that uses the board's TCP
//!                  ([`Attach`](super::Attach)). Each of its streams carries the service primitives of one
//!                  association instead of the peer's bytes.
//! Network          each association uses one TCP stream of the board, which carries TPKTs (RFC 1006).
//! Copies           contents are copied between shared memory and the board's heap, and between the heap and
//!                  packet memory; the layers between them copy nothing.
//! End              when a program exits or closes a stream, its association is aborted. Its memory is freed
//!                  when TCP has taken what the layers still send; if the program has exited, after 60 s at
//!                  the latest. A program that sends an invalid message is disconnected.
//! Turns            the layers take at most `TURN_BYTES` from a program before other work has a turn. No
//!                  queue stops a program whose messages cause no output.
//! Limits           those of `Attach`. A message from a program has at most [`REQUEST_BYTES_MAX`]. A received
//!                  data element has at most 16 MiB, and an association holds at most one.
//!
//! [`REQUEST_BYTES_MAX`]: kiban_osi::hif::REQUEST_BYTES_MAX

use super::attach::Edge;
use super::service::{PIECE_BYTES, close_unread};
use kiban_attach::EndReason;
use kiban_base::{Bytes, Instant, SharedBytes};
use kiban_board::streams::{Provider, listen};
use kiban_board::{Completion, Host, HostError, Reason, StreamId};
use kiban_osi::hif::BoardSide;
use kiban_osi::network::Origin;
use kiban_tcpip::tcp::Owner;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// Number of bytes after which a program's association must wait for its next turn.
const TURN_BYTES: usize = 64 << 10;

/// The board's OSI stack.
#[derive(Default)]
pub struct Osi {
    associations: BTreeMap<StreamId, Association>,
    /// The associations, with their clients, that have used up their turn.
    spent: Vec<(u32, StreamId)>,
    /// Whether the client that is being served has sent an invalid message.
    fault: bool,
}

/// One association: its stack, and the data that is being passed to the program.
struct Association {
    client: u32,
    stack: BoardSide,
    /// Bytes taken from the program in this turn.
    turn_bytes: usize,
    /// The remaining pieces of a message that the program is reading.
    pieces: VecDeque<Bytes>,
    /// Who ended the TCP stream; reported to the stack once all data received before has been handled.
    ending: Option<Origin>,
}

impl Association {
    fn new(client: u32) -> Association {
        let (stack, pieces) = (BoardSide::new(), VecDeque::new());
        Association { client, stack, turn_bytes: 0, pieces, ending: None }
    }

    /// Moves as much data as possible between TCP, the layers and the program. Returns false if the program
    /// has sent an invalid message.
    fn turn(&mut self, stream: StreamId, host: &mut Host<'_>) -> bool {
        let now = host.now();
        loop {
            let moved = self.read(stream, host, now);
            if self.stack.work(now).is_err() {
                return false;
            }
            if !(moved | self.write(stream, host)) {
                return true;
            }
        }
    }

    fn read(&mut self, stream: StreamId, host: &mut Host<'_>, now: Instant) -> bool {
        let waiting = host.readable(stream).unwrap_or(0);
        if waiting == 0 {
            let Some(origin) = self.ending.take() else { return false };
            self.stack.network_ended(origin, now);
            return true;
        }
        if !self.stack.wants_network() {
            return false;
        }
        let mut piece = vec![0; waiting.min(PIECE_BYTES)];
        let count = host.read(stream, &mut piece).unwrap_or(0);
        piece.truncate(count);
        self.stack.from_network(piece.into(), now);
        count > 0
    }

    fn write(&mut self, stream: StreamId, host: &mut Host<'_>) -> bool {
        let mut written = 0;
        for run in self.stack.to_network().runs() {
            // A stream that has ended takes nothing more. What waits for it is dropped, because the layers
            // take no received data while too much waits.
            let taken = host.write(stream, run).unwrap_or(run.len());
            written += taken;
            if taken < run.len() {
                break;
            }
        }
        self.stack.to_network().skip(written);
        written > 0
    }

    fn take(&mut self) -> Option<Bytes> {
        if self.pieces.is_empty() {
            self.pieces.extend(self.stack.to_user().pop()?.into_pieces());
        }
        self.pieces.pop_front()
    }

    /// Returns how many bytes the program may send now.
    fn room(&self) -> usize {
        self.stack.user_room().min(TURN_BYTES.saturating_sub(self.turn_bytes))
    }

    fn has_waiting(&mut self) -> bool {
        !self.pieces.is_empty() || !self.stack.to_user().is_empty()
    }

    fn waiting_bytes(&mut self) -> usize {
        self.pieces.iter().map(Bytes::len).sum::<usize>() + self.stack.to_user().len()
    }
}

impl Osi {
    /// Runs an association, and records whether its client has sent an invalid message.
    fn turn(&mut self, stream: StreamId, host: &mut Host<'_>) {
        if let Some(association) = self.associations.get_mut(&stream) {
            self.fault |= !association.turn(stream, host);
        }
    }
}

impl Edge for Osi {
    const NAME: &'static str = "osi";
    type Chunk = Bytes;
    type View<'a> = OsiView<'a>;

    fn view<'a>(&'a mut self, host: Host<'a>) -> OsiView<'a> {
        OsiView { osi: self, host }
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>) {
        let (stream, ending) = match completion {
            Completion::Accepted { stream, .. } => {
                // A request must not wait for the acknowledgement of the previous one.
                let _ = host.set_no_delay(stream, true);
                self.associations.insert(stream, Association::new(host.consumer().client));
                return;
            }
            Completion::Opened { stream } => {
                let _ = host.set_no_delay(stream, true);
                return;
            }
            Completion::Readable { stream } | Completion::Writable { stream } => (stream, None),
            Completion::PeerFinished { stream } => (stream, Some(Origin::User)),
            Completion::Ended { stream, reason: Reason::Closed } => (stream, Some(Origin::User)),
            Completion::Ended { stream, .. } => (stream, Some(Origin::Provider)),
            _ => return,
        };
        if let Some(association) = self.associations.get_mut(&stream) {
            association.ending = ending.or(association.ending);
        }
        self.turn(stream, host);
    }

    fn due(&self, now: Instant) -> Vec<(u32, StreamId)> {
        let due = self.associations.iter().filter(|(_, association)| association.stack.deadline() <= now);
        due.map(|(stream, association)| (association.client, *stream)).collect()
    }

    fn has_spent(&self) -> bool {
        !self.spent.is_empty()
    }

    fn begin_turn(&mut self) -> Vec<(u32, StreamId)> {
        for (_, stream) in &self.spent {
            if let Some(association) = self.associations.get_mut(stream) {
                association.turn_bytes = 0;
            }
        }
        std::mem::take(&mut self.spent)
    }

    fn take_fault(&mut self) -> bool {
        std::mem::take(&mut self.fault)
    }
}

/// The associations of one client, for one call.
pub struct OsiView<'a> {
    osi: &'a mut Osi,
    host: Host<'a>,
}

impl OsiView<'_> {
    fn accept(&mut self, stream: StreamId, bytes: impl FnOnce() -> Vec<u8>) -> usize {
        let Some(association) = self.osi.associations.get_mut(&stream) else { return 0 };
        if association.room() == 0 {
            return 0;
        }
        let bytes = bytes();
        let count = bytes.len();
        association.turn_bytes += count;
        if association.turn_bytes >= TURN_BYTES {
            self.osi.spent.push((association.client, stream));
        }
        association.stack.from_user(bytes.into());
        self.osi.turn(stream, &mut self.host);
        count
    }
}

impl Provider for OsiView<'_> {
    type Chunk = Bytes;

    fn new_owner(&mut self) -> Owner {
        self.host.new_owner()
    }

    fn open(
        &mut self,
        owner: Owner,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<StreamId, HostError> {
        let stream = self.host.open_for(owner, local, remote)?;
        self.osi.associations.insert(stream, Association::new(self.host.consumer().client));
        Ok(stream)
    }

    fn listen(&mut self, owner: Owner, local: SocketAddr) -> Result<(u32, SocketAddr), EndReason> {
        listen(&mut self.host, owner, local, false)
    }

    fn unlisten(&mut self, listener: u32) {
        let _ = self.host.unlisten(listener);
    }

    fn local(&mut self, stream: StreamId) -> Option<SocketAddr> {
        self.host.info(stream).ok().map(|info| info.local)
    }

    /// Does nothing: the service disables Nagle's algorithm on all of its streams.
    fn set_no_delay(&mut self, _: StreamId, _: bool) {}

    fn room(&mut self, stream: StreamId) -> usize {
        self.osi.associations.get(&stream).map_or(0, Association::room)
    }

    fn write(&mut self, stream: StreamId, bytes: &[u8]) -> usize {
        self.accept(stream, || bytes.to_vec())
    }

    fn write_shared(&mut self, stream: StreamId, bytes: SharedBytes<'_>) -> usize {
        self.accept(stream, || {
            let mut copy = Vec::with_capacity(bytes.len());
            bytes.append_to(&mut copy);
            copy
        })
    }

    fn readable(&mut self, stream: StreamId) -> usize {
        let unread = self.host.readable(stream).unwrap_or(0);
        unread + self.osi.associations.get_mut(&stream).map_or(0, Association::waiting_bytes)
    }

    fn take(&mut self, stream: StreamId) -> Option<Bytes> {
        if !self.osi.associations.get_mut(&stream)?.has_waiting() {
            self.osi.turn(stream, &mut self.host);
        }
        self.osi.associations.get_mut(&stream)?.take()
    }

    fn drain(&mut self, stream: StreamId) -> bool {
        let Some(association) = self.osi.associations.get_mut(&stream) else { return true };
        association.stack.user_ended(self.host.now());
        // The program is gone, so ignore whether its last message was valid.
        association.turn(stream, &mut self.host);
        association.stack.to_network().is_empty()
    }

    fn finish(&mut self, stream: StreamId) {
        let _ = self.host.finish(stream);
    }

    fn close(&mut self, stream: StreamId) {
        self.osi.associations.remove(&stream);
        // A reset would overtake the abort.
        close_unread(stream, &mut self.host);
    }

    fn abort(&mut self, stream: StreamId) {
        self.osi.associations.remove(&stream);
        let _ = self.host.abort(stream);
    }
}
