//! An application on a board that sends as much as possible on every stream, and reads what arrives.

use super::device::{BUFFER_BYTES, SINK};
use kiban_base::Instant;
use kiban_board::{Completion, Host, Program, StreamId};
use std::any::Any;
use std::net::{IpAddr, SocketAddr};

pub(super) struct Flood {
    /// The address to listen on.
    own: Option<IpAddr>,
    /// The peer to connect to, and the number of streams to open.
    remote: Option<(SocketAddr, usize)>,
    buffer: Vec<u8>,
    received: u64,
}

impl Flood {
    /// Opens `streams` streams to `remote`.
    pub(super) fn to(remote: SocketAddr, streams: usize) -> Flood {
        Flood {
            own: None,
            remote: Some((remote, streams)),
            buffer: crate::noise::noise(4, BUFFER_BYTES),
            received: 0,
        }
    }

    /// Accepts connections at `own`.
    pub(super) fn at(own: IpAddr) -> Flood {
        Flood { own: Some(own), remote: None, buffer: crate::noise::noise(5, BUFFER_BYTES), received: 0 }
    }

    /// Returns the payload bytes received.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    fn write(&self, host: &mut Host<'_>, stream: StreamId) {
        while host.write(stream, &self.buffer).is_ok_and(|count| count == self.buffer.len()) {}
    }
}

impl Program for Flood {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        if let Some(own) = self.own {
            host.listen(SocketAddr::new(own, SINK)).expect("the port is free");
        }
        if let Some((remote, streams)) = self.remote {
            for _ in 0..streams {
                host.open(remote).expect("there is a route");
            }
        }
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        match completion {
            Completion::Opened { stream }
            | Completion::Accepted { stream, .. }
            | Completion::Writable { stream } => self.write(host, stream),
            Completion::Readable { stream } => {
                while let Ok(count @ 1..) = host.read(stream, &mut self.buffer) {
                    self.received += count as u64;
                }
            }
            Completion::PeerFinished { stream } | Completion::Ended { stream, .. } => {
                let _ = host.close(stream);
            }
            _ => {}
        }
    }

    fn is_done(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
