//! RDMA benchmark in real time: round trips and streams between two NICs, on one or two hosts.
//!
//! Purpose   measure latency, throughput and CPU use of a link.
//! Server    [`serve`] serves any number of clients, one thread each. The private data of a connection
//!           request contain the server's role, the message length and the address of the client's memory;
//!           those of the reply contain the address of the server's memory.
//! Send      the server returns every message, or only counts the messages of a stream. Its queue pair holds
//!           messages until a receive is posted, so that the client needs no credits.
//! Write     round trips are RDMA Writes with immediate data (RFC 7306) in both directions; streams are plain
//!           RDMA Writes.
//! Read      a Read is a round trip by itself; the server program is not involved.
//! End of a stream  the client ends a stream with a Write of no bytes that has immediate data. The server
//!                  answers when this has arrived, by which time all earlier messages have arrived, too. The
//!                  immediate data is the number of messages, in the upper half: RoCEv2 carries no more.
//! Limits    one thread per connection. Results depend on the other load on the machine.

pub use crate::messages::{PingPong, Stream};
use kiban_os::clock::{Clock, process_cpu_nanos};
use kiban_rdma_runtime::{
    Access, Address, Completion, Connect, Connection, ConnectionRequest, Context, Cq, CrcUse, Error, Kind,
    Listener, Mr, Qp, QpOptions, Remote, Slice, Status, Wr,
};
use std::fmt;
use std::time::Duration;

/// The first bytes of the private data on both sides; anything else means that the peer is another program.
const MAGIC: &[u8; 12] = b"kiban rdma 2";
/// How long to wait for the peer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the longest message.
pub const MESSAGE_BYTES_MAX: u32 = 4 << 20;
/// The maximum number of bytes outstanding; two messages may be outstanding whatever their length.
const WINDOW_BYTES: usize = 8 << 20;
/// The maximum number of messages outstanding.
const WINDOW_MESSAGES: usize = 128;

/// The RDMA operation that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Send and receive.
    Send,
    /// RDMA Write.
    Write,
    /// RDMA Read.
    Read,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Send => "Send",
            Operation::Write => "RDMA Write",
            Operation::Read => "RDMA Read",
        })
    }
}

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The operation.
    pub operation: Operation,
    /// Bytes per message.
    pub bytes: u32,
    /// Messages or round trips.
    pub count: u64,
    /// Additional round trips before those that are measured.
    pub warm_up: u64,
    /// Whether MPA frames carry a CRC.
    pub crc: bool,
}

/// Why a measurement failed.
#[derive(Debug)]
pub enum Failure {
    /// The NIC reported an error.
    Nic(Error),
    /// A work request failed.
    Work(Kind, Status),
    /// The peer is not a server of this benchmark.
    NotABenchmarkServer,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Nic(error) => error.fmt(f),
            Failure::Work(kind, status) => write!(f, "{kind:?}: {status}"),
            Failure::NotABenchmarkServer => {
                f.write_str("the peer is not a kiban benchmark server: start `kiban rdma serve` there")
            }
        }
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Nic(error)
    }
}

/// How the server handles received messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Role {
    /// Counts them, and answers the end of the stream.
    Counts = 0,
    /// Returns them by Send.
    Sends = 1,
    /// Returns them by RDMA Write.
    Writes = 2,
}

/// The private data of a client's connection request.
struct ClientRequest {
    role: Role,
    bytes: u32,
    memory: Remote,
}

impl ClientRequest {
    fn write(&self) -> Vec<u8> {
        [&MAGIC[..], &[self.role as u8], &self.bytes.to_be_bytes(), &self.memory.to_bytes()].concat()
    }

    fn read(bytes: &[u8]) -> Option<ClientRequest> {
        let (&role, rest) = bytes.strip_prefix(MAGIC)?.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let bytes = u32::from_be_bytes(*length);
        let role = [Role::Counts, Role::Sends, Role::Writes].into_iter().find(|its| *its as u8 == role)?;
        (bytes <= MESSAGE_BYTES_MAX).then_some(ClientRequest {
            role,
            bytes,
            memory: Remote::from_bytes(rest)?,
        })
    }
}

/// A queue pair with memory for one window of messages in each direction.
struct End {
    sent: Cq,
    heard: Cq,
    qp: Qp,
    memory: Mr,
    bytes: u32,
    window: usize,
}

impl End {
    fn new(context: &Context, bytes: u32) -> Result<End, Error> {
        let window = (WINDOW_BYTES / (bytes as usize).max(1)).clamp(2, WINDOW_MESSAGES);
        let pd = context.alloc_pd()?;
        let (sent, heard) = (context.create_cq(2 * window)?, context.create_cq(2 * window)?);
        let options = QpOptions {
            max_send_wr: window + 1,
            max_recv_wr: window,
            waits_for_receives: true,
            ..QpOptions::default()
        };
        let qp = pd.create_qp(&sent, &heard, options)?;
        let memory = pd.reg_mr(2 * window * bytes as usize, Access::ALL)?;
        let end = End { sent, heard, qp, memory, bytes, window };
        (0..window as u64).try_for_each(|number| end.post_receive(number))?;
        Ok(end)
    }

    fn out(&self, number: u64) -> Slice {
        self.memory.slice(number as usize % self.window * self.bytes as usize, self.bytes as usize)
    }

    fn receive_at(&self, number: u64) -> usize {
        (self.window + number as usize % self.window) * self.bytes as usize
    }

    fn post_receive(&self, number: u64) -> Result<(), Error> {
        self.qp.post_recv(number, &[self.memory.slice(self.receive_at(number), self.bytes as usize)])
    }

    /// Returns the remote address for a message; the peer's memory has the same layout as ours.
    fn there(&self, peer: Remote, number: u64) -> Remote {
        peer.at(self.receive_at(number) as u64)
    }

    /// Returns a work request that tells the peer a number of messages.
    fn notice(&self, peer: Remote, count: u64) -> Wr {
        Wr::write_with_immediate(count, self.memory.slice(0, 0), peer, count << 32)
    }

    /// Returns the work request of an operation.
    fn work(&self, operation: Operation, number: u64, peer: Remote) -> Wr {
        match operation {
            Operation::Send => Wr::send(number, self.out(number)),
            Operation::Write => Wr::write(number, self.out(number), self.there(peer, number)),
            Operation::Read => Wr::read(number, self.out(number), self.there(peer, number)),
        }
    }
}

/// Waits for the next completion; returns an error if the work request failed.
fn done(cq: &Cq) -> Result<Completion, Failure> {
    success(cq.wait(PATIENCE)?)
}

fn success(done: Completion) -> Result<Completion, Failure> {
    match done.status {
        Status::Success => Ok(done),
        status => Err(Failure::Work(done.kind, status)),
    }
}

/// Returns the connection parameters of both sides. Only the client requests a CRC.
fn options(crc: bool, private_data: Vec<u8>) -> Connect {
    let crc = if crc { CrcUse::Wanted } else { CrcUse::Off };
    Connect { crc, extensions: true, private_data, ..Connect::default() }
}

/// Listens for clients of [`serve`].
///
/// # Errors
/// See [`Context::listen`].
pub fn listen(context: &Context, at: Address) -> Result<Listener, Error> {
    context.listen(at, &options(false, Vec::new()))
}

/// Serves clients until `ends` returns true; it is polled several times a second. Calls `note` with one line
/// for each client that has finished.
///
/// # Errors
/// The context has been closed.
pub fn serve(
    context: &Context,
    listener: &Listener,
    ends: &(dyn Fn() -> bool + Sync),
    note: &(dyn Fn(&str) + Sync),
) -> Result<(), Error> {
    std::thread::scope(|threads| {
        while !ends() {
            let request = match listener.request(Duration::from_millis(50)) {
                Ok(request) => request,
                Err(Error::Timeout) => continue,
                Err(error) => return Err(error),
            };
            let from = request.from().map_or("a client".to_owned(), |from| from.to_string());
            let whose = from.clone();
            let work = move || match answer(context, request, ends) {
                Ok(count) => note(&format!("{whose}: {count} messages")),
                Err(failure) => note(&format!("{whose}: {failure}")),
            };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(threads, work) {
                // The failed thread's closure owned the request; dropping it has aborted the connection.
                note(&format!("{from}: cannot start a thread: {error}"));
            }
        }
        Ok(())
    })
}

fn answer(
    context: &Context,
    request: ConnectionRequest,
    ends: &(dyn Fn() -> bool + Sync),
) -> Result<u64, Failure> {
    let Some(greeting) = ClientRequest::read(request.private_data()) else {
        request.reject(MAGIC)?;
        return Err(Failure::NotABenchmarkServer);
    };
    let end = End::new(context, greeting.bytes)?;
    let said = [&MAGIC[..], &end.memory.remote().to_bytes()].concat();
    let _connection = request.accept(&end.qp, &options(false, said))?;
    let mut count = 0;
    loop {
        let heard = match end.heard.wait(Duration::from_millis(100)) {
            Ok(heard) if heard.status == Status::Success => heard,
            // The client has disconnected.
            Ok(_) => return Ok(count),
            Err(Error::Timeout) if ends() => return Ok(count),
            Err(Error::Timeout) => continue,
            Err(error) => return Err(error.into()),
        };
        end.post_receive(heard.id)?;
        let answer = match (greeting.role, heard.kind) {
            (Role::Counts, Kind::ReceiveImmediate) => end.notice(greeting.memory, count),
            (Role::Counts, _) => {
                count += 1;
                continue;
            }
            (Role::Sends, _) => Wr::send(count, end.out(count)),
            (Role::Writes, _) => {
                let there = end.there(greeting.memory, count);
                Wr::write_with_immediate(count, end.out(count), there, count)
            }
        };
        count += 1;
        end.qp.post_send(answer)?;
        done(&end.sent)?;
    }
}

fn connect(
    context: &Context,
    server: Address,
    plan: &Plan,
    role: Role,
) -> Result<(End, Connection, Remote), Failure> {
    let end = End::new(context, plan.bytes)?;
    let greeting = ClientRequest { role, bytes: plan.bytes, memory: end.memory.remote() };
    let connection = end.qp.connect(server, &options(plan.crc, greeting.write()), PATIENCE)?;
    let said = connection.private_data().strip_prefix(MAGIC).and_then(Remote::from_bytes);
    let peer = said.ok_or(Failure::NotABenchmarkServer)?;
    Ok((end, connection, peer))
}

/// Measures round trips with a server. Calls `progress` with the number of round trips done.
///
/// # Errors
/// There is no server at this address, or the connection is lost.
pub fn ping_pong(
    context: &Context,
    server: Address,
    plan: &Plan,
    progress: &mut dyn FnMut(u64),
) -> Result<PingPong, Failure> {
    let role = match plan.operation {
        Operation::Send => Role::Sends,
        Operation::Write => Role::Writes,
        Operation::Read => Role::Counts,
    };
    let (end, _connection, peer) = connect(context, server, plan, role)?;
    let clock = Clock::new();
    let mut nanos = Vec::with_capacity(plan.count as usize);
    let (mut cpu, mut begun) = (process_cpu_nanos(), clock.now());
    for number in 0..plan.warm_up + plan.count {
        if number == plan.warm_up {
            (cpu, begun) = (process_cpu_nanos(), clock.now());
        }
        let start = clock.now();
        end.qp.post_send(match plan.operation {
            Operation::Write => {
                Wr::write_with_immediate(number, end.out(number), end.there(peer, number), number)
            }
            operation => end.work(operation, number, peer),
        })?;
        if plan.operation == Operation::Read {
            done(&end.sent)?;
        } else {
            let heard = done(&end.heard)?;
            end.post_receive(heard.id)?;
        }
        let length = clock.now().since(start);
        if plan.operation != Operation::Read {
            done(&end.sent)?;
        }
        if let Some(counted) = number.checked_sub(plan.warm_up) {
            nanos.push(length.as_nanos() as f64);
            if counted.is_multiple_of(1024) {
                progress(counted);
            }
        }
    }
    let wall = clock.now().since(begun).as_nanos() as f64;
    let cpu_percent = (process_cpu_nanos() - cpu) as f64 / wall * 100.0;
    Ok(PingPong::of(plan.bytes, nanos, cpu_percent))
}

/// Measures a stream of messages to a server, or of Reads from it. Calls `progress` with the number of
/// messages done.
///
/// # Errors
/// There is no server at this address, or the connection is lost.
pub fn stream(
    context: &Context,
    server: Address,
    plan: &Plan,
    progress: &mut dyn FnMut(u64),
) -> Result<Stream, Failure> {
    let (end, _connection, peer) = connect(context, server, plan, Role::Counts)?;
    let clock = Clock::new();
    let (cpu, begun) = (process_cpu_nanos(), clock.now());
    let (mut posted, mut over, mut reported) = (0, 0, 0);
    let mut list = Vec::with_capacity(end.window);
    while over < plan.count {
        let room = (plan.count - posted).min(end.window as u64 - (posted - over));
        if room > 0 {
            let works = (posted..posted + room).map(|number| end.work(plan.operation, number, peer));
            posted += end.qp.post_send_all(works)? as u64;
        }
        list.push(end.sent.wait(PATIENCE)?);
        end.sent.poll_into(&mut list, end.window);
        for completion in list.drain(..) {
            success(completion)?;
            over += 1;
        }
        if over - reported >= 256 {
            reported = over;
            progress(over);
        }
    }
    if plan.operation != Operation::Read {
        end.qp.post_send(end.notice(peer, plan.count))?;
        let counted = done(&end.heard)?.immediate;
        if plan.operation == Operation::Send && counted != Some(plan.count << 32) {
            return Err(Failure::NotABenchmarkServer);
        }
    }
    let time = clock.now().since(begun);
    let cpu_percent = (process_cpu_nanos() - cpu) as f64 / time.as_nanos() as f64 * 100.0;
    Ok(Stream::of(plan.bytes, plan.count, plan.count, time, cpu_percent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_rdma_runtime::Lower;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn every_operation_is_measured_over_each_lower_layer() {
        let process = std::process::id() % 250;
        let own = |kind: &str, end: u32| format!("{kind}:127.79.{process}.{end}");
        for (over, own, at) in [
            ("tcp".to_owned(), "tcp".to_owned(), "127.0.0.1:0".to_owned()),
            (own("efe", 1), own("efe", 2), format!("127.79.{process}.1:0")),
            (own("roce", 1), own("roce", 2), format!("127.79.{process}.1:0")),
        ] {
            let open =
                |word: &str| Context::open(&word.parse::<Lower>().expect("a lower layer")).expect("it opens");
            let (server, client) = (open(&over), open(&own));
            let listener = listen(&server, at.parse().expect("an address")).expect("it listens");
            let ends = AtomicBool::new(false);
            std::thread::scope(|threads| {
                threads.spawn(|| serve(&server, &listener, &|| ends.load(Ordering::Relaxed), &|_| {}));
                for operation in [Operation::Send, Operation::Write, Operation::Read] {
                    for (bytes, crc) in [(0, false), (3000, true), (100_000, false)] {
                        let plan = Plan { operation, bytes, count: 300, warm_up: 3, crc };
                        let to = listener.address();
                        let round =
                            ping_pong(&client, to, &plan, &mut |_| {}).expect("the server has started");
                        assert!(round.count == 300 && round.min_us > 0.0 && round.p50_us <= round.max_us);
                        let stream = stream(&client, to, &plan, &mut |_| {}).expect("the server has started");
                        assert_eq!((stream.count, stream.lost), (300, 0), "{operation} over {over}");
                    }
                }
                ends.store(true, Ordering::Relaxed);
            });
        }
    }

    #[test]
    fn invalid_private_data_is_refused() {
        let open = || Context::open(&Lower::Tcp { from: None }).expect("sockets");
        let (server, client) = (open(), open());
        let listener = listen(&server, "127.0.0.1:0".parse().expect("an address")).expect("it listens");
        let pd = client.alloc_pd().expect("room");
        let cq = client.create_cq(1).expect("room");
        let memory = Remote::default();
        let ends = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| serve(&server, &listener, &|| ends.load(Ordering::Relaxed), &|_| {}));
            let long = ClientRequest { role: Role::Sends, bytes: MESSAGE_BYTES_MAX + 1, memory }.write();
            let short = ClientRequest { role: Role::Sends, bytes: 1, memory }.write()[..20].to_vec();
            for said in [Vec::new(), b"hello".to_vec(), long, short] {
                let qp = pd.create_qp(&cq, &cq, QpOptions::default()).expect("room");
                let refused = qp.connect(listener.address(), &options(false, said), PATIENCE);
                assert!(
                    matches!(&refused, Err(Error::Connect(kiban_rdma_runtime::ConnectError::Rejected(said))) if said == MAGIC),
                    "{refused:?}"
                );
            }
            ends.store(true, Ordering::Relaxed);
        });
    }
}
