//! A thread that does for sockets what nobody waits for.
//!
//! Goal      a request is answered before the program calls raccept(), as by a listening TCP socket; work
//!           that cannot be done under the NIC's lock is done by this thread.
//! Sleeps    on the file of its jobs, not in the NIC: a thread that waits there drives the NIC, which is for
//!           the program.

use super::inbox::{AcceptQueue, IncomingRequest};
use super::socket::Socket;
use super::stream::Stream;
use super::wire::Connect;
use super::world::Registry;
use core::ffi::c_int;
use std::sync::{Arc, Weak};

/// Work for the service thread.
pub(super) enum Job {
    /// Answer a request.
    Arrive(Box<IncomingRequest>),
    /// A connection that a program began, and does not wait for, stands.
    Greet(Weak<Socket>),
    /// Drop a connection that is not wanted.
    Drop(Arc<Socket>),
}

/// Starts it. Signals are for the program's own threads.
pub(super) fn start(world: &'static Registry) -> Result<(), c_int> {
    // SAFETY: all-zero signal sets are valid, and sigfillset(3) writes only to the local variable.
    let (all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe {
        let mut set = core::mem::zeroed();
        libc::sigfillset(&mut set);
        (set, core::mem::zeroed())
    };
    // SAFETY: `all` and `before` are local signal sets.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) };
    let started = std::thread::Builder::new().name("kiban-rsocket".into()).spawn(move || run(world));
    // SAFETY: `before` is the mask that pthread_sigmask(3) returned above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut()) };
    started.map(drop).map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))
}

fn run(world: &'static Registry) {
    let file = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        let mut files = [file(world.jobs.number()), file(world.happenings.number())];
        // SAFETY: `files` has two elements, whose descriptors stay open as long as the process lives.
        unsafe { libc::poll(files.as_mut_ptr(), 2, -1) };
        while world.happenings.take().is_some() {}
        while let Some(job) = world.jobs.take() {
            match job {
                Job::Arrive(arrival) => arrive(world, &arrival),
                Job::Greet(socket) => {
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
    let door = arrival.door.upgrade();
    let made = door.as_ref().ok_or(libc::ECONNABORTED).and_then(|door| accept(world, door, arrival));
    if made.is_err() {
        // A request that has gone needs no answer.
        let _ = world.engine.reject(arrival.asked.end, &[]);
        if let Some(door) = door {
            door.on_lost();
        }
    }
}

fn accept(world: &'static Registry, door: &Arc<AcceptQueue>, arrival: &IncomingRequest) -> Result<(), c_int> {
    let asked = &arrival.asked;
    let peer = Connect::read(&asked.private_data).ok_or(libc::EPROTO)?;
    let listening = door.listening.upgrade().ok_or(libc::ECONNABORTED)?;
    let inbox = &arrival.inbox;
    let address = asked.local.ip().to_canonical();
    let sizes = listening.sizes();
    let mut stream =
        Stream::new(world.engine, address, sizes, inbox.channel.clone(), world.happenings.clone())?;
    stream.on_connect_data(&peer);
    stream.end = Some(asked.end);
    let (introduction, qp) = (stream.connect_data(), stream.qp);
    let socket = Socket::accepted(world, door.family, inbox, stream, (asked.local, arrival.peer), &listening);
    inbox.expect_at(door.clone(), Arc::new(socket));
    world.engine.accept(asked.end, qp, asked.depths, &introduction).map_err(|_| {
        inbox.give_up();
        libc::ECONNABORTED
    })
}
