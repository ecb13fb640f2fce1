//! The kernel's side: plain loops over a socket.

use super::{BUFFER_BYTES, Taken, in_a_namespace};
use kiban_real::Clock;
use kiban_real::clock::{pin_thread, thread_number};
use kiban_real::measure::Settings;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

/// Machines differ in what they choose by themselves.
fn settings() -> Settings {
    Settings { congestion: Some("cubic".into()), ..Settings::default() }
}

pub(super) fn connect(to: SocketAddr) -> TcpStream {
    settings().connect(to, Duration::from_secs(5)).expect("whoever is behind the device listens")
}

/// Writes for so long, then says that it is done and waits for the other end.
pub(super) fn send(mut socket: &TcpStream, clock: Clock, length: Duration) -> Taken {
    let buffer = crate::noise(1, BUFFER_BYTES);
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

/// Reads to the end.
pub(super) fn receive(mut socket: &TcpStream, clock: Clock) -> Taken {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut taken = Taken::default();
    while let count @ 1.. = socket.read(&mut buffer).expect("the peer sends") {
        taken.take(count, clock.now());
    }
    taken
}

/// Two kernel endpoints in two namespaces: Gbit/s at the receiver.
pub(super) fn over_veth(mtu_bytes: usize, cpus: [usize; 2], length: Duration) -> f64 {
    let clock = Clock::new();
    let ip = |words: &str| {
        let done = Command::new("ip").args(words.split(' ')).status().expect("iproute2 is installed");
        assert!(done.success(), "ip {words}");
    };
    let (there, told) = mpsc::channel();
    let (listens, heard) = mpsc::channel();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            in_a_namespace(move || {
                there.send(thread_number()).expect("the sender waits");
                let address: SocketAddr = heard.recv().map_err(|error| error.to_string())?;
                ip("addr add 10.9.1.2/24 dev lab1");
                ip("link set lab1 up");
                pin_thread(cpus[0]).map_err(|error| error.to_string())?;
                let listener = TcpListener::bind(address).map_err(|error| error.to_string())?;
                let (socket, _) = listener.accept().map_err(|error| error.to_string())?;
                Ok(receive(&socket, clock))
            })
        });
        let sender = scope.spawn(move || {
            in_a_namespace(move || {
                let thread = told.recv().map_err(|error| error.to_string())?;
                ip("link add lab0 type veth peer name lab1");
                ip(&format!("link set lab0 mtu {mtu_bytes}"));
                ip(&format!("link set lab1 mtu {mtu_bytes}"));
                ip(&format!("link set lab1 netns {thread}"));
                ip("addr add 10.9.1.1/24 dev lab0");
                ip("link set lab0 up");
                let address = SocketAddr::from(([10, 9, 1, 2], 9));
                listens.send(address).map_err(|error| error.to_string())?;
                pin_thread(cpus[1]).map_err(|error| error.to_string())?;
                // Until the other end is up and listens.
                let socket = loop {
                    match settings().connect(address, Duration::from_secs(5)) {
                        Ok(socket) => break socket,
                        Err(_) => std::thread::yield_now(),
                    }
                };
                Ok(send(&socket, clock, length))
            })
        });
        sender.join().expect("the sender is content").expect("namespaces can be had");
        receiver.join().expect("the receiver is content").expect("namespaces can be had").gbit_per_second()
    })
}
