//! The service thread, which all rsockets share.
//!
//! Purpose   accepts connect requests before the program calls raccept(), as a listening TCP socket does, and
//!           does work that callbacks cannot do under the NIC's lock.
//! Waiting   the thread waits in poll(2) on the descriptor of its job queue, not in the NIC. A thread that
//!           waits in the NIC also drives it, and the program's threads do that.

use super::inbox::{AcceptQueue, IncomingRequest};
use super::socket::Socket;
use super::stream::Stream;
use super::wire::Connect;
use super::world::Registry;
use core::ffi::c_int;
use kiban_os::turn::with_signals_blocked;
use std::sync::{Arc, Weak};

/// Work for the service thread.
pub(super) enum Job {
    /// Accept or reject a connect request.
    Arrive(Box<IncomingRequest>),
    /// A non-blocking connect has succeeded: send the first message.
    Connected(Weak<Socket>),
    /// Drop a connection that was not accepted.
    Drop(Arc<Socket>),
}

/// Starts the thread, with all signals blocked.
pub(super) fn start(world: &'static Registry) -> Result<(), c_int> {
    let thread = std::thread::Builder::new().name("kiban-rsocket".into());
    let started = with_signals_blocked(|| thread.spawn(move || run(world)));
    started.map(drop).map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))
}

fn run(world: &'static Registry) {
    let file = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        let mut files = [file(world.jobs.number()), file(world.async_events.number())];
        // SAFETY: `files` has two elements, whose descriptors stay open as long as the process lives.
        unsafe { libc::poll(files.as_mut_ptr(), 2, -1) };
        while world.async_events.take().is_some() {}
        while let Some(job) = world.jobs.take() {
            match job {
                Job::Arrive(arrival) => arrive(world, &arrival),
                Job::Connected(socket) => {
                    if let Some(socket) = socket.upgrade() {
                        socket.look();
                    }
                }
                Job::Drop(socket) => drop(socket),
            }
        }
    }
}

fn arrive(world: &'static Registry, arrival: &IncomingRequest) {
    let accept_queue = arrival.accept_queue.upgrade();
    let made = accept_queue
        .as_ref()
        .ok_or(libc::ECONNABORTED)
        .and_then(|accept_queue| accept(world, accept_queue, arrival));
    if made.is_err() {
        // This fails if the peer has disconnected.
        let _ = world.engine.reject(arrival.request.end, &[]);
        if let Some(accept_queue) = accept_queue {
            accept_queue.on_lost();
        }
    }
}

fn accept(
    world: &'static Registry,
    accept_queue: &Arc<AcceptQueue>,
    arrival: &IncomingRequest,
) -> Result<(), c_int> {
    let request = &arrival.request;
    let peer = Connect::read(&request.private_data).ok_or(libc::EPROTO)?;
    let listening = accept_queue.listening.upgrade().ok_or(libc::ECONNABORTED)?;
    let inbox = &arrival.inbox;
    let address = request.local.ip().to_canonical();
    let sizes = listening.sizes();
    let mut stream =
        Stream::new(world.engine, address, sizes, inbox.channel.clone(), world.async_events.clone())?;
    stream.on_connect_data(&peer);
    stream.end = Some(request.end);
    let (connect_data, qp) = (stream.connect_data(), stream.qp);
    let socket = Socket::accepted(
        world,
        accept_queue.family,
        inbox,
        stream,
        (request.local, arrival.peer),
        &listening,
    );
    inbox.expect_at(accept_queue.clone(), Arc::new(socket));
    world.engine.accept(request.end, qp, request.depths, &connect_data).map_err(|_| {
        inbox.give_up();
        libc::ECONNABORTED
    })
}
