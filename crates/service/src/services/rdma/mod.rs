//! The board's RDMA NIC for programs on this host: the NIC runs in the board's process, as the RNIC of paper
//! \[3\] runs beside its host, and programs share their work queues, completion queues and memory with it
//! ([`kiban_rdma::hif`]).
//!
//! Socket           `NAME.rdma`, in the same directory as the control socket. A program's first connection
//!                  carries its requests. Each further one shares memory that holds a completion queue or
//!                  will be registered; it is closed when the program has received the memory's descriptor.
//! One-sided work   the NIC accesses the shared memory itself. The program whose memory a peer reads or
//!                  writes is not woken, and uses no processor time.
//! Receives         a message without a posted receive waits for one, because the receive may be in the work
//!                  ring already.
//! Transports       iWARP over the board's TCP, and RoCEv2 and EFE over its UDP.
//! Trust            as for [`Attach`](super::Attach): the board creates all shared memory, sealed against
//!                  shrinking, and accepts no descriptors. A program names objects by the NIC's numbers, each
//!                  of which is checked against the program's own objects. Its queue pairs reach only memory
//!                  of its own protection domains, and peers only memory that it has exposed.
//! Key              a program proves with the random key of its first connection that further memory is its
//!                  own.
//! End              when a program exits, its connections are aborted and its objects are destroyed; memory
//!                  stays mapped until the last segment that refers to it has been sent. A program that
//!                  breaks a rule of the shared memory is disconnected.
//! Turns            at most `TURN_REQUESTS` requests of a program before other work has a turn.
//! Limits           `CLIENTS_MAX` programs; `sessions` queue pairs for all of them together, of which one
//!                  that has half leaves the last eighth to others; for each program `MAPPINGS_MAX` shared
//!                  memories with `MEMORY_BYTES_MAX` bytes in all, `PDS_MAX` protection
//!                  domains, `SRQS_MAX` shared receive queues, `KEYS_MAX` regions and windows,
//!                  `LISTENERS_MAX` listeners and `ENDS_MAX` connections.
//! Reload           the NIC exists as long as its board, so changes of this service need a restart.

mod client;
mod requests;
mod tables;

use self::client::{Client, ENDS_MAX, Fault, MEMORY_BYTES_MAX};
use self::tables::Tables;
use super::attach::ClientBells;
use super::clients::{Entrance, LISTENER, admit};
use super::counters::{ProgramView, ServiceCounters};
use super::service::{Service, SessionLimits};
use kiban_base::Instant;
use kiban_board::{Completion, Host};
use kiban_link::{EpollSet, Interest};
use kiban_os::channel::{ChannelListener, FRONT_BYTES, PendingChannel};
use kiban_os::clock::machine_nanos;
use kiban_os::lines::ClientLog;
use kiban_rdma::hif::{Greeting, Layout, Notice};
use kiban_rdma::nic::CmEvent;
use kiban_rdma::rnic::Event;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Limit of concurrent programs, and of their connections that have not sent a greeting.
const CLIENTS_MAX: usize = 256;
const CALLERS_MAX: usize = 256;
/// Timeout of a greeting.
const GREETING: Duration = Duration::from_secs(10);

/// The service.
pub struct Rdma {
    path: PathBuf,
    bounds: SessionLimits,
    chime: Arc<ClientBells>,
    files: EpollSet,
    entrance: Entrance<ChannelListener>,
    /// Connections whose greeting has not arrived, and its deadline.
    callers: BTreeMap<u64, (PendingChannel, Instant)>,
    clients: BTreeMap<u64, Client>,
    next: u64,
    tables: Tables,
    lines: ClientLog,
    ready: Vec<u64>,
}

impl Rdma {
    /// Returns a service that will listen at `path`.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn new(path: PathBuf, bounds: SessionLimits, chime: Arc<ClientBells>) -> io::Result<Rdma> {
        Ok(Rdma {
            path,
            bounds,
            chime,
            files: EpollSet::new()?,
            entrance: Entrance::default(),
            callers: BTreeMap::new(),
            clients: BTreeMap::new(),
            next: 0,
            tables: Tables::default(),
            lines: ClientLog::new("rdma"),
            ready: Vec::new(),
        })
    }

    fn on_callers(&mut self, now: Instant) {
        while let Some(half) = self.entrance.next(&self.files, ChannelListener::accept) {
            let number = self.next;
            self.next += 1;
            let watch = || self.files.watch(&half, number, Interest::READ);
            match admit("connections", self.callers.len(), CALLERS_MAX, watch) {
                Ok(()) => drop(self.callers.insert(number, (half, now + GREETING))),
                Err(why) => {
                    half.refuse(&why);
                    self.lines.log_disconnect(&half, why);
                    self.tables.counters.refused += 1;
                }
            }
        }
    }

    /// Handles a greeting, once it has arrived.
    fn on_greeting(&mut self, number: u64) {
        let Some((mut half, until)) = self.callers.remove(&number) else { return };
        let mut greeting = None;
        let validated = half.complete_if(0..=MEMORY_BYTES_MAX, |hello, bytes| {
            let its =
                Greeting::from_bytes(hello).ok_or("invalid greeting: the client uses another version")?;
            self.validate(&its, bytes)?;
            greeting = Some(its);
            Ok(Vec::new())
        });
        let channel = match validated {
            Ok(Some(channel)) => channel,
            Ok(None) => return drop(self.callers.insert(number, (half, until))),
            Err(error) => {
                // A client that only checks whether the service exists disconnects without sending a
                // greeting.
                if error.kind() != io::ErrorKind::ConnectionReset {
                    self.lines.log_disconnect(&half, error);
                    self.tables.counters.refused += 1;
                }
                // This fails if the socket is not being watched.
                let _ = self.files.forget(&half);
                return;
            }
        };
        match greeting {
            Some(Greeting::Nic { key }) => {
                let channel = Arc::new(channel);
                self.chime.add(&channel);
                self.clients.insert(number, Client::new(channel, key));
            }
            Some(Greeting::Memory { key, memory }) => {
                // The memory stays mapped; the socket has served its purpose.
                let _ = self.files.forget(channel.socket());
                if let Some(client) = self.clients.values_mut().find(|client| client.key == key) {
                    client.add_memory(memory, channel.region().clone());
                }
            }
            None => {}
        }
    }

    /// Checks a greeting that requests `bytes` of memory.
    fn validate(&self, greeting: &Greeting, bytes: usize) -> Result<(), String> {
        let client = |key| self.clients.values().find(|client| client.key == key);
        match *greeting {
            Greeting::Nic { key } => {
                if bytes < Layout::new(FRONT_BYTES).bytes() {
                    return Err("the requested memory is too small".into());
                }
                if client(key).is_some() {
                    return Err("the key is in use".into());
                }
                if self.clients.len() >= CLIENTS_MAX {
                    return Err(format!("too many clients: the limit of {CLIENTS_MAX} is reached"));
                }
            }
            Greeting::Memory { key, memory } => {
                let client = client(key).ok_or("memory of an unknown client")?;
                client.validate_memory(memory, bytes)?;
            }
        }
        Ok(())
    }

    /// Removes callers whose greeting is overdue; if `now` is `None`, removes all.
    fn remove_callers(&mut self, now: Option<Instant>) {
        let (files, lines) = (&self.files, &mut self.lines);
        self.callers.retain(|_, (half, until)| {
            let stays = now.is_some_and(|now| *until > now);
            if !stays {
                if now.is_some() {
                    lines.log_disconnect(&*half, format!("no greeting within {} s", GREETING.as_secs()));
                }
                let _ = files.forget(&*half);
            }
            stays
        });
    }

    /// Handles a readable socket: a greeting, a wake-up, or a disconnect.
    fn on_socket(&mut self, number: u64, host: &mut Host<'_>) {
        if self.callers.contains_key(&number) {
            return self.on_greeting(number);
        }
        if self.clients.get(&number).is_some_and(|client| client.channel.is_gone()) {
            return self.remove(number, host);
        }
        self.work(number, host);
    }

    /// Handles a client's requests.
    fn work(&mut self, number: u64, host: &mut Host<'_>) {
        let worked =
            requests::work(&mut self.clients, &mut self.tables, self.bounds.sessions_max, number, host);
        if worked.and_then(|()| self.flush(number)).is_err() {
            self.cut_off(number, host);
        }
    }

    /// Sends a client's notices, and rings its bell if there is something new.
    fn flush(&mut self, number: u64) -> Result<(), Fault> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        client.flush()?;
        if std::mem::take(&mut client.ring_pending) {
            client.channel.ring(machine_nanos);
        }
        Ok(())
    }

    /// Disconnects a client that has violated the protocol.
    fn cut_off(&mut self, number: u64, host: &mut Host<'_>) {
        if let Some(client) = self.clients.get(&number) {
            self.lines.log_disconnect(client.channel.socket(), "protocol error in the shared memory");
            self.tables.counters.errors += 1;
        }
        self.remove(number, host);
    }

    /// Removes a client and everything that it has created.
    fn remove(&mut self, number: u64, host: &mut Host<'_>) {
        let Some(client) = self.clients.remove(&number) else { return };
        // This fails if the socket is not being watched.
        let _ = self.files.forget(client.channel.socket());
        self.tables.listeners.retain(|_, owner| *owner != number);
        self.tables.ends.retain(|_, owner| *owner != number);
        self.tables.cqs.retain(|_, owner| *owner != number);
        self.tables.counters.aborted += client.qps.len() as u64;
        client.destroy(host);
    }

    /// Passes the NIC's events and completions to the clients.
    fn dispatch(&mut self, host: &mut Host<'_>) {
        while let Some(event) = host.rdma().and_then(|mut rdma| rdma.nic().poll()) {
            self.on_connection(event, host);
        }
        while let Some(event) = host.rdma().and_then(|mut rdma| rdma.nic().core.event()) {
            self.on_event(event);
        }
        let mut broken = Vec::new();
        while let Some(cq) = host.rdma().and_then(|mut rdma| rdma.nic().core.cq_event()) {
            let Some(&owner) = self.tables.cqs.get(&cq) else { continue };
            let Some(client) = self.clients.get_mut(&owner) else { continue };
            if client.pass_completions(cq, host).is_err() {
                broken.push(owner);
            }
        }
        let numbers: Vec<u64> = self.clients.keys().copied().collect();
        broken.extend(numbers.into_iter().filter(|number| self.flush(*number).is_err()));
        broken.into_iter().for_each(|number| self.cut_off(number, host));
    }

    fn on_connection(&mut self, event: CmEvent, host: &mut Host<'_>) {
        let Some(mut rdma) = host.rdma() else { return };
        let (end, notice) = match event {
            CmEvent::ConnectRequest(request) => {
                let end = request.end;
                let transport = rdma.transport(end);
                // If a program answers no requests, those beyond `ENDS_MAX` are refused below.
                if let Some(&owner) = self.tables.listeners.get(&(transport, request.listener))
                    && let Some(client) = self.clients.get_mut(&owner)
                    && client.ends.len() < ENDS_MAX
                {
                    client.ends.insert(end);
                    self.tables.ends.insert(end, owner);
                }
                let addresses = rdma.addresses(end).unzip();
                let notice = Notice::ConnectRequest {
                    end,
                    listener: request.listener,
                    depths: request.depths,
                    extensions: request.extensions,
                    addresses,
                    private_data: request.private_data,
                };
                (end, notice)
            }
            CmEvent::Connected { end, private_data } => {
                let addresses = rdma.addresses(end).unzip();
                let nic = rdma.nic();
                let traits = nic.qp_of(end).and_then(|qp| nic.core.query_qp(qp).ok());
                let depths = traits.map_or((0, 0), |(.., traits)| (traits.ird, traits.ord));
                (end, Notice::Connected { end, depths, addresses, private_data })
            }
            CmEvent::Failed { end, error } => (end, Notice::Failed { end, error }),
            CmEvent::Withdrawn { end } => (end, Notice::Withdrawn { end }),
            CmEvent::Gone { end } => (end, Notice::Gone { end }),
        };
        match self.tables.ends.get(&end).and_then(|owner| self.clients.get_mut(owner)) {
            Some(client) if client.ends.contains(&end) => client.notify(&notice),
            // The listener was closed in the meantime, or the program has released this end.
            _ => {
                rdma.forget(end);
                self.tables.ends.remove(&end);
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        let is_its = |client: &&mut Client| match event {
            Event::QpFailed { qp, .. }
            | Event::Abandoned { qp }
            | Event::PeerTerminated { qp, .. }
            | Event::LastReceive { qp } => client.qps.contains(&qp),
            Event::CqOverrun { cq } => client.cqs.contains_key(&cq),
            Event::SrqLimit { srq } => client.srqs.contains(&srq),
        };
        if let Some(client) = self.clients.values_mut().find(is_its) {
            client.notify(&Notice::Event(event));
        }
    }
}

impl Service for Rdma {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) -> Result<(), String> {
        if host.rdma().is_none() {
            return Err("the board has no RDMA NIC".into());
        }
        self.entrance.open_at(&self.path, &self.files, ChannelListener::open_at)
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        if completion == Completion::Rdma {
            self.dispatch(host);
        }
    }

    fn look(&mut self, _: &mut Host<'_>, now: Instant) {
        self.entrance.look(&self.files);
        self.remove_callers(Some(now));
    }

    fn close(&mut self, _: &mut Host<'_>) {
        self.entrance.close();
        self.remove_callers(None);
    }

    fn cut(&mut self, host: &mut Host<'_>) {
        while let Some((&number, _)) = self.clients.first_key_value() {
            self.remove(number, host);
        }
    }

    fn sessions(&self) -> usize {
        self.clients.values().map(|client| client.qps.len()).sum()
    }

    fn counters(&self) -> ServiceCounters {
        self.tables.counters
    }

    fn programs(&self) -> Vec<ProgramView> {
        self.clients.iter().map(|(&number, client)| client.view(number)).collect()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.files.as_fd())
    }

    fn is_ready(&self) -> bool {
        self.clients.values().any(Client::is_ready)
    }

    fn on_file(&mut self, host: &mut Host<'_>, now: Instant) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        self.files.ready(&mut ready);
        for number in &ready {
            match *number {
                LISTENER => self.on_callers(now),
                number => self.on_socket(number, host),
            }
        }
        self.ready = ready;
        let asking = self.clients.iter().filter(|(_, client)| client.is_ready());
        let asking: Vec<u64> = asking.map(|(number, _)| *number).collect();
        asking.into_iter().for_each(|number| self.work(number, host));
    }
}
