//! The servers on the host: iperf3, and one that echoes bytes.

use crate::rdma::{free_port, wait_for_listener};
use kiban_os::Clock;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Waits until a condition holds. Returns false if it does not in time.
pub(super) fn wait_until(timeout: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let clock = Clock::new();
    let end = clock.now() + timeout;
    while clock.now() < end {
        if holds() {
            return true;
        }
        kiban_measure::pause::pace(Duration::from_millis(5));
    }
    false
}

/// The servers of a sample: iperf3, and one that echoes bytes.
pub(super) struct Server {
    iperf3: Child,
    pub(super) iperf3_port: u16,
    pub(super) echo: SocketAddr,
}

impl Server {
    /// Starts servers at an address of the host.
    pub(super) fn start(address: &str) -> Option<Server> {
        let listener = TcpListener::bind((address, 0)).ok()?;
        let echo = listener.local_addr().ok()?;
        // It ends with the process, as its connections do with their peers.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || echo_bytes(stream));
            }
        });
        let iperf3_port = free_port();
        let iperf3 = Command::new("iperf3")
            .args(["-s", "-B", address, "-p", &iperf3_port])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let server = Server { iperf3, iperf3_port: iperf3_port.parse().ok()?, echo };
        wait_for_listener(&iperf3_port);
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.iperf3.kill();
        let _ = self.iperf3.wait();
    }
}

fn echo_bytes(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut byte = [0];
    while let Ok(1) = stream.read(&mut byte) {
        if stream.write_all(&byte).is_err() {
            break;
        }
    }
}
