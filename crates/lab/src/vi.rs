//! VI benchmark in real time: round trips and streams between two NICs, on one or two hosts.
//!
//! Purpose   measure latency, throughput and CPU use of a link.
//! Server    [`serve`] listens at two endpoints: [`ECHO`] returns every message, [`SINK`] counts them. Its
//!           VIs have the same attributes as the client's, so the client chooses the reliability level and
//!           the message size.
//! Stream    the sink grants credits: after every [`CREDIT_MESSAGES`] messages it reports how many it has
//!           received. With reliable delivery the client never has more messages outstanding than the sink
//!           has posted descriptors, because otherwise the connection breaks. With reliable reception the NIC
//!           limits the sender; with unreliable delivery there is no limit, and lost messages are counted.
//! Limits    one thread per connection. Results depend on the other load on the machine.

pub use crate::messages::{PingPong, Stream};
use kiban_base::{Region, SharedBytes};
use kiban_os::clock::process_cpu_nanos;
use kiban_vi::{DataSegment, MemoryAttributes, Reliability, ViAttributes, Work};
use kiban_vi_runtime::{Address, Failure, HostAddress, Nic, Request};
use std::time::Duration;

/// The endpoint that returns every message.
pub const ECHO: &[u8] = b"kiban echo";
/// The endpoint that counts messages.
pub const SINK: &[u8] = b"kiban sink";
/// Descriptors that each side keeps posted.
const POSTED: u64 = 32;
/// Messages per credit of the sink.
pub const CREDIT_MESSAGES: u64 = 8;
/// How long to wait for the peer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the longest message.
pub const MESSAGE_BYTES_MAX: u32 = 4 << 20;

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The reliability level.
    pub reliability: Reliability,
    /// Bytes per message.
    pub bytes: u32,
    /// Messages or round trips.
    pub count: u64,
    /// Additional round trips before those that are measured.
    pub warm_up: u64,
}

/// A VI with memory for [`POSTED`] messages in each direction.
struct End<'a> {
    nic: &'a Nic,
    vi: u32,
    tag: u32,
    handle: u32,
    memory: Region,
    bytes: u32,
}

impl<'a> End<'a> {
    fn new(nic: &'a Nic, reliability: Reliability, bytes: u32) -> Result<End<'a>, Failure> {
        let tag = nic.create_tag()?;
        // A credit is a message of 8 bytes.
        let bytes = bytes.max(8);
        let memory = Region::new(0, bytes as usize * 2 * POSTED as usize);
        let handle =
            nic.register(memory.clone(), MemoryAttributes { tag, rdma_write: false, rdma_read: false })?;
        let attributes = ViAttributes {
            reliability,
            transfer_bytes_max: bytes,
            qos: 0,
            tag,
            rdma_write: false,
            rdma_read: false,
        };
        let end = End { nic, vi: nic.create_vi(attributes, None, None)?, tag, handle, memory, bytes };
        (0..POSTED).try_for_each(|number| end.post_receive(number))?;
        Ok(end)
    }

    fn block(&self, number: u64, length: u32) -> [DataSegment; 1] {
        [DataSegment { address: number * u64::from(self.bytes), handle: self.handle, length }]
    }

    fn post_receive(&self, number: u64) -> Result<(), Failure> {
        let number = number % POSTED;
        Ok(self.nic.post_receive(self.vi, number, &self.block(POSTED + number, self.bytes))?)
    }

    /// Posts the send of message `number` from its block of memory.
    fn send(&self, number: u64, length: u32) -> Result<(), Failure> {
        let segments = self.block(number % POSTED, length);
        Ok(self.nic.post_send(self.vi, Work::send(number, &segments))?)
    }

    fn sent(&self) -> Result<bool, Failure> {
        let done = self.nic.send_wait(self.vi, PATIENCE)?;
        Ok(done.status.is_ok())
    }

    /// Waits for the next message; returns its block and length, or `None` if the connection is closed.
    fn receive(&self, patience: Duration) -> Result<Option<(u64, u32)>, Failure> {
        let done = self.nic.receive_wait(self.vi, patience)?;
        Ok(done.status.is_ok().then_some((done.cookie, done.length)))
    }

    fn number_in(&self, block: u64) -> u64 {
        let mut bytes = [0; 8];
        if let Some(there) = self.memory.bytes((POSTED + block) * u64::from(self.bytes), 8) {
            there.copy_to(0, &mut bytes);
        }
        u64::from_be_bytes(bytes)
    }

    fn put_number(&self, block: u64, number: u64) {
        let at = block % POSTED * u64::from(self.bytes);
        self.memory
            .write(at, SharedBytes::from(&number.to_be_bytes()[..]))
            .expect("a block of its own memory");
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        // An error means that the connection or the resource no longer exists.
        let _ = self.nic.disconnect(self.vi);
        while matches!(self.nic.send_done(self.vi), Ok(Some(_)))
            || matches!(self.nic.receive_done(self.vi), Ok(Some(_)))
        {}
        let _ = self.nic.destroy_vi(self.vi);
        let _ = self.nic.deregister(self.handle);
        let _ = self.nic.destroy_tag(self.tag);
    }
}

/// Serves clients until `ends` returns true; it is polled several times a second. Calls `note` with one line
/// for each client that has finished.
///
/// # Errors
/// The NIC cannot listen at the two endpoints, or accepting a connection fails.
pub fn serve(
    nic: &Nic,
    ends: &(dyn Fn() -> bool + Sync),
    note: &(dyn Fn(&str) + Sync),
) -> Result<(), Failure> {
    nic.listen(ECHO)?;
    nic.listen(SINK)?;
    std::thread::scope(|threads| {
        while !ends() {
            for endpoint in [ECHO, SINK] {
                let request = match nic.connect_wait(endpoint, Duration::from_millis(20)) {
                    Ok(request) => request,
                    Err(Failure::Timeout) => continue,
                    Err(failure) => return Err(failure),
                };
                let from = request.from.host.to_string();
                let what = if endpoint == ECHO { "echo" } else { "sink" };
                let (whose, given) = (from.clone(), request.clone());
                let work = move || match answer(nic, &given, endpoint == ECHO, ends) {
                    Ok(count) => note(&format!("{what} for {whose}: {count} messages")),
                    Err(failure) => note(&format!("{what} for {whose}: {failure}")),
                };
                if let Err(error) = std::thread::Builder::new().spawn_scoped(threads, work) {
                    note(&format!("{what} for {from}: cannot start a thread: {error}"));
                    // The client may have disconnected.
                    let _ = nic.reject(&request);
                }
            }
        }
        Ok(())
    })
}

fn answer(
    nic: &Nic,
    request: &Request,
    echoes: bool,
    ends: &(dyn Fn() -> bool + Sync),
) -> Result<u64, Failure> {
    let remote = request.remoteness;
    if remote.transfer_bytes_max > MESSAGE_BYTES_MAX {
        nic.reject(request)?;
        return Ok(0);
    }
    let end = End::new(nic, remote.reliability, remote.transfer_bytes_max)?;
    nic.accept(request, end.vi)?;
    let (mut count, mut reported, mut sends) = (0u64, 0, 0);
    loop {
        let quiet = Duration::from_millis(100);
        match end.receive(quiet) {
            Ok(None) => return Ok(count),
            Err(Failure::Timeout) if ends() => return Ok(count),
            Err(Failure::Timeout) => {}
            Err(failure) => return Err(failure),
            Ok(Some((block, length))) => {
                count += 1;
                if echoes {
                    end.send(count, length)?;
                    if !end.sent()? {
                        return Ok(count);
                    }
                }
                end.post_receive(block)?;
                if echoes || !count.is_multiple_of(CREDIT_MESSAGES) {
                    continue;
                }
            }
        }
        // Send a credit; after a pause, report the total.
        if !echoes && reported < count {
            reported = count;
            end.put_number(sends, count);
            end.send(sends, 8)?;
            sends += 1;
            if !end.sent()? {
                return Ok(count);
            }
        }
    }
}

fn connect<'a>(nic: &'a Nic, host: &HostAddress, endpoint: &[u8], plan: &Plan) -> Result<End<'a>, Failure> {
    let end = End::new(nic, plan.reliability, plan.bytes)?;
    let to = Address { host: host.clone(), discriminator: endpoint.to_vec() };
    nic.connect(end.vi, b"", &to, PATIENCE)?;
    Ok(end)
}

/// Measures round trips with a server. Calls `progress` with the number of round trips done.
///
/// # Errors
/// There is no server at this address, or the connection is lost.
pub fn ping_pong(
    nic: &Nic,
    host: &HostAddress,
    plan: &Plan,
    progress: &mut dyn FnMut(u64),
) -> Result<PingPong, Failure> {
    let end = connect(nic, host, ECHO, plan)?;
    let mut nanos = Vec::with_capacity(plan.count as usize);
    let (mut cpu, mut begun) = (process_cpu_nanos(), nic.now());
    for n in 0..plan.warm_up + plan.count {
        if n == plan.warm_up {
            (cpu, begun) = (process_cpu_nanos(), nic.now());
        }
        let start = nic.now();
        end.send(n, plan.bytes)?;
        let Some((block, _)) = end.receive(PATIENCE)? else { return Err(Failure::Timeout) };
        let length = nic.now().since(start);
        end.post_receive(block)?;
        end.sent()?;
        if n >= plan.warm_up {
            nanos.push(length.as_nanos() as f64);
            if n.is_multiple_of(1024) {
                progress(n - plan.warm_up);
            }
        }
    }
    let wall = nic.now().since(begun).as_nanos() as f64;
    let cpu_percent = (process_cpu_nanos() - cpu) as f64 / wall * 100.0;
    Ok(PingPong::of(plan.bytes, nanos, cpu_percent))
}

/// Measures a stream of messages to a server. Calls `progress` with the number of messages sent.
///
/// # Errors
/// There is no server at this address, or the connection is lost.
pub fn stream(
    nic: &Nic,
    host: &HostAddress,
    plan: &Plan,
    progress: &mut dyn FnMut(u64),
) -> Result<Stream, Failure> {
    let end = connect(nic, host, SINK, plan)?;
    let (cpu, begun) = (process_cpu_nanos(), nic.now());
    let (mut posted, mut done, mut credited) = (0u64, 0u64, 0u64);
    let mut last_at = begun;
    while done < plan.count {
        let room = match plan.reliability {
            // A credit may lag by up to CREDIT_MESSAGES messages, so use that many fewer descriptors than the
            // sink keeps posted.
            Reliability::Delivery => credited + POSTED - CREDIT_MESSAGES,
            _ => u64::MAX,
        };
        while posted < plan.count && posted < room && posted - done < POSTED / 2 {
            end.send(posted, plan.bytes)?;
            posted += 1;
        }
        while let Some(ended) = nic.send_done(end.vi)? {
            if !ended.status.is_ok() {
                return Err(Failure::Timeout);
            }
            done += 1;
            if done.is_multiple_of(256) {
                progress(done);
            }
        }
        let waits_for_credit = posted == done && posted >= room && posted < plan.count;
        let patience = if waits_for_credit { PATIENCE } else { Duration::ZERO };
        match end.receive(patience) {
            Ok(Some((block, _))) => {
                credited = end.number_in(block);
                last_at = nic.now();
                end.post_receive(block)?;
            }
            Ok(None) => return Err(Failure::Timeout),
            Err(Failure::Timeout) if !waits_for_credit => {
                if posted > done && posted - done >= POSTED / 2 {
                    done += u64::from(end.sent()?);
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    // The sink reports the total when it has received nothing for a while.
    let quiet = Duration::from_millis(500);
    while credited < plan.count {
        match end.receive(quiet) {
            Ok(Some((block, _))) => {
                let before = std::mem::replace(&mut credited, end.number_in(block));
                // The final report is sent late on purpose, so the stream ends at the last report that was
                // sent without delay.
                if credited - before >= CREDIT_MESSAGES || before == 0 {
                    last_at = nic.now();
                }
                end.post_receive(block)?;
            }
            Ok(None) | Err(Failure::Timeout) => break,
            Err(failure) => return Err(failure),
        }
    }
    let wall = nic.now().since(begun).as_nanos() as f64;
    let cpu_percent = (process_cpu_nanos() - cpu) as f64 / wall * 100.0;
    Ok(Stream::of(plan.bytes, plan.count, credited, last_at.since(begun), cpu_percent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_vi_runtime::Device;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn both_measurements_complete_on_every_device_and_level() {
        for devices in [["loopback", "loopback"], ["shm:lab", "shm"], ["udp:127.0.0.1:0", "udp:127.0.0.1:0"]]
        {
            let open = |word: &str| {
                let word = word.replace("lab", &format!("lab-{}", std::process::id()));
                Nic::open(&word.parse::<Device>().expect("a device")).expect("it opens")
            };
            let server = open(devices[0]);
            let client = if devices[0] == "loopback" { server.clone() } else { open(devices[1]) };
            let over = AtomicBool::new(false);
            std::thread::scope(|threads| {
                threads
                    .spawn(|| serve(&server, &|| over.load(Ordering::Relaxed), &|_| {}).expect("it serves"));
                for reliability in [Reliability::Unreliable, Reliability::Delivery, Reliability::Reception] {
                    let plan = Plan { reliability, bytes: 3000, count: 200, warm_up: 3 };
                    // The server may not listen yet.
                    let host = server.address();
                    let round = loop {
                        match ping_pong(&client, &host, &plan, &mut |_| {}) {
                            Err(Failure::Connect(_)) => std::thread::yield_now(),
                            other => break other.expect("the server has started"),
                        }
                    };
                    assert!(
                        round.min_us > 0.0 && round.p50_us <= round.p99_us && round.p99_us <= round.max_us
                    );
                    let stream = stream(&client, &host, &plan, &mut |_| {}).expect("the server has started");
                    assert!(
                        stream.lost == 0 || reliability == Reliability::Unreliable,
                        "{devices:?} {stream:?}"
                    );
                    assert!(stream.mbytes_per_second > 0.0);
                }
                over.store(true, Ordering::Relaxed);
            });
        }
    }
}
