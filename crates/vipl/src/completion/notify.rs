//! Callbacks for completions (VipSendNotify, VipRecvNotify, VipCQNotify).
//!
//! How       a queue with pending callbacks has a thread that waits for completions as a program would. For
//!           each completion, the thread calls the first pending callback. It ends when no callback is left.
//!           Callbacks may make any call.
//! Closing   `VipCloseNic` ends these waits. It returns when no callback is running, except one that called
//!           it.
//! Limits    at most `LINE_MAX` pending callbacks per queue (`objects/callbacks.rs`).

use crate::abi::{VIP_CQ_CALLBACK, VIP_RETURN, VIP_VI_CALLBACK};
use crate::border::Answer;
use crate::completion::queue;
use crate::objects::callbacks::{Callback, Context};
use crate::objects::members::{Direction, Queue, Vi};
use crate::work;
use std::sync::Arc;
use std::time::Duration;

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
    if !line.push(context, Callback::Work(callback))? {
        return Ok(());
    }
    let (its_line, its_vi) = (line.clone(), vi.clone());
    let started = vi.nic.callbacks.start(move || {
        its_line.serve(|context, callback| {
            let (descriptor, _) = work::wait(&its_vi, direction, Duration::MAX)?;
            if let Callback::Work(callback) = callback {
                // SAFETY: the program passed a function of this type to VipSendNotify or VipRecvNotify
                // (vipl.h).
                unsafe { callback(context.0, its_vi.nic.handle(), its_vi.handle(), descriptor) };
            }
            Ok(())
        });
    });
    started.inspect_err(|_| line.give_up())
}

pub(crate) fn on_entry(queue: &Arc<Queue>, context: Context, callback: VIP_CQ_CALLBACK) -> Answer {
    let line = queue.line.clone();
    if !line.push(context, Callback::Entry(callback))? {
        return Ok(());
    }
    let (its_line, its_queue) = (line.clone(), queue.clone());
    let started = queue.nic.callbacks.start(move || {
        its_line.serve(|context, callback| {
            let (vi, receives) = queue::wait(&its_queue, Duration::MAX)?;
            if let Callback::Entry(callback) = callback {
                // SAFETY: the program passed a function of this type to VipCQNotify (vipl.h).
                unsafe { callback(context.0, its_queue.nic.handle(), vi, receives) };
            }
            Ok(())
        });
    });
    started.inspect_err(|_| line.give_up())
}
