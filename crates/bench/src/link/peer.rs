//! The kernel's end of a connection: plain loops that read or write a socket.

use super::device::{BUFFER_BYTES, SINK, Taken, in_a_namespace};
use kiban_measure::Settings;
use kiban_os::Clock;
use kiban_os::clock::{pin_thread, thread_number};
use kiban_tcpip::ip::Prefix;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Returns explicit socket settings, because the defaults differ between machines.
fn settings() -> Settings {
    Settings { congestion: Some("cubic".into()), ..Settings::default() }
}

pub(super) fn connect(to: SocketAddr) -> TcpStream {
    settings().connect(to, Duration::from_secs(5)).expect("the end behind the device listens")
}

/// Writes for `length`, then closes its side and waits until the other end closes, too.
pub(super) fn send(mut socket: &TcpStream, clock: Clock, length: Duration) -> Taken {
    let buffer = crate::noise::noise(1, BUFFER_BYTES);
    let until = clock.now() + length;
    let mut taken = Taken::default();
    while clock.now() < until {
        let count = socket.write(&buffer).expect("the peer reads");
        taken.take(count, clock.now());
    }
    socket.shutdown(Shutdown::Write).expect("it is open");
    let _ = socket.read(&mut [0]);
    taken
}

/// Reads until the connection ends.
pub(super) fn receive(mut socket: &TcpStream, clock: Clock) -> Taken {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut taken = Taken::default();
    while let count @ 1.. = socket.read(&mut buffer).expect("the peer sends") {
        taken.take(count, clock.now());
    }
    taken
}

/// A veth between two namespaces: `lab0` near, `lab1` far.
#[derive(Clone, Copy)]
pub(crate) struct Wire {
    pub(crate) mtu_bytes: usize,
    /// Whether the near address is configured in the kernel. If not, the board at that end uses the address
    /// through a packet socket.
    pub(crate) near_has_address: bool,
}

impl Wire {
    pub(crate) const NEAR: [u8; 4] = [10, 9, 1, 1];
    pub(crate) const FAR: [u8; 4] = [10, 9, 1, 2];

    pub(super) fn net() -> Prefix {
        "10.9.1.0/24".parse().expect("a prefix")
    }
}

pub(super) fn tell(program: &str, words: &str) {
    let done = Command::new(program).args(words.split(' ')).status().expect("iproute2 is installed");
    assert!(done.success(), "{program} {words}");
}

/// Limits the rate at which the near end sends, by a token bucket. The bucket's queue is too long for a
/// packet socket to fill.
pub(super) fn shape(rate: &str) {
    tell("tc", &format!("qdisc add dev lab0 root tbf rate {rate} burst 128kb limit 4mb"));
}

/// Runs both ends of a wire; `near` starts once `far` has reported that it is listening.
pub(crate) fn over_wire<N: Send, F: Send>(
    wire: Wire,
    near: impl FnOnce() -> Result<N, String> + Send,
    far: impl FnOnce(&dyn Fn()) -> Result<F, String> + Send,
) -> (N, F) {
    let (there, told) = mpsc::channel();
    let (up, heard) = mpsc::channel();
    let (listens, listening) = mpsc::channel();
    std::thread::scope(|scope| {
        let far = scope.spawn(move || {
            in_a_namespace(move || {
                there.send(thread_number()).expect("the near end waits");
                let () = heard.recv().map_err(|error| error.to_string())?;
                tell("ip", "addr add 10.9.1.2/24 dev lab1");
                tell("ip", "link set lab1 up");
                far(&|| listens.send(()).expect("the near end waits"))
            })
        });
        let near = scope.spawn(move || {
            in_a_namespace(move || {
                let thread = told.recv().map_err(|error| error.to_string())?;
                // Disable IPv6, because the board does not need the kernel's IPv6 traffic.
                let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
                tell("ip", "link add lab0 type veth peer name lab1");
                tell("ip", &format!("link set lab0 mtu {}", wire.mtu_bytes));
                tell("ip", &format!("link set lab1 mtu {}", wire.mtu_bytes));
                tell("ip", &format!("link set lab1 netns {thread}"));
                if wire.near_has_address {
                    tell("ip", "addr add 10.9.1.1/24 dev lab0");
                }
                tell("ip", "link set lab0 up");
                up.send(()).expect("the far end waits");
                let () = listening.recv().map_err(|error| error.to_string())?;
                near()
            })
        });
        let near = near.join().expect("the near end succeeds").expect("namespaces can be created");
        (near, far.join().expect("the far end succeeds").expect("namespaces can be created"))
    })
}

/// Runs two kernel endpoints in two namespaces; returns Gbit/s at the receiver.
pub(super) fn over_veth(mtu_bytes: usize, cpus: [usize; 2], length: Duration) -> f64 {
    let clock = Clock::new();
    let address = SocketAddr::from((Wire::FAR, SINK));
    let near = || {
        pin_thread(cpus[1]).map_err(|error| error.to_string())?;
        Ok(send(&connect(address), clock, length))
    };
    let far = |listens: &dyn Fn()| {
        pin_thread(cpus[0]).map_err(|error| error.to_string())?;
        let listener = TcpListener::bind(address).map_err(|error| error.to_string())?;
        listens();
        let (socket, _) = listener.accept().map_err(|error| error.to_string())?;
        Ok(receive(&socket, clock))
    };
    over_wire(Wire { mtu_bytes, near_has_address: true }, near, far).1.gbit_per_second()
}

/// Returns whether iperf3 is installed.
pub(super) fn has_iperf3() -> bool {
    Command::new("iperf3").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs the same two endpoints with iperf3, for a second.
pub(super) fn iperf3_over_veth(mtu_bytes: usize, cpus: [usize; 2]) -> f64 {
    let words = |words: String| {
        let mut command = Command::new("iperf3");
        command.args(words.split(' ').map(str::to_owned)).stdin(Stdio::null());
        command
    };
    let near = || {
        // Retry until the other end listens.
        let report = std::iter::repeat_with(|| {
            let output = words(format!("-c 10.9.1.2 -C cubic -A {} -t 1 -J", cpus[1])).output();
            let output = output.map_err(|error| error.to_string())?;
            Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
        });
        report.take(100).find_map(Result::transpose).ok_or("iperf3 does not answer")?
    };
    let far = |listens: &dyn Fn()| {
        let mut server = words(format!("-s -1 -B 10.9.1.2 -A {}", cpus[0]));
        let mut server = server.stdout(Stdio::null()).spawn().map_err(|error| error.to_string())?;
        listens();
        server.wait().map_err(|error| error.to_string())
    };
    let (report, _) = over_wire(Wire { mtu_bytes, near_has_address: true }, near, far);
    received(&report).expect("iperf3 says what was received")
}

/// Returns Gbit/s at the receiver, from a report of iperf3 in JSON.
pub(crate) fn received(report: &str) -> Option<f64> {
    let (_, sum) = report.split_once("\"sum_received\"")?;
    let (_, rate) = sum.split_once("\"bits_per_second\":")?;
    Some(rate.split([',', '}']).next()?.trim().parse::<f64>().ok()? * 1e-9)
}
