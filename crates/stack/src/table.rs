//! What programs have open, and the tasks that wait for it.

use crate::interception::{Interception, Limits};
use crate::waiters::{self, Waiters};
use kiban_base::Instant;
use kiban_board::streams::why;
use kiban_board::{Completion, Host, HostError, IcmpErrorKind, Reason, SocketId, StreamId};
use kiban_streams::{EndReason, end_error};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Waker};

/// A stream.
struct StreamState {
    id: StreamId,
    is_open: bool,
    has_peer_finished: bool,
    ended: Option<Reason>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// A stream that a listener has accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: StreamId,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

#[derive(Default)]
struct ListenerState {
    accepted: VecDeque<Accepted>,
    waiters: Waiters,
}

#[derive(Default)]
struct SocketState {
    peer: Option<SocketAddr>,
    error: Option<io::ErrorKind>,
    waiters: Waiters,
}

/// The streams, listeners and sockets of a stack.
#[derive(Default)]
pub(crate) struct Table {
    /// By the numbers of streams.
    streams: Vec<Option<StreamState>>,
    listeners: HashMap<u32, ListenerState>,
    sockets: HashMap<SocketId, SocketState>,
    pub(crate) interception: Option<Interception>,
    /// The number under which the board intercepts. It continues after the interceptor has been dropped,
    /// because accepted streams have addresses that it would otherwise not accept packets for.
    intercepts_as: Option<u32>,
    limits: Limits,
    /// Why the device has failed.
    gone: Option<String>,
    /// Tasks to wake once the lock is released.
    pub(crate) woken: Vec<Waker>,
}

/// Returns the error of a call that the board has refused.
pub(crate) fn host_error(refused: HostError) -> io::Error {
    match refused {
        HostError::TooLong => io::Error::new(io::ErrorKind::InvalidInput, refused),
        HostError::NoMemory => io::Error::new(io::ErrorKind::OutOfMemory, refused),
        refused => end_error(refused.into()),
    }
}

impl Table {
    pub(crate) fn new(limits: Limits) -> Table {
        Table { limits, ..Table::default() }
    }

    /// Returns an error if the device has failed.
    pub(crate) fn check(&self) -> io::Result<()> {
        match &self.gone {
            None => Ok(()),
            Some(why) => Err(io::Error::new(io::ErrorKind::NetworkDown, why.clone())),
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// Ends everything because the device has failed.
    pub(crate) fn fail(&mut self, error: &io::Error) {
        self.gone.get_or_insert_with(|| error.to_string());
        let Table { streams, listeners, sockets, interception, woken, .. } = self;
        for stream in streams.iter_mut().flatten() {
            woken.extend(stream.reader.take().into_iter().chain(stream.writer.take()));
        }
        listeners.values_mut().for_each(|listener| listener.waiters.wake(woken));
        sockets.values_mut().for_each(|socket| socket.waiters.wake(woken));
        if let Some(interception) = interception {
            interception.wake_all(woken);
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.interception.as_ref().map_or(Instant::NEVER, |interception| interception.deadline)
    }

    pub(crate) fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        if let Some(interception) = &mut self.interception {
            interception.on_timeout(host, now, &mut self.woken);
        }
    }

    // Streams.

    /// Adds a stream.
    pub(crate) fn add(&mut self, id: StreamId, is_open: bool) {
        let at = id.index();
        if self.streams.len() <= at {
            self.streams.resize_with(at + 1, || None);
        }
        let (has_peer_finished, ended, reader, writer) = (false, None, None, None);
        self.streams[at] = Some(StreamState { id, is_open, has_peer_finished, ended, reader, writer });
    }

    /// Returns a stream that its program has not dropped, and the tasks to wake.
    fn stream(&mut self, id: StreamId) -> (&mut StreamState, &mut Vec<Waker>) {
        let stream = self.streams[id.index()].as_mut().filter(|stream| stream.id == id);
        (stream.expect("the program has the stream"), &mut self.woken)
    }

    /// Removes a stream that its program drops.
    fn remove(&mut self, id: StreamId) {
        let removed = self.streams[id.index()].take();
        self.woken
            .extend(removed.into_iter().flat_map(|stream| stream.reader.into_iter().chain(stream.writer)));
    }

    /// Returns once a stream that this side opens is established; `None` if the task waits.
    pub(crate) fn opened(&mut self, id: StreamId, cx: &Context<'_>) -> io::Result<Option<()>> {
        self.check()?;
        let (stream, woken) = self.stream(id);
        match stream.ended {
            Some(reason) => Err(end_error(why(reason))),
            None if stream.is_open => Ok(Some(())),
            None => {
                waiters::set(&mut stream.writer, cx, woken);
                Ok(None)
            }
        }
    }

    /// Reads into `target`. Returns the number of bytes, which is 0 at the end of the stream, or `None` if
    /// the task waits.
    pub(crate) fn read(
        &mut self,
        id: StreamId,
        target: &mut [u8],
        cx: &Context<'_>,
        host: &mut Host<'_>,
    ) -> io::Result<Option<usize>> {
        // What has arrived can be read after the device has failed.
        let count = host.read(id, target).map_err(host_error)?;
        if count > 0 || target.is_empty() {
            return Ok(Some(count));
        }
        let is_gone = self.check();
        let (stream, woken) = self.stream(id);
        match stream.ended {
            _ if stream.has_peer_finished => Ok(Some(0)),
            Some(Reason::Closed) => Ok(Some(0)),
            Some(reason) => Err(end_error(why(reason))),
            None => {
                is_gone?;
                waiters::set(&mut stream.reader, cx, woken);
                Ok(None)
            }
        }
    }

    /// Writes from the front of `runs`. Returns the number of bytes, or `None` if the task waits.
    pub(crate) fn write(
        &mut self,
        id: StreamId,
        runs: &mut dyn Iterator<Item = &[u8]>,
        cx: &Context<'_>,
        host: &mut Host<'_>,
    ) -> io::Result<Option<usize>> {
        self.check()?;
        let (stream, woken) = self.stream(id);
        if let Some(reason) = stream.ended {
            return Err(end_error(why(reason)));
        }
        let mut total = 0;
        for run in runs.filter(|run| !run.is_empty()) {
            // Writing after `shutdown` is the only other reason for a refusal.
            let count = host.write(id, run).map_err(|_| end_error(EndReason::Closed))?;
            total += count;
            if count < run.len() {
                if total > 0 {
                    break;
                }
                waiters::set(&mut stream.writer, cx, woken);
                return Ok(None);
            }
        }
        Ok(Some(total))
    }

    /// Sends a FIN.
    pub(crate) fn finish(&mut self, id: StreamId, host: &mut Host<'_>) -> io::Result<()> {
        self.check()?;
        // If it has been sent already, or the stream has ended, there is nothing to do.
        let _ = host.finish(id);
        Ok(())
    }

    /// Resets a stream that its program drops.
    pub(crate) fn abort(&mut self, id: StreamId, host: &mut Host<'_>) {
        self.remove(id);
        let _ = host.abort(id);
    }

    /// Closes a stream that its program drops.
    pub(crate) fn close(&mut self, id: StreamId, host: &mut Host<'_>) {
        self.remove(id);
        // The session may have ended just now.
        let _ = host.close(id);
    }

    // Listeners.

    pub(crate) fn add_listener(&mut self, number: u32) {
        self.listeners.insert(number, ListenerState::default());
    }

    pub(crate) fn accept(&mut self, number: u32, cx: &Context<'_>) -> io::Result<Option<Accepted>> {
        self.check()?;
        let listener = self.listeners.get_mut(&number).expect("the program has the listener");
        let accepted = listener.accepted.pop_front();
        if accepted.is_none() {
            listener.waiters.add(cx);
        }
        Ok(accepted)
    }

    /// Stops listening, and closes the streams that the program has not accepted.
    pub(crate) fn unlisten(&mut self, number: u32, host: &mut Host<'_>) {
        let mut listener = self.listeners.remove(&number).expect("the program has the listener");
        listener.waiters.wake(&mut self.woken);
        for Accepted { stream, .. } in listener.accepted {
            self.abort(stream, host);
        }
        let _ = host.unlisten(number);
    }

    // Sockets.

    pub(crate) fn add_socket(&mut self, id: SocketId) {
        self.sockets.insert(id, SocketState::default());
    }

    fn socket(&mut self, id: SocketId) -> io::Result<&mut SocketState> {
        self.check()?;
        Ok(self.sockets.get_mut(&id).expect("the program has the socket"))
    }

    pub(crate) fn connect_socket(&mut self, id: SocketId, peer: SocketAddr) -> io::Result<()> {
        self.socket(id)?.peer = Some(peer);
        Ok(())
    }

    pub(crate) fn peer(&mut self, id: SocketId) -> io::Result<SocketAddr> {
        let socket = self.socket(id)?;
        if let Some(kind) = socket.error.take() {
            return Err(kind.into());
        }
        socket.peer.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Receives the next datagram: its sender, and the number of bytes in `target`. `None` if the task waits.
    pub(crate) fn receive(
        &mut self,
        id: SocketId,
        target: &mut [u8],
        cx: &Context<'_>,
        host: &mut Host<'_>,
    ) -> io::Result<Option<(SocketAddr, usize)>> {
        let socket = self.socket(id)?;
        if let Some(kind) = socket.error.take() {
            return Err(kind.into());
        }
        while let Some((remote, count)) = host.receive_from(id, target).map_err(host_error)? {
            if socket.peer.is_none_or(|peer| peer == remote) {
                return Ok(Some((remote, count)));
            }
        }
        socket.waiters.add(cx);
        Ok(None)
    }

    pub(crate) fn unbind(&mut self, id: SocketId, host: &mut Host<'_>) {
        if let Some(mut socket) = self.sockets.remove(&id) {
            socket.waiters.wake(&mut self.woken);
        }
        let _ = host.unbind(id);
    }

    /// Begins to intercept.
    pub(crate) fn intercept(&mut self, host: &mut Host<'_>) -> io::Result<()> {
        self.check()?;
        if self.interception.is_some() {
            return Err(end_error(EndReason::InUse));
        }
        let number = match self.intercepts_as {
            Some(number) => number,
            None => host.intercept().map_err(host_error)?,
        };
        self.intercepts_as = Some(number);
        self.interception = Some(Interception::new(self.limits));
        Ok(())
    }

    // Events.

    pub(crate) fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>) {
        match completion {
            Completion::Accepted { stream, listener, remote } => {
                self.on_accepted(stream, listener, remote, host);
            }
            Completion::Requested { local, remote, .. } => {
                match &mut self.interception {
                    Some(interception) => interception.on_requested((local, remote), host, &mut self.woken),
                    // Without memory for the RST, the peer repeats its SYN.
                    None => drop(host.refuse(local, remote)),
                }
            }
            Completion::Intercepted => {
                while let Some(packet) = host.intercepted() {
                    if let Some(interception) = &mut self.interception {
                        interception.on_packet(&packet, &mut self.woken);
                    }
                }
            }
            Completion::Datagram { socket } => {
                if let Some(socket) = self.sockets.get_mut(&socket) {
                    socket.waiters.wake(&mut self.woken);
                }
            }
            Completion::DatagramError { socket, remote, kind, .. } => {
                if let Some(socket) = self.sockets.get_mut(&socket).filter(|its| its.peer == Some(remote))
                    && let Some(kind) = refusal_of(kind, remote)
                {
                    socket.error = Some(kind);
                    socket.waiters.wake(&mut self.woken);
                }
            }
            Completion::Opened { stream }
            | Completion::Readable { stream }
            | Completion::Writable { stream }
            | Completion::PeerFinished { stream }
            | Completion::Ended { stream, .. } => self.on_event(stream, completion),
            _ => {}
        }
    }

    fn on_accepted(&mut self, stream: StreamId, listener: u32, remote: SocketAddr, host: &mut Host<'_>) {
        self.add(stream, true);
        // The session may have ended already; then the completion of its end follows.
        let local = host.info(stream).map(|info| info.local);
        let is_intercepted = self.intercepts_as == Some(listener);
        let Table { listeners, interception, woken, limits, .. } = self;
        let is_taken = match (local, listeners.get_mut(&listener), interception) {
            // A connection that its peer has reset counts in no other limit.
            (Ok(local), Some(listener), _) if listener.accepted.len() < limits.requests_max => {
                listener.accepted.push_back(Accepted { stream, local, remote });
                listener.waiters.wake(woken);
                true
            }
            (Ok(local), None, Some(interception)) if is_intercepted => {
                interception.on_accepted((local, remote), stream, woken)
            }
            _ => false,
        };
        if !is_taken {
            self.abort(stream, host);
        }
    }

    fn on_event(&mut self, id: StreamId, event: Completion) {
        let Table { streams, woken, .. } = self;
        let stream = streams.get_mut(id.index()).and_then(Option::as_mut).filter(|stream| stream.id == id);
        let Some(stream) = stream else { return };
        let (mut wakes_reader, mut wakes_writer) = (false, false);
        match event {
            Completion::Opened { .. } => (stream.is_open, wakes_writer) = (true, true),
            Completion::Readable { .. } => wakes_reader = true,
            Completion::Writable { .. } => wakes_writer = true,
            Completion::PeerFinished { .. } => (stream.has_peer_finished, wakes_reader) = (true, true),
            Completion::Ended { reason, .. } => {
                stream.ended = Some(reason);
                (wakes_reader, wakes_writer) = (true, true);
            }
            _ => {}
        }
        if wakes_reader {
            woken.extend(stream.reader.take());
        }
        if wakes_writer {
            woken.extend(stream.writer.take());
        }
    }
}

/// Returns the error of a connected UDP socket for an ICMP error (RFC 1122 §4.1.3.3).
fn refusal_of(kind: IcmpErrorKind, remote: SocketAddr) -> Option<io::ErrorKind> {
    match kind {
        _ if kind == IcmpErrorKind::port_unreachable(remote.is_ipv4()) => {
            Some(io::ErrorKind::ConnectionRefused)
        }
        IcmpErrorKind::Unreachable { .. } => Some(io::ErrorKind::HostUnreachable),
        _ => None,
    }
}
