//! The kernel's side: a server with one thread for each CPU of two, as a board of two shards has.
//!
//! Each thread has a listener of its own on each port (SO_REUSEPORT), so the kernel distributes the
//! connections by a hash, and waits with epoll. Connections are served as by the board's services echo,
//! discard and source.

use rustix::event::epoll;
use rustix::net;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// The ports of the services.
pub(super) const ECHO: u16 = 7;
pub(super) const DISCARD: u16 = 9;
pub(super) const SOURCE: u16 = 19;

const THREADS: usize = 2;
const BUFFER_BYTES: usize = 256 << 10;
const BACKLOG: i32 = 4096;

/// Serves until the standard input ends.
pub(super) fn run(address: IpAddr) {
    let listeners: Vec<Vec<(u16, TcpListener)>> = (0..THREADS)
        .map(|_| [ECHO, DISCARD, SOURCE].map(|port| (port, listen(SocketAddr::new(address, port)))).into())
        .collect();
    for listeners in listeners {
        std::thread::spawn(move || serve(&listeners).expect("epoll works"));
    }
    println!("ready");
    wait_for_end();
}

/// Waits until the standard input ends.
pub(super) fn wait_for_end() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

fn listen(address: SocketAddr) -> TcpListener {
    let flags = net::SocketFlags::NONBLOCK | net::SocketFlags::CLOEXEC;
    let listen = || -> rustix::io::Result<OwnedFd> {
        let socket = net::socket_with(net::AddressFamily::INET, net::SocketType::STREAM, flags, None)?;
        net::sockopt::set_socket_reuseport(&socket, true)?;
        net::bind(&socket, &address)?;
        net::listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    listen().expect("the port is free").into()
}

fn serve(listeners: &[(u16, TcpListener)]) -> std::io::Result<()> {
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let (mut streams, mut next) = (HashMap::new(), listeners.len() as u64);
    for (number, (_, listener)) in (0..).zip(listeners) {
        epoll::add(&queue, listener, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    }
    let mut buffer = vec![5; BUFFER_BYTES];
    let mut events = Vec::with_capacity(256);
    loop {
        events.clear();
        epoll::wait(&queue, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            let number = event.data.u64();
            if let Some((port, listener)) = listeners.get(number as usize) {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    let wanted = if *port == SOURCE { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
                    epoll::add(&queue, &stream, epoll::EventData::new_u64(next), wanted)?;
                    streams.insert(next, (*port, stream));
                    next += 1;
                }
            } else if let Some((port, stream)) = streams.get_mut(&number)
                && !is_open(*port, stream, &mut buffer)
            {
                // Closing a descriptor removes it from the queue.
                streams.remove(&number);
            }
        }
    }
}

/// Serves a stream that is ready; returns whether it remains open.
fn is_open(port: u16, stream: &mut TcpStream, buffer: &mut [u8]) -> bool {
    let moved = match port {
        SOURCE => stream.write(buffer),
        DISCARD => stream.read(buffer),
        // A client waits for each echo, so there is room for it.
        _ => stream.read(buffer).and_then(|count| {
            stream.write_all(&buffer[..count])?;
            Ok(count)
        }),
    };
    match moved {
        Ok(count) => count > 0,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}
