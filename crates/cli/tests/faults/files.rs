//! FTAM, with faults in the server and in its clients.

use crate::memory;
use crate::place::{Place, Running, noise, until};
use crate::serving::remember;
use crate::soak::{Seen, Soak, can_trace};
use kiban_fault::Plan;
use std::path::Path;
use std::process::Command;

/// The users file. The password is "secret", hashed at Argon2's lowest cost.
const USERS: &str = "[users.eve]\nrights = \"all\"\npassword = \
    \"$argon2id$v=19$m=8,t=1,p=1$a2liYW4tdGVzdC1zYWx0IQ$bjzvKg0iHeKobd3+JhSiAulUcXRgnx05rzSFpkZNhgU\"\n";
const SIZES: [usize; 3] = [10, 30_000, 400_000];

struct Server {
    running: Running,
    port: u16,
}

impl Server {
    fn start(place: &Place, plan: Plan, at_once: bool) -> Server {
        Server::start_as(place, plan, at_once, |command| command)
    }

    /// Like `start`; `change` can modify the server's command.
    fn start_as(place: &Place, plan: Plan, at_once: bool, change: impl FnOnce(Command) -> Command) -> Server {
        let command = place.kiban(&[
            "ftam",
            "serve",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--root",
            "root",
            "--users",
            "users.toml",
        ]);
        Server { running: Running::start(change(command), plan, at_once, &[]), port: 0 }
    }

    /// Waits until the server is ready; returns false if it exited before that.
    fn is_ready(&mut self) -> bool {
        until(|| {
            let said = self.running.err();
            let address = said.lines().find_map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).ok()?;
                line["fields"]["address"].as_str()?.rsplit(':').next()?.parse().ok()
            });
            self.port = address.unwrap_or(0);
            self.port != 0 || self.running.has_ended()
        });
        !self.running.has_ended()
    }

    fn file(&self, name: &str) -> String {
        format!("ftam://eve@127.0.0.1:{}/{name}", self.port)
    }
}

fn place() -> Place {
    let place = Place::new("files");
    std::fs::create_dir(place.0.join("root")).expect("a folder");
    place.write("users.toml", USERS);
    use std::os::unix::fs::PermissionsExt;
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(place.0.join("users.toml"), private).expect("it is ours");
    for size in SIZES {
        place.write(&format!("{size}"), noise(size));
    }
    place
}

fn put(place: &Place, size: usize, to: &str) -> Command {
    place.kiban(&["ftam", "put", "-q", &size.to_string(), to])
}

fn resume(place: &Place, size: usize, to: &str) -> Command {
    place.kiban(&["ftam", "put", "-q", "--resume", &size.to_string(), to])
}

fn get(place: &Place, from: &str) -> Command {
    let _ = std::fs::remove_file(place.0.join("got"));
    place.kiban(&["ftam", "get", "-q", from, "got"])
}

fn is_whole(path: &Path, size: usize, what: &str) -> Result<(), String> {
    match std::fs::read(path) {
        Ok(bytes) if bytes == noise(size) => Ok(()),
        Ok(bytes) => Err(format!("{what}: {} bytes, which are not the {size} that were put", bytes.len())),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

/// Runs a server under a fault plan. Files that the server confirms must be on disk, both at once and after
/// the server is killed.
fn server_under(plan: Plan, at_once: bool, seen: &mut Seen) -> Result<(), String> {
    let place = place();
    let root = place.0.join("root");
    let mut server = Server::start(&place, plan, at_once);
    let (mut confirmed, mut resumable) = (Vec::new(), Vec::new());
    let outcome = || -> Result<(), String> {
        if !server.is_ready() {
            return Ok(());
        }
        server.running.traced.arm();
        for (number, size) in SIZES.into_iter().enumerate() {
            let name = format!("file{number}");
            let ended = Running::honest(put(&place, size, &server.file(&name)), &[]).ended();
            ended.judge("put")?;
            let goes_on = ended.err.contains("use --resume to continue");
            if ended.is_well() {
                is_whole(&root.join(&name), size, "a file that was confirmed")?;
                confirmed.push((name, size));
                continue;
            }
            if goes_on {
                resumable.push((name.clone(), size));
            }
            if root.join(&name).exists() {
                // The put was not confirmed, so the file must be either complete or absent.
                is_whole(&root.join(&name), size, "a file that was not confirmed")?;
            }
        }
        for (name, size) in &confirmed {
            let ended = Running::honest(get(&place, &server.file(name)), &[]).ended();
            ended.judge("get")?;
            if ended.is_well() {
                is_whole(&place.0.join("got"), *size, "a file that was got")?;
            }
        }
        server.running.traced.disarm();
        if server.running.has_ended() {
            return Ok(());
        }
        // A client without faults.
        let ended = Running::honest(put(&place, SIZES[1], &server.file("last")), &[]).ended();
        if !ended.is_well() {
            // The plan may have killed the server at a late call.
            return match matches!(plan, Plan::Kill { .. }) {
                true => Ok(()),
                false => Err(format!("the next client is not served: {:?} {}", ended.end, ended.err)),
            };
        }
        confirmed.push(("last".into(), SIZES[1]));
        // Data from an interrupted transfer remains until the transfer is resumed.
        for (name, size) in resumable {
            let ended = Running::honest(resume(&place, size, &server.file(&name)), &[]).ended();
            // If the request that begins a transfer or the response that ends it was lost, the server may not
            // know the transfer, may have the complete file, or may have removed what it could of a failed
            // transfer.
            let answers = ["6004 activity not recognized", "activity no longer exists"];
            let is_unknown = answers.iter().any(|answer| ended.err.contains(answer));
            let ended = match is_unknown {
                true => Running::honest(put(&place, size, &server.file(&name)), &[]).ended(),
                false => ended,
            };
            if !ended.is_well() {
                return Err(format!("{name} is not gone on with: {:?} {}", ended.end, ended.err));
            }
            confirmed.push((name, size));
        }
        let left = || std::fs::read_dir(root.join(".kiban-ftam/new")).map_or(0, Iterator::count);
        // Files that could not be removed may remain; the log tells the operator how to remove them
        // (docs/ftam.md). To remove a file, the server calls openat2 for the directory, flock for the file,
        // and then unlinkat.
        let was_kept =
            |note: &String| ["unlinkat", "openat2", "flock"].iter().any(|call| note.contains(call));
        let was_kept = server.running.traced.notes().iter().any(was_kept);
        match was_kept || until(|| left() == 0) {
            true => Ok(()),
            false => Err(format!("{} files were left behind", left())),
        }
    };
    let outcome = outcome();
    remember(&server.running, seen);
    outcome.map_err(|why: String| format!("{why}\n  server: {}", server.running.err()))?;
    // Kill the server. This resembles a power failure, except that data in the kernel's page cache survives.
    server.running.signal(if seen.calls.is_multiple_of(2) { "-KILL" } else { "-TERM" });
    let ended = server.running.ended();
    ended.judge("the server")?;
    let mut again = Server::start(&place, Plan::Watch, false);
    if !again.is_ready() {
        return Err(format!("the server does not begin again: {}", again.running.err()));
    }
    for (name, size) in &confirmed {
        is_whole(&root.join(name), *size, "a file that was confirmed, after the server's end")?;
        let ended = Running::honest(get(&place, &again.file(name)), &[]).ended();
        if !ended.is_well() {
            return Err(format!("{name} is not served again: {:?} {}", ended.end, ended.err));
        }
        is_whole(&place.0.join("got"), *size, "a file that was got later")?;
    }
    Ok(())
}

#[test]
fn what_a_filestore_confirms_is_whole_whichever_call_of_it_fails() {
    if can_trace() {
        Soak::new("ftam").run(|plan, seed, seen| server_under(plan, seed.is_multiple_of(3), seen));
    }
}

#[test]
fn a_client_of_a_filestore_that_fails_or_dies_at_any_call_harms_neither_side() {
    if !can_trace() {
        return;
    }
    let place = place();
    let mut server = Server::start(&place, Plan::Watch, false);
    assert!(server.is_ready(), "{}", server.running.err());
    let kept = place.0.join("root/kept");
    for _ in 0..2 {
        let ended = Running::honest(put(&place, SIZES[2], &server.file("kept")), &[]).ended();
        assert!(ended.is_well(), "{}", ended.err);
    }
    // The server starts its own threads when the first clients connect.
    let before = server.running.descriptors();
    Soak::new("ftam client").run(|plan, seed, seen| {
        let gets = seed.is_multiple_of(2);
        let command = match gets {
            true => get(&place, &server.file("kept")),
            false => put(&place, SIZES[1], &server.file("new")),
        };
        let mut client = Running::start(command, plan, true, &[]);
        let ended = client.ended();
        remember(&client, seen);
        ended.judge("the client")?;
        let got = place.0.join("got");
        match (gets, ended.is_well()) {
            (true, true) => is_whole(&got, SIZES[2], "a file that was got")?,
            (true, false) if got.exists() => is_whole(&got, SIZES[2], "a file in place that was not got")?,
            (true, false) => {}
            (false, true) => is_whole(&place.0.join("root/new"), SIZES[1], "a file that was confirmed")?,
            (false, false) => {}
        }
        is_whole(&kept, SIZES[2], "a file of before")?;
        if server.running.has_ended() {
            return Err(format!("the server has ended: {}", server.running.err()));
        }
        if !until(|| server.running.descriptors() <= before) {
            let now = server.running.listed();
            return Err(format!("descriptors leak: {before} became more: {now}"));
        }
        let left = || std::fs::read_dir(place.0.join("root/.kiban-ftam/new")).map_or(0, Iterator::count);
        if !until(|| left() == 0) {
            return Err(format!("{} files are left behind", left()));
        }
        let _ = std::fs::remove_file(place.0.join("root/new"));
        Ok(())
    });
}

#[test]
fn what_a_filestore_confirms_is_whole_whichever_allocation_of_it_fails() {
    if !can_trace() {
        return;
    }
    memory::each_in_parallel("filestore", 1, |allocations| {
        let (place, size) = (place(), SIZES[1]);
        let refuse = |command| allocations.of(command);
        let mut server = Server::start_as(&place, Plan::Watch, false, refuse);
        let mut is_confirmed = false;
        if server.is_ready() {
            let ended = Running::honest(put(&place, size, &server.file("file")), &[]).ended();
            ended.judge("put")?;
            is_confirmed = ended.is_well();
            server.running.signal("-KILL");
        }
        if allocations.all_succeed() && !is_confirmed {
            return Err(format!("nothing was put: {}", server.running.err()));
        }
        server.running.ended().judge("the server")?;
        let mut again = Server::start(&place, Plan::Watch, false);
        if !again.is_ready() {
            return Err(format!("the server does not start again: {}", again.running.err()));
        }
        if is_confirmed {
            is_whole(&place.0.join("root/file"), size, "a file that was confirmed")?;
        }
        let next = Running::honest(put(&place, size, &again.file("next")), &[]).ended();
        match next.is_well() {
            true => Ok(()),
            false => Err(format!("the next client is not served: {}", next.err)),
        }
    });
}
