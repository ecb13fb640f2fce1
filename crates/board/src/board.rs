//! The board: one value, driven from outside.
//!
//! Stack            the ports, the IP family and the host edge ([`Stack`]).
//! NICs             the VI NIC has its own ports. The RDMA NIC has a port for EFE, and uses streams and UDP
//!                  sockets of the stack, whose events go to it and not to the host. It runs when there are
//!                  such events, after input, and after calls from the host.
//! Order            [`Board::poll`] first runs the NICs, then returns completions, settles the burst, returns
//!                  packets to transmit, and finally the deadline.

use crate::port::Port;
use crate::shard::Parcel;
use crate::stack::Stack;
use crate::wiring::rdma::RdmaWiring;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use kiban_atm::TimedCell;
use kiban_base::{Instant, Pdu, SharedBytes, SharedRoom};
use kiban_tcpip::steering::Steering;
use kiban_vi::Nic;

/// Input from a driver to a board.
#[derive(Debug)]
pub enum Input<'a> {
    /// Cells have arrived at an ATM port, in order of arrival time.
    Cells {
        /// The port number.
        port: usize,
        /// The cells.
        cells: &'a [TimedCell],
    },
    /// IP packets have arrived at an IP port, or frames at an Ethernet port; the board takes all of them.
    Packets {
        /// The port number.
        port: usize,
        /// The burst.
        packets: &'a mut VecDeque<Pdu>,
    },
    /// A packet for the VI NIC has arrived. It may be in memory to which other processes can write.
    Message {
        /// The port number.
        port: usize,
        /// The packet.
        bytes: SharedBytes<'a>,
    },
    /// Another shard of the board has passed on parcels ([`Board::parcel`]); the board takes all of them.
    Parcels {
        /// The parcels, in the order in which each shard has sent them.
        parcels: &'a mut VecDeque<Parcel>,
    },
    /// A port that was full has room again.
    Room,
    /// The deadline that the board returned has been reached.
    Timeout,
}

/// Output from a board to its driver.
#[derive(Debug)]
pub enum Output {
    /// Send a packet through an IP port, or a frame through an Ethernet port.
    Transmit {
        /// The port number.
        port: usize,
        /// The packet.
        pdu: Pdu,
    },
    /// There are completions for the host ([`Board::host`]).
    Completions,
    /// There is nothing to do before the deadline, unless input arrives.
    Idle {
        /// The deadline. It may be early, or reached already, but is never late.
        deadline: Instant,
    },
}

/// A communications board.
pub struct Board {
    pub(crate) stack: Stack,
    pub(crate) vi: Option<Box<Nic>>,
    pub(crate) rdma: Option<Box<RdmaWiring>>,
    /// Whether the current completions have been announced to the host.
    pub(crate) announced: bool,
}

impl Board {
    /// Handles input from the driver. Call [`Board::poll`] until idle afterwards.
    pub fn handle(&mut self, input: Input<'_>, now: Instant) {
        let Board { stack, vi, rdma, .. } = self;
        stack.begin(now);
        match input {
            Input::Cells { port, cells } => stack.on_cells(port, cells),
            Input::Packets { port, packets } => stack.on_packets(port, packets),
            Input::Message { port, bytes } => match (stack.ports.get(port), vi, rdma) {
                (Some(Port::Vi(path)), Some(nic), _) => nic.arrive(*path, bytes, stack.now),
                (Some(Port::Efe), _, Some(endpoint)) => endpoint.on_frame(bytes, stack.now),
                _ => {}
            },
            Input::Parcels { parcels } => stack.on_parcels(parcels),
            Input::Room | Input::Timeout => {}
        }
    }

    /// Returns the next output. Completions come first, so that the host's response is settled with the
    /// burst; packets to send come next, and the deadline last.
    pub fn poll(&mut self) -> Output {
        loop {
            self.work_nics();
            if !self.announced && self.stack.edge.has_completions() {
                self.announced = true;
                return Output::Completions;
            }
            if self.stack.unsettled {
                self.settle();
            } else if let Some((port, pdu)) = self.stack.transmit() {
                return Output::Transmit { port, pdu };
            } else {
                return Output::Idle { deadline: self.deadline() };
            }
        }
    }

    /// Returns how flows find their shards; `None` if the board is not divided.
    pub fn steering(&self) -> Option<Steering> {
        self.stack.ip.shard.as_ref().map(|shard| shard.steering)
    }

    /// Returns the next parcel for another shard, and the number of that shard. The driver of a shard calls
    /// this until there is none, whenever the board is idle.
    pub fn parcel(&mut self) -> Option<(usize, Parcel)> {
        self.stack.ip.shard.as_mut()?.pop()
    }

    /// Runs the NICs, and queues completions for their users.
    fn work_nics(&mut self) {
        let Board { stack, vi, rdma, announced } = self;
        if vi.as_mut().is_some_and(|nic| nic.take_progress()) {
            stack.edge.on_vi();
            *announced = false;
        }
        if let Some(endpoint) = rdma
            && (stack.unsettled || stack.edge.has_rdma_events())
            && endpoint.work(stack)
            && stack.edge.on_rdma()
        {
            *announced = false;
        }
    }

    fn settle(&mut self) {
        let Board { stack, vi, rdma, announced } = self;
        stack.settle();
        if let Some(nic) = vi {
            nic.settle(stack.now);
        }
        if let Some(endpoint) = rdma {
            endpoint.settle(stack);
        }
        *announced = false;
    }

    /// Returns when the board must act even if nothing arrives.
    fn deadline(&self) -> Instant {
        let vi = self.vi.as_ref().map_or(Instant::NEVER, |nic| nic.deadline());
        let rdma = self.rdma.as_ref().map_or(Instant::NEVER, |endpoint| endpoint.deadline());
        self.stack.deadline().min(vi).min(rdma)
    }

    /// Writes the next packet of the VI or RDMA NIC for a port into `room`, and returns its length. A link
    /// calls this when it can take a packet; call [`Board::poll`] afterwards, since sending may complete
    /// work.
    ///
    /// # Panics
    /// If `room` is shorter than the port's packets.
    pub fn fetch(&mut self, port: usize, room: &mut SharedRoom<'_>) -> Option<usize> {
        match (self.stack.ports.get(port), &mut self.vi, &mut self.rdma) {
            (Some(Port::Vi(path)), Some(nic), _) => nic.fetch(*path, room, self.stack.now),
            (Some(Port::Efe), _, Some(endpoint)) => {
                let length = endpoint.fetch(room, self.stack.now);
                // Sending a packet frees room for further ones.
                self.stack.unsettled |= length.is_some();
                length
            }
            _ => None,
        }
    }

    /// Marks the link of an IP or Ethernet port as unable to take packets, or as able again (in that case,
    /// also pass in [`Input::Room`]). While the link is held, packets stay in the port's queue, and the queue
    /// holds back the senders.
    pub fn hold(&mut self, port: usize, held: bool) {
        if let Some(Port::Packets(packets)) = self.stack.ports.get_mut(port) {
            packets.held = held;
        }
    }

    /// Commits the slots of an ATM port that start before `until`, and moves the sent cells to `out`.
    pub fn cells(&mut self, port: usize, until: Instant, out: &mut Vec<TimedCell>) {
        if let Some(Port::Atm(atm)) = self.stack.ports.get_mut(port) {
            atm.cells(until, &mut self.stack.copies, out);
        }
    }

    /// Returns when the next frame of an ATM port will have been sent if nothing else is queued. The time may
    /// be early, but is never late.
    pub fn next_cell_end(&self, port: usize) -> Instant {
        match self.stack.ports.get(port) {
            Some(Port::Atm(atm)) => atm.next_end(),
            _ => Instant::NEVER,
        }
    }

    /// Returns when an ATM port will have room again ([`Input::Room`]), if segments or datagrams wait for
    /// that room, or writers for the memory that it frees; otherwise never.
    pub fn next_room(&self, port: usize) -> Instant {
        match self.stack.ports.get(port) {
            Some(Port::Atm(atm)) if self.waits_for_room(port) => atm.segmentation.next_end(),
            _ => Instant::NEVER,
        }
    }

    /// Returns whether the cells that [`Board::cells`] has committed until `now` have made the room that
    /// something waits for. If that call was late, it has emptied the port: then no end of a frame is left
    /// that [`Board::next_room`] could announce.
    pub fn has_made_room(&self, port: usize, now: Instant) -> bool {
        let Some(Port::Atm(atm)) = self.stack.ports.get(port) else { return false };
        let end = atm.segmentation.next_end();
        (end <= now || end == Instant::NEVER) && self.waits_for_room(port)
    }

    fn waits_for_room(&self, port: usize) -> bool {
        let Some(place @ Port::Atm(atm)) = self.stack.ports.get(port) else { return false };
        let mut tx_queues = self.stack.tx_queues[port]..self.stack.tx_queues[port] + place.tx_queues();
        atm.has_outgoing()
            || tx_queues.any(|tx_queue| self.stack.ip.tcp.has_work(tx_queue))
            || self.stack.datagram_waits
            || !self.stack.edge.page_line.is_empty()
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Board({} ports, {} sessions, {:?})",
            self.stack.ports.len(),
            self.sessions(),
            self.stack.now
        )
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Board>();
};
