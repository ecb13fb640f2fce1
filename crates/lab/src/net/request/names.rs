//! Look-ups as glibc's stub resolver does them (resolv.conf(5)), with a record of each query.
//!
//! ```text
//! for each name (as written, with each search domain) ── for each attempt ── for each name server: A and AAAA
//! ```
//!
//! Order     a server that does not answer is waited for, 5 s by default, before the next is asked. One that
//!           fails or refuses is passed over at once.
//! Hosts     a name in /etc/hosts needs no look-up.
//! Differences  other sources of nsswitch.conf, caches and DNS over TLS are not used. If one of the queries A
//!           and AAAA has no reply, the other's reply is used after one timeout; glibc sends the query once
//!           more.

use super::query::{Answer, Kind, query, reply};
use kiban_base::Instant;
use kiban_os::{Clock, random, resolver};
use serde::Serialize;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// The limits of glibc: seconds and attempts (resolv.conf(5)).
const TIMEOUT_MAX: u64 = 30;
const ATTEMPTS_MAX: usize = 5;
/// The port of name servers.
const PORT: u16 = 53;

/// The settings of a resolver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolver {
    /// The name servers, in order.
    pub servers: Vec<SocketAddr>,
    /// The domains that are appended.
    pub search: Vec<String>,
    /// A name with at least this many dots is looked up as it is first.
    pub dots: usize,
    /// How long to wait for a server.
    pub timeout: Duration,
    /// How often each server is asked.
    pub attempts: usize,
    /// The text of /etc/hosts.
    pub hosts: String,
}

impl Resolver {
    /// Reads the text of resolv.conf.
    pub fn of(resolv_conf: &str, hosts: String) -> Resolver {
        let mut resolver = Resolver {
            servers: resolver::name_servers(resolv_conf),
            search: Vec::new(),
            dots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
            hosts,
        };
        for line in resolv_conf.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                // The last line of either counts.
                Some("search" | "domain") => resolver.search = words.map(str::to_owned).collect(),
                Some("options") => words.for_each(|option| resolver.set(option)),
                _ => {}
            }
        }
        if resolver.servers.is_empty() {
            // What glibc does without any.
            resolver.servers.push(SocketAddr::from(([127, 0, 0, 1], PORT)));
        }
        resolver
    }

    fn set(&mut self, option: &str) {
        let Some((name, value)) = option.split_once(':') else { return };
        let Ok(value) = value.parse::<u64>() else { return };
        match name {
            "ndots" => self.dots = value.min(15) as usize,
            "timeout" => self.timeout = Duration::from_secs(value.clamp(1, TIMEOUT_MAX)),
            "attempts" => self.attempts = (value as usize).clamp(1, ATTEMPTS_MAX),
            _ => {}
        }
    }

    /// Returns the names to look up, in order.
    fn candidates(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let searched = self.search.iter().map(|domain| format!("{name}.{domain}"));
        let itself = [name.to_owned()];
        if name.matches('.').count() >= self.dots {
            itself.into_iter().chain(searched).collect()
        } else {
            searched.chain(itself).collect()
        }
    }

    /// Returns the addresses of a name in /etc/hosts.
    fn in_hosts(&self, name: &str) -> Vec<IpAddr> {
        let lines =
            self.hosts.lines().map(|line| line.split('#').next().unwrap_or_default().split_whitespace());
        let known = lines.filter_map(|mut words| {
            let address = words.next()?.parse().ok()?;
            words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
        });
        known.collect()
    }

    /// Looks up a name.
    ///
    /// # Errors
    /// Returns what the queries had as results.
    pub(super) fn look_up(&self, clock: Clock, host: &str) -> Result<Lookup, String> {
        let mut lookup = Lookup::default();
        if let Ok(address) = host.trim_matches(['[', ']']).parse() {
            return Ok(Lookup { addresses: vec![address], ..lookup });
        }
        lookup.addresses = self.in_hosts(host);
        if !lookup.addresses.is_empty() {
            return Ok(lookup);
        }
        for name in self.candidates(host) {
            if self.ask_all(clock, &name, &mut lookup) {
                return Ok(lookup);
            }
        }
        let results: Vec<String> = lookup.queries.iter().map(Query::words).collect();
        Err(format!("cannot look up {host}: {}", results.join("; ")))
    }

    /// Asks the servers for a name until one has an answer; returns whether there are addresses.
    fn ask_all(&self, clock: Clock, name: &str, lookup: &mut Lookup) -> bool {
        for attempt in 0..self.attempts {
            for server in &self.servers {
                // res_nsend(3): later attempts wait longer, but share the time among the servers.
                let timeout = match attempt {
                    0 => self.timeout,
                    _ => (self.timeout * (1 << attempt) / self.servers.len() as u32)
                        .max(Duration::from_secs(1)),
                };
                let begin = clock.now();
                let (outcome, addresses) = ask(clock, *server, name, timeout);
                let ms = clock.now().since(begin).as_secs_f64() * 1e3;
                lookup.queries.push(Query { server: server.to_string(), name: name.to_owned(), ms, outcome });
                lookup.addresses = addresses;
                match outcome {
                    Outcome::Answered | Outcome::HalfSilent => return true,
                    Outcome::NoName => return false,
                    Outcome::Silent | Outcome::Failed | Outcome::Unreachable => {}
                }
            }
        }
        false
    }
}

/// The result of a query for addresses of both kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Addresses.
    Answered,
    /// Addresses, but one of the two queries had no reply until the timeout.
    HalfSilent,
    /// The name does not exist, or has no address.
    NoName,
    /// No reply until the timeout.
    Silent,
    /// The server reported a failure, or refused.
    Failed,
    /// No server listens there, or there is no route to it.
    Unreachable,
}

/// A query to a name server.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Query {
    /// The server.
    pub server: String,
    /// The name.
    pub name: String,
    /// How long it took, ms.
    pub ms: f64,
    /// The result.
    pub outcome: Outcome,
}

impl Query {
    /// Returns the result in words.
    pub(super) fn result(&self) -> &'static str {
        match self.outcome {
            Outcome::Answered => "answered",
            Outcome::HalfSilent => "answered one of two queries",
            Outcome::NoName => "the name does not exist",
            Outcome::Silent => "no answer",
            Outcome::Failed => "the server failed or refused",
            Outcome::Unreachable => "unreachable",
        }
    }

    fn words(&self) -> String {
        format!("{} at {}: {}", self.name, self.server, self.result())
    }
}

/// A look-up.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Lookup {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) queries: Vec<Query>,
}

/// Asks a server for the addresses of a name.
fn ask(clock: Clock, server: SocketAddr, name: &str, timeout: Duration) -> (Outcome, Vec<IpAddr>) {
    match try_ask(clock, server, name, timeout) {
        Ok(done) => done,
        Err(_) => (Outcome::Unreachable, Vec::new()),
    }
}

fn try_ask(
    clock: Clock,
    server: SocketAddr,
    name: &str,
    timeout: Duration,
) -> io::Result<(Outcome, Vec<IpAddr>)> {
    let local = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(local)?;
    socket.connect(server)?;
    let [one, two, three, four] = random::bytes::<4>()?;
    let ids = [u16::from_be_bytes([one, two]), u16::from_be_bytes([three, four])];
    let queries: Option<Vec<Vec<u8>>> =
        ids.into_iter().zip([Kind::A, Kind::Aaaa]).map(|(id, kind)| query(id, name, kind)).collect();
    // A search domain may make a name too long, which then does not exist.
    let Some(queries) = queries else { return Ok((Outcome::NoName, Vec::new())) };
    for query in &queries {
        socket.send(query)?;
    }
    let until = clock.now() + timeout;
    let mut answers: [Option<Answer>; 2] = [None, None];
    while answers.iter().any(Option::is_none) {
        let Some(octets) = receive(&socket, clock, until)? else { break };
        for (query, answer) in queries.iter().zip(&mut answers) {
            if answer.is_none() {
                *answer = reply(&octets, query);
            }
        }
    }
    let addresses: Vec<IpAddr> = answers
        .iter()
        .rev()
        .flatten()
        .flat_map(|answer| if let Answer::Addresses(addresses) = answer { &addresses[..] } else { &[] })
        .copied()
        .collect();
    let is = |of: fn(&Option<Answer>) -> bool| answers.iter().any(of);
    let outcome = match (addresses.is_empty(), is(Option::is_none)) {
        (false, false) => Outcome::Answered,
        (false, true) => Outcome::HalfSilent,
        (true, true) => Outcome::Silent,
        (true, false) if is(|answer| matches!(answer, Some(Answer::Failed(_)))) => Outcome::Failed,
        (true, false) => Outcome::NoName,
    };
    Ok((outcome, addresses))
}

/// Receives a datagram until `until`; `None` if none has arrived.
fn receive(socket: &UdpSocket, clock: Clock, until: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut room = [0; 1500];
    loop {
        let left = until.since(clock.now());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut room) {
            Ok(count) => return Ok(Some(room[..count].to_vec())),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_read_with_the_limits_of_glibc() {
        let text = "# comment\nnameserver 192.0.2.1\nnameserver 2001:db8::1\nnameserver x\nnameserver 192.0.2.3\n\
                    nameserver 192.0.2.4\nsearch a.example b.example\noptions ndots:5 timeout:99 attempts:9 rotate\n";
        let resolver = Resolver::of(text, String::new());
        let servers: Vec<String> = resolver.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.3:53"]);
        assert_eq!((resolver.timeout.as_secs(), resolver.attempts, resolver.dots), (30, 5, 5));
        let [a, b] = ["www.x.a.example", "www.x.b.example"].map(str::to_owned);
        assert_eq!(resolver.candidates("www.x"), [a.clone(), b.clone(), "www.x".to_owned()]);
        assert_eq!(resolver.candidates("www.x."), ["www.x."]);
        let usual = Resolver { dots: 1, ..resolver };
        assert_eq!(usual.candidates("www.x"), ["www.x".to_owned(), a, b]);
        assert_eq!(Resolver::of("", String::new()).servers, [SocketAddr::from(([127, 0, 0, 1], 53))]);
    }

    #[test]
    fn addresses_and_names_of_the_hosts_file_need_no_query() {
        let hosts = "127.0.0.1 localhost\n192.0.2.9 WWW web # 192.0.2.8 other\n";
        let resolver = Resolver::of("", hosts.to_owned());
        for (host, expected) in
            [("www", "192.0.2.9"), ("[2001:db8::1]", "2001:db8::1"), ("192.0.2.1", "192.0.2.1")]
        {
            let lookup = resolver.look_up(Clock::new(), host).expect("it is known");
            assert_eq!(
                lookup,
                Lookup { addresses: vec![expected.parse().expect("an address")], queries: vec![] }
            );
        }
        assert!(resolver.in_hosts("other").is_empty());
    }
}
