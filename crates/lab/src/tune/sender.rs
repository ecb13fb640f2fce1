//! The sender, and the receiving process that it starts.

use super::plan::Cell;
use super::receiver::{ENDPOINT, End, PATIENCE, Received};
use super::report::Measured;
use kiban_os::clock::{Clock, pin_thread, thread_cpu_nanos};
use kiban_vi::{RequestError, Work};
use kiban_vi_runtime::{Address, HostAddress};
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The receiving process. It is ended with this value.
pub(super) struct Remote {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Remote {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the sender measured.
struct Sent {
    nanos: u64,
    cpu_nanos: u64,
}

impl Remote {
    pub(super) fn start(mut command: Command) -> Result<Remote, String> {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| format!("cannot start the receiver: {error}"))?;
        let input = child.stdin.take().expect("it is a pipe");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Ok(Remote { child, input, output })
    }

    fn read<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| error.to_string())?;
        serde_json::from_str(&line).map_err(|_| "the receiving process has ended".to_owned())
    }

    pub(super) fn measure(&mut self, cell: &Cell, cpus: &[usize]) -> Result<Measured, String> {
        let line = serde_json::to_string(cell).map_err(|error| error.to_string())?;
        writeln!(self.input, "{line}")
            .map_err(|error| format!("the receiving process has ended: {error}"))?;
        let address: String = self.read()?;
        let host: HostAddress = address.parse().map_err(|_| format!("not an address: {address}"))?;
        // A thread of its own, because pinning it must not pin the rest of the program.
        let sent = std::thread::scope(|threads| {
            let sending = threads.spawn(|| {
                if let Some(&cpu) = cpus.get(1) {
                    let _ = pin_thread(cpu);
                }
                send(cell, host)
            });
            sending.join().map_err(|_| "the sender panicked".to_owned())?
        })?;
        let received: Received = self.read()?;
        Ok(Measured::of(cell, sent.nanos, sent.cpu_nanos, &received))
    }
}

fn send(cell: &Cell, host: HostAddress) -> Result<Sent, String> {
    let end = End::open(cell)?;
    let to = Address { host, discriminator: ENDPOINT.to_vec() };
    end.nic.connect(end.vi, b"", &to, PATIENCE).map_err(|error| error.to_string())?;
    let clock = Clock::new();
    let (start, mut cpu_nanos, mut outstanding) = (clock.now(), 0, 0u64);
    for number in 0..cell.messages {
        let due = start + cell.due(number);
        while clock.now() < due {
            std::hint::spin_loop();
        }
        let before = thread_cpu_nanos();
        let slot = end.slot(number);
        while let Err(error) = end.nic.post_send(end.vi, Work::send(number, &slot)) {
            if error != RequestError::TooMany {
                return Err(error.to_string());
            }
            end.nic.send_wait(end.vi, PATIENCE).map_err(|error| error.to_string())?;
            outstanding -= 1;
        }
        outstanding += 1;
        while let Ok(Some(_)) = end.nic.send_done(end.vi) {
            outstanding -= 1;
        }
        cpu_nanos += thread_cpu_nanos() - before;
    }
    let nanos = clock.now().since(start).as_nanos() as u64;
    for _ in 0..outstanding {
        end.nic.send_wait(end.vi, PATIENCE).map_err(|error| error.to_string())?;
    }
    end.nic.disconnect(end.vi).map_err(|error| error.to_string())?;
    Ok(Sent { nanos, cpu_nanos })
}
