//! A trial of several connections at once: one is measured as in any other trial, the others run beside it.
//!
//! Sessions  each connection has a session of its own with the server, so that all have the same limits and
//!           the same evidence.
//! Evidence  that of the measured connection, and what each of the others carried.

use super::evidence::{Beside, Carried, Evidence};
use super::run::run;
use super::setup::Setup;
use super::task::{Done, Task};
use crate::engine::Failure;
use crate::remote::client::Client;
use std::thread;

/// Runs one trial, with a client for each connection besides the measured one: first those in its direction,
/// then those in the opposite one.
///
/// # Errors
/// Returns [`Failure`] if any of the connections fails.
pub(in crate::net) fn run_together(task: Task<'_>, others: &mut [Client]) -> Done {
    if others.is_empty() {
        return run(task);
    }
    let Task { path, setup, clock, .. } = task;
    let same = setup.connections as usize - 1;
    let reversed = Setup { pattern: setup.pattern.reversed(), ..setup.clone() };
    let (measured, carried) = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, client) in others.iter_mut().enumerate() {
            let setup = if number < same { setup } else { &reversed };
            let task = Task { client, path, setup, clock, captured: false };
            let thread = thread::Builder::new().spawn_scoped(scope, move || run(task));
            threads.push(thread.map_err(|error| {
                Failure::Impossible(format!("this host cannot start {} threads: {error}", number + 1))
            }));
        }
        let measured = run(task);
        let carried = |thread: Result<thread::ScopedJoinHandle<'_, Done>, Failure>| {
            let (evidence, _) = thread?.join().expect("a trial does not panic")?;
            Ok(evidence.carried())
        };
        (measured, threads.into_iter().map(carried).collect::<Result<Vec<Carried>, Failure>>())
    });
    let (evidence, packets) = measured?;
    let mut carried = carried?;
    let opposite = carried.split_off(same);
    Ok((Evidence { beside: Some(Beside { same: carried, opposite }), ..evidence }, packets))
}
