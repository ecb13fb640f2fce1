//! Callbacks: lines of those who want to be called, and the threads that call them.
//!
//! How       a queue whose line is not empty has a thread that waits for the queue as a program would, calls the first in
//!           line, and ends when nobody is left. Callbacks may make any call.
//! End       `VipCloseNic` ends the waits and returns when no callback runs any more, but for the one it is called from.
//! Limits    a line has [`LINE_MAX`] places.

use crate::abi::{VIP_CQ_CALLBACK, VIP_DESCRIPTOR, VIP_PVOID, VIP_RETURN, VIP_VI_CALLBACK};
use crate::border::{Answer, locked};
use crate::errors::Handler;
use crate::nic::Nic;
use crate::queue::{self, Queue};
use crate::vi::Vi;
use crate::work::{self, Direction};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Callbacks that wait for one queue at most.
const LINE_MAX: usize = 1024;

/// A pointer of the program's that is handed back to it, and never followed.
#[derive(Clone, Copy)]
pub(crate) struct Context(pub(crate) VIP_PVOID);

// SAFETY: it is a value to us; what it points to is between the program and its callback, on whatever thread.
unsafe impl Send for Context {}

#[derive(Clone, Copy)]
enum Callback {
    Work(VIP_VI_CALLBACK),
    Entry(VIP_CQ_CALLBACK),
}

/// Who wants to be called for one queue, in order.
#[derive(Default)]
pub(crate) struct Line(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    calls: VecDeque<(Context, Callback)>,
    /// A thread serves this line.
    served: bool,
}

impl Line {
    /// Stands in line. True: the line needs a thread.
    fn stand(&self, context: Context, callback: Callback) -> Answer<bool> {
        let mut waiting = locked(&self.0);
        if waiting.calls.len() >= LINE_MAX {
            return Err(VIP_RETURN::ERROR_RESOURCE);
        }
        waiting.calls.push_back((context, callback));
        Ok(!core::mem::replace(&mut waiting.served, true))
    }

    /// Serves the line until nobody is left, or `serve` fails: then nothing will come any more.
    fn serve(&self, mut serve: impl FnMut(Context, Callback) -> Answer) {
        loop {
            let next = {
                let mut waiting = locked(&self.0);
                let next = waiting.calls.pop_front();
                waiting.served = next.is_some();
                next
            };
            let Some((context, callback)) = next else { return };
            if serve(context, callback).is_err() {
                let mut waiting = locked(&self.0);
                waiting.calls.clear();
                waiting.served = false;
                return;
            }
        }
    }

    /// There is no thread for this line: whoever stands in it is sent away.
    fn give_up(&self) {
        *locked(&self.0) = Waiting::default();
    }
}

/// The callbacks of a NIC.
#[derive(Default)]
pub(crate) struct Callbacks {
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) errors: Mutex<Handler>,
}

impl Callbacks {
    /// Starts a thread that may call the program.
    pub(crate) fn start(&self, work: impl FnOnce() + Send + 'static) -> Answer {
        let thread = std::thread::Builder::new().name("vipl-callback".into()).spawn(work);
        let thread = thread.map_err(|_| VIP_RETURN::ERROR_RESOURCE)?;
        let mut threads = locked(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Waits until no callback runs any more, but for the one that this is called from.
    pub(crate) fn end(&self) {
        let threads = core::mem::take(&mut *locked(&self.threads));
        for thread in threads {
            if thread.thread().id() != std::thread::current().id() {
                // A panic in it has been told; there is nothing more to say.
                let _ = thread.join();
            }
        }
    }

    /// An answer found no memory to be written to.
    pub(crate) fn completion_had_no_memory(
        &self,
        nic: &Nic,
        descriptor: *mut VIP_DESCRIPTOR,
        operation: u32,
    ) {
        crate::errors::completion_had_no_memory(nic, Context(descriptor.cast()), operation);
    }
}

pub(crate) fn on_work(
    vi: &Arc<Vi>,
    direction: Direction,
    context: Context,
    callback: VIP_VI_CALLBACK,
) -> Answer {
    if vi.reports(direction) {
        return Err(VIP_RETURN::INVALID_PARAMETER);
    }
    let line = vi.lines[direction as usize].clone();
    if !line.stand(context, Callback::Work(callback))? {
        return Ok(());
    }
    let (its_line, its_vi) = (line.clone(), vi.clone());
    let started = vi.nic.callbacks.start(move || {
        its_line.serve(|context, callback| {
            let (descriptor, _) = work::wait(&its_vi, direction, Duration::MAX)?;
            if let Callback::Work(callback) = callback {
                // SAFETY: the program gave us a function of this type to be called like this (vipl.h).
                unsafe { callback(context.0, its_vi.nic.handle(), its_vi.handle(), descriptor) };
            }
            Ok(())
        });
    });
    started.inspect_err(|_| line.give_up())
}

pub(crate) fn on_entry(queue: &Arc<Queue>, context: Context, callback: VIP_CQ_CALLBACK) -> Answer {
    let line = queue.line.clone();
    if !line.stand(context, Callback::Entry(callback))? {
        return Ok(());
    }
    let (its_line, its_queue) = (line.clone(), queue.clone());
    let started = queue.nic.callbacks.start(move || {
        its_line.serve(|context, callback| {
            let (vi, receives) = queue::wait(&its_queue, Duration::MAX)?;
            if let Callback::Entry(callback) = callback {
                // SAFETY: the program gave us a function of this type to be called like this (vipl.h).
                unsafe { callback(context.0, its_queue.nic.handle(), vi, receives) };
            }
            Ok(())
        });
    });
    started.inspect_err(|_| line.give_up())
}
