//! Completion queues.

use crate::abi::{VIP_BOOLEAN, VIP_PVOID, VIP_RETURN, VIP_ULONG};
use crate::border::Answer;
use crate::handles::{self, Object};
use crate::objects::members::Queue;
use crate::objects::nic::{Kind, Nic};
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of entries in a queue.
pub(crate) const ENTRIES_MAX: usize = 1 << 20;

fn entries(count: VIP_ULONG) -> Answer<usize> {
    match usize::try_from(count) {
        Ok(0) => Err(VIP_RETURN::INVALID_PARAMETER),
        Ok(count) if count <= ENTRIES_MAX => Ok(count),
        _ => Err(VIP_RETURN::ERROR_RESOURCE),
    }
}

pub(crate) fn create(nic: &Arc<Nic>, count: VIP_ULONG) -> Answer<VIP_PVOID> {
    let count = entries(count)?;
    let number = nic.core.create_queue(count)?;
    let queue = Queue { nic: nic.clone(), number, line: Arc::default() };
    match handles::adopt(nic, Kind::Queue, number, Object::Queue(Arc::new(queue))) {
        Ok(handle) => Ok(handle.as_pointer()),
        Err(code) => {
            nic.core.destroy_queue(number)?;
            Err(code)
        }
    }
}

pub(crate) fn destroy(queue: &Queue) -> Answer {
    queue.nic.core.destroy_queue(queue.number)?;
    handles::disown(&queue.nic, Kind::Queue, queue.number);
    Ok(())
}

pub(crate) fn resize(queue: &Queue, count: VIP_ULONG) -> Answer {
    let count = entries(count)?;
    Ok(queue.nic.core.resize_queue(queue.number, count)?)
}

/// A VI, and whether the completed descriptor is on its receive queue.
pub(crate) type Entry = (VIP_PVOID, VIP_BOOLEAN);

/// Converts an entry for the program; `None` if its VI has been destroyed.
fn to_c(queue: &Queue, (vi, receives): (u32, bool)) -> Option<Entry> {
    let handle = queue.nic.handle_of(Kind::Vi, vi);
    (!handle.is_null()).then_some((handle, VIP_BOOLEAN::from(receives)))
}

/// Returns the oldest entry, if there is one.
pub(crate) fn done(queue: &Queue) -> Answer<Option<Entry>> {
    while let Some(entry) = queue.nic.core.queue_done(queue.number)? {
        if let entry @ Some(_) = to_c(queue, entry) {
            return Ok(entry);
        }
    }
    Ok(None)
}

/// Returns the oldest entry, waiting for at most the timeout.
pub(crate) fn wait(queue: &Queue, timeout: Duration) -> Answer<Entry> {
    let core = &queue.nic.core;
    let deadline = (timeout != Duration::MAX).then(|| core.now() + timeout);
    loop {
        let rest = deadline.map_or(Duration::MAX, |deadline| deadline.since(core.now()));
        if let Some(entry) = to_c(queue, core.queue_wait(queue.number, rest)?) {
            return Ok(entry);
        }
    }
}
