//! DNS: requests of the guest to port 53 of the board go to this host's name servers.
//!
//! Order     the first server answers. A server is overdue if it has not answered a request for
//!           [`PATIENCE`], or its host has refused one. Then requests also go to the next server, and so on;
//!           the guest takes the first answer. A server is no longer overdue once it answers.
//! Refusals  if a server's host refuses a request, the guest learns this, so that it repeats the request at
//!           once; unless another server has the request, too.
//! TCP       connects to the servers in the same order, overdue ones last, until one accepts
//!           (`connections`).
//! Changes   new lists of servers may arrive on a socket; the board cannot read them itself, because its
//!           sandbox hides files that replace others.

use kiban_base::Instant;
use kiban_link::{EpollSet, Interest};
use kiban_os::unix::inherited_file;
use rustix::net::RecvFlags;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The port of the name service.
pub(super) const DOMAIN: u16 = 53;
/// How long a server may take. Resolvers repeat a request after five seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// More than any list of name servers that libc uses.
const LIST_BYTES_MAX: usize = 1024;

struct Server {
    address: SocketAddr,
    /// When it becomes overdue; `None` if it has answered everything.
    overdue_at: Option<Instant>,
}

impl Server {
    fn is_overdue(&self, now: Instant) -> bool {
        self.overdue_at.is_some_and(|at| at <= now)
    }
}

/// The name servers.
pub(super) struct Names {
    /// The board's addresses at which they are asked.
    at: Vec<IpAddr>,
    servers: Vec<Server>,
    changes: Option<OwnedFd>,
}

impl Names {
    /// Takes over the socket with the number `changes`, on which lists of servers arrive, and watches it
    /// under the number `watched`. Reads lists that have already arrived.
    ///
    /// # Errors
    /// There is no such socket.
    pub(super) fn new(
        at: &[IpAddr],
        servers: &[SocketAddr],
        changes: Option<i32>,
        (files, watched): (&EpollSet, u64),
    ) -> io::Result<Names> {
        let changes = changes.map(inherited_file).transpose()?;
        if let Some(changes) = &changes {
            files.watch(changes, watched, Interest::READ)?;
        }
        let mut names = Names { at: at.to_vec(), servers: Vec::new(), changes };
        names.replace(servers);
        names.on_ready();
        Ok(names)
    }

    /// Reads lists of servers that have arrived: addresses with ports, separated by spaces. The last one
    /// counts.
    pub(super) fn on_ready(&mut self) {
        let mut room = [0; LIST_BYTES_MAX];
        let mut last: Option<Vec<SocketAddr>> = None;
        while let Some(changes) = &self.changes {
            match rustix::net::recv(changes, &mut room[..], RecvFlags::DONTWAIT) {
                Ok((1.., length)) => {
                    let text = String::from_utf8_lossy(&room[..length]);
                    last = Some(text.split_whitespace().filter_map(|word| word.parse().ok()).collect());
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                // The other end is closed.
                _ => self.changes = None,
            }
        }
        if let Some(servers) = last {
            self.replace(&servers);
        }
    }

    fn replace(&mut self, servers: &[SocketAddr]) {
        let overdue_at =
            |address| self.servers.iter().find(|old| old.address == address).and_then(|old| old.overdue_at);
        self.servers =
            servers.iter().map(|&address| Server { address, overdue_at: overdue_at(address) }).collect();
    }

    /// Returns whether packets of the guest to `target` go to the name servers.
    pub(super) fn serve(&self, target: SocketAddr) -> bool {
        target.port() == DOMAIN && !self.servers.is_empty() && self.at.contains(&target.ip())
    }

    /// Returns all servers, the first choice first.
    pub(super) fn in_order(&self, now: Instant) -> Vec<SocketAddr> {
        let mut servers: Vec<&Server> = self.servers.iter().collect();
        servers.sort_by_key(|server| server.is_overdue(now));
        servers.into_iter().map(|server| server.address).collect()
    }

    /// Sends a request to the first server, and to further ones until one of them is not overdue. `send`
    /// returns false if a server cannot be reached. Returns whether a server has the request.
    pub(super) fn ask(&mut self, now: Instant, mut send: impl FnMut(SocketAddr) -> bool) -> bool {
        let mut has_asked = false;
        for server in &mut self.servers {
            let is_overdue = server.is_overdue(now);
            if send(server.address) {
                server.overdue_at.get_or_insert(now + PATIENCE);
                has_asked = true;
                if !is_overdue {
                    break;
                }
            } else {
                server.overdue_at = Some(now);
            }
        }
        has_asked
    }

    /// Records an answer of a server.
    pub(super) fn on_answer(&mut self, from: SocketAddr) {
        if let Some(server) = self.servers.iter_mut().find(|server| server.address == from) {
            server.overdue_at = None;
        }
    }

    /// Records that the host at `from` has refused a packet of the guest to `target`. Returns false if
    /// another server may still answer.
    pub(super) fn on_refused(&mut self, target: SocketAddr, from: SocketAddr, now: Instant) -> bool {
        if !self.serve(target) {
            return true;
        }
        let all_overdue = self.servers.iter().all(|server| server.is_overdue(now));
        let Some(server) = self.servers.iter_mut().find(|server| server.address == from) else {
            return all_overdue;
        };
        let was_overdue = server.is_overdue(now);
        server.overdue_at = Some(now);
        !was_overdue || all_overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(servers: &[&str]) -> Names {
        let servers: Vec<SocketAddr> = servers.iter().map(|text| text.parse().unwrap()).collect();
        let files = EpollSet::new().unwrap();
        Names::new(&["10.0.2.2".parse().unwrap()], &servers, None, (&files, 0)).unwrap()
    }

    /// Asks, and returns the ports of the servers that got the request.
    fn asked(names: &mut Names, now: Instant, dead: &[u16]) -> Vec<u16> {
        let mut ports = Vec::new();
        let has_asked = names.ask(now, |to| {
            let is_sent = !dead.contains(&to.port());
            if is_sent {
                ports.push(to.port());
            }
            is_sent
        });
        assert_eq!(has_asked, !ports.is_empty());
        ports
    }

    #[test]
    fn further_servers_are_asked_while_earlier_ones_do_not_answer() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut names = names(&["127.0.0.1:1", "[fe80::1%7]:2", "127.0.0.1:3"]);
        // Several requests at once, as for A and AAAA, go to one server.
        for millis in [0, 1, 999] {
            assert_eq!(asked(&mut names, at(millis), &[]), [1]);
        }
        assert_eq!(asked(&mut names, at(1000), &[]), [1, 2]);
        names.on_answer("[fe80::1%7]:2".parse().unwrap());
        assert_eq!(asked(&mut names, at(1500), &[]), [1, 2]);
        assert_eq!(names.in_order(at(1500)).iter().map(SocketAddr::port).collect::<Vec<_>>(), [2, 3, 1]);
        names.on_answer("127.0.0.1:1".parse().unwrap());
        assert_eq!(asked(&mut names, at(1600), &[]), [1]);
        // A server without a route is passed over.
        assert_eq!(asked(&mut names, at(1700), &[1, 2]), [3]);
        assert_eq!(asked(&mut names, at(1800), &[1, 2, 3]), Vec::<u16>::new());
    }

    #[test]
    fn a_refusal_is_passed_on_unless_another_server_may_answer() {
        let now = Instant::ZERO + Duration::from_secs(9);
        let mut names = names(&["127.0.0.1:1", "127.0.0.1:2"]);
        let target = "10.0.2.2:53".parse().unwrap();
        let refused =
            |names: &mut Names, port| names.on_refused(target, SocketAddr::from(([127, 0, 0, 1], port)), now);
        assert_eq!(asked(&mut names, now, &[]), [1]);
        assert!(refused(&mut names, 1), "the guest asks again at once");
        assert_eq!(asked(&mut names, now, &[]), [1, 2]);
        assert!(!refused(&mut names, 1));
        assert!(refused(&mut names, 2));
        // Now, nobody answers.
        assert!(refused(&mut names, 1));
        // Other destinations are no name servers.
        assert!(names.on_refused("192.0.2.1:53".parse().unwrap(), "127.0.0.1:1".parse().unwrap(), now));
    }

    #[test]
    fn a_new_list_keeps_what_is_known_of_a_server() {
        let now = Instant::ZERO + Duration::from_secs(9);
        let (own, other) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let mut names = names(&["127.0.0.1:1", "127.0.0.1:2"]);
        names.changes = Some(own.into());
        assert_eq!(asked(&mut names, now, &[1]), [2]);
        other.send(b"127.0.0.1:5").unwrap();
        other.send(b"127.0.0.1:1 [::1]:4 127.0.0.1:6").unwrap();
        names.on_ready();
        assert_eq!(asked(&mut names, now, &[]), [1, 4]);
        assert!(names.serve("10.0.2.2:53".parse().unwrap()) && !names.serve("10.0.2.2:54".parse().unwrap()));
        other.send(b"").unwrap();
        names.on_ready();
        assert!(names.changes.is_none(), "an empty message ends the changes");
    }
}
