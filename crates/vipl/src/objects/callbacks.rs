//! Queues of pending callbacks, and the threads that call them.

use crate::abi::{VIP_CQ_CALLBACK, VIP_ERROR_HANDLER, VIP_PVOID, VIP_RETURN, VIP_VI_CALLBACK};
use crate::border::Answer;
use kiban_os::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread::JoinHandle;

/// The largest number of pending callbacks per queue.
const LINE_MAX: usize = 1024;

/// A program's pointer that is only passed back to the program and never dereferenced.
#[derive(Clone, Copy)]
pub(crate) struct Context(pub(crate) VIP_PVOID);

// SAFETY: the pointer is never dereferenced here; the program makes sure that its callback may use it on
// another thread (vipl.h).
unsafe impl Send for Context {}

/// A callback function of the program.
#[derive(Clone, Copy)]
pub(crate) enum Callback {
    Work(VIP_VI_CALLBACK),
    Entry(VIP_CQ_CALLBACK),
}

/// The callbacks to be called for one queue, in order.
#[derive(Default)]
pub(crate) struct Line(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    calls: VecDeque<(Context, Callback)>,
    /// A thread serves this queue.
    served: bool,
}

impl Line {
    /// Adds a callback. Returns true if a thread must be started.
    pub(crate) fn push(&self, context: Context, callback: Callback) -> Answer<bool> {
        let mut waiting = lock(&self.0);
        if waiting.calls.len() >= LINE_MAX {
            return Err(VIP_RETURN::ERROR_RESOURCE);
        }
        waiting.calls.push_back((context, callback));
        Ok(!core::mem::replace(&mut waiting.served, true))
    }

    /// Serves callbacks until none is left or `serve` fails, which means that there will be no more
    /// completions.
    pub(crate) fn serve(&self, mut serve: impl FnMut(Context, Callback) -> Answer) {
        loop {
            let next = {
                let mut waiting = lock(&self.0);
                let next = waiting.calls.pop_front();
                waiting.served = next.is_some();
                next
            };
            let Some((context, callback)) = next else { return };
            if serve(context, callback).is_err() {
                let mut waiting = lock(&self.0);
                waiting.calls.clear();
                waiting.served = false;
                return;
            }
        }
    }

    /// Drops all callbacks, because there is no thread to call them.
    pub(crate) fn give_up(&self) {
        *lock(&self.0) = Waiting::default();
    }
}

/// The callbacks of a NIC.
#[derive(Default)]
pub(crate) struct Callbacks {
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) errors: Mutex<Handler>,
}

impl Callbacks {
    /// Starts a thread that may call functions of the program.
    pub(crate) fn start(&self, work: impl FnOnce() + Send + 'static) -> Answer {
        let thread = std::thread::Builder::new().name("vipl-callback".into()).spawn(work);
        let thread = thread.map_err(|_| VIP_RETURN::ERROR_RESOURCE)?;
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Waits until no callback is running except one that calls this function.
    pub(crate) fn end(&self) {
        let threads = core::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            if thread.thread().id() != std::thread::current().id() {
                // A panic in the thread has already been reported.
                let _ = thread.join();
            }
        }
    }
}

/// The program's handler for asynchronous errors.
#[derive(Default)]
pub(crate) struct Handler {
    pub(crate) callback: Option<(Context, VIP_ERROR_HANDLER)>,
    /// A thread waits for events.
    pub(crate) listening: bool,
}
