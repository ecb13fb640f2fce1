//! `kiban lab hosts`: measures several hosts, whose servers it starts over ssh.

use super::latency::checked_seconds;
use super::peer::TOKEN_VARIABLE;
use super::serve::ports;
use super::ssh::{Recipe, RemoteServer, quoted};
use crate::lab::interrupt::{INTERRUPTED, on_interrupt};
use crate::osi::peer::Host;
use crate::output::note;
use clap::Args;
use indicatif::{HumanDuration, ProgressBar};
use kiban_lab::engine::Failure;
use kiban_lab::engine::store::write_atomically;
use kiban_lab::net::hosts::{Hosts, NotMeasured, together};
use kiban_lab::net::latency::{Latency, LatencyRequest, measure};
use kiban_lab::net::{Client, TcpStack};
use kiban_lab::table::counted;
use kiban_os::lock;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The maximum number of hosts in a plan.
const HOSTS_MAX: usize = 100;

/// Measure several hosts, and compare them; starts the other ends over ssh.
///
/// A plan names the hosts. 'kiban lab serve' is started on each, with a token of its own, and ends with the
/// ssh connection. Each host is measured alone, as by 'kiban lab latency'; with --together, all hosts are
/// then loaded at once, to find out whether their paths share a bottleneck. With --host, another measurement
/// of one host is made instead, also with a server that is started over ssh.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab hosts plan.toml\
        \n  kiban lab hosts plan.toml --together --html hosts.html\
        \n  kiban lab hosts plan.toml --ssh 'ssh -F cluster.config' --json | jq .verdict\
        \n  kiban lab hosts plan.toml --host node1 -- udp --time 30s\
        \n\nA plan:\
        \n  seconds = 10                              # of each load\
        \n  [[host]]\
        \n  ssh = \"admin@node1\"                       # ssh connects here, and this address is measured\
        \n  [[host]]\
        \n  name = \"far\"\
        \n  ssh = \"node2\"\
        \n  address = \"192.0.2.7\"                     # if the name means another address here\
        \n  kiban = \"/opt/kiban/bin/kiban\"\
        \n\nCtrl-C ends the measurement, and prints what was measured until then.\
        \n\nExit status: 0 if all hosts were measured, 1 otherwise, 2 for invalid arguments, 130 after Ctrl-C; with \
        --host, that of the subcommand.")]
pub(crate) struct HostsCommand {
    /// The plan, a TOML file.
    plan: PathBuf,
    /// Also load all hosts at once.
    #[arg(long)]
    together: bool,
    /// Program that connects to a host, with its first arguments.
    #[arg(long, default_value = "ssh", value_name = "COMMAND")]
    ssh: String,
    /// Run another subcommand of 'kiban lab' on this host of the plan: sweep, delay, latency, udp, check or
    /// trace.
    #[arg(long, value_name = "NAME", requires = "command", conflicts_with_all = ["together", "html", "json"])]
    host: Option<String>,
    /// The subcommand and its options, for --host; the address of the host is added.
    #[arg(last = true, value_name = "COMMAND", requires = "host")]
    command: Vec<String>,
    /// Write a page with the figures to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// Do not show the progress.
    #[arg(long, short)]
    quiet: bool,
}

/// The plan.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    #[serde(default = "Plan::seconds")]
    seconds: f64,
    #[serde(default = "Plan::parallel")]
    parallel: u16,
    #[serde(default)]
    together: bool,
    /// Settings for all hosts that do not have their own.
    #[serde(default)]
    all: Settings,
    host: Vec<HostPlan>,
}

impl Plan {
    fn seconds() -> f64 {
        10.0
    }

    fn parallel() -> u16 {
        4
    }
}

/// Settings of a host, or of all.
#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
struct Settings {
    kiban: Option<String>,
    copy: Option<bool>,
    port: Option<u16>,
    data_ports: Option<String>,
    rate: Option<u64>,
}

/// A host of the plan.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostPlan {
    ssh: String,
    name: Option<String>,
    address: Option<String>,
    kiban: Option<String>,
    copy: Option<bool>,
    port: Option<u16>,
    data_ports: Option<String>,
    rate: Option<u64>,
}

/// A host, complete.
struct Target {
    name: String,
    ssh: String,
    address: String,
    kiban: String,
    copy: bool,
    options: Vec<String>,
}

impl Target {
    /// Starts the server.
    fn start(&self, ssh: &[String]) -> Result<RemoteServer, String> {
        let Target { ssh: destination, kiban, copy, options, .. } = self;
        RemoteServer::start(&Recipe { ssh, destination, kiban, copy: *copy, options: options.clone() })
    }
}

impl HostPlan {
    fn target(self, all: &Settings) -> Target {
        // The host of `user@host` or `ssh://user@host:port`.
        let host = self.ssh.strip_prefix("ssh://").map_or(self.ssh.as_str(), |url| {
            let end = url.rfind(':').filter(|at| !url[*at..].contains(']'));
            &url[..end.unwrap_or(url.len())]
        });
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host).trim_matches(['[', ']']);
        let mut options =
            vec!["--listen".to_owned(), format!("[::]:{}", self.port.or(all.port).unwrap_or(0))];
        for (option, value) in [
            ("--data-ports", self.data_ports.or_else(|| all.data_ports.clone())),
            ("--rate", self.rate.or(all.rate).map(|rate| rate.to_string())),
        ] {
            options.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
        }
        Target {
            name: self.name.unwrap_or_else(|| host.to_owned()),
            address: self.address.unwrap_or_else(|| host.to_owned()),
            kiban: self.kiban.or_else(|| all.kiban.clone()).unwrap_or_else(|| "kiban".to_owned()),
            copy: self.copy.or(all.copy).unwrap_or(false),
            ssh: self.ssh,
            options,
        }
    }
}

/// Checks what the host would otherwise refuse, after the others have been started.
fn check(host: &HostPlan, all: &Settings) -> Result<(), String> {
    if let Some(range) = host.data_ports.as_ref().or(all.data_ports.as_ref()) {
        ports(range).map_err(|why| format!("data_ports = {range:?}: {why}"))?;
    }
    if host.rate.or(all.rate) == Some(0) {
        return Err("rate must be at least 1 Mbit/s".to_owned());
    }
    if host.copy == Some(true) && host.kiban.is_some() {
        return Err("copy sends this program, so `kiban` has no effect: remove one of them".to_owned());
    }
    let port = host.ssh.strip_prefix("ssh://").and_then(|url| url.rsplit_once(':')).map(|(_, port)| port);
    if port.is_some_and(|port| !port.contains(']') && port.parse::<u16>().is_err()) {
        return Err("write ssh://[USER@]HOST:PORT".to_owned());
    }
    Ok(())
}

/// The places of a plan in which keys belong.
const TOP: &str = "at the top of the plan, before the first table";
const HOST: &str = "in a table [[host]]";
const ANY: &str = "in the table [all], or in a table [[host]]";

/// The form of each value of a plan, with an example, and its place.
const FORMS: [(&str, &str, &str, &str); 12] = [
    ("seconds", "a number of seconds, 2 to 3600", "10", TOP),
    ("parallel", "a number of connections, 1 to 16", "4", TOP),
    ("together", "true or false", "true", TOP),
    ("all", "a table of settings for all hosts", "{ rate = 100 }", TOP),
    ("ssh", "[USER@]HOST in quotation marks", "\"admin@node1\"", HOST),
    ("name", "a name in quotation marks", "\"node1\"", HOST),
    ("address", "an address or host name in quotation marks", "\"192.0.2.7\"", HOST),
    ("kiban", "a path in quotation marks", "\"/opt/kiban/bin/kiban\"", ANY),
    ("copy", "true or false", "true", ANY),
    ("port", "a number, 1 to 65535", "4195", ANY),
    ("data_ports", "two ports in quotation marks", "\"4200-4203\"", ANY),
    ("rate", "a whole number of Mbit/s, without a unit", "100", ANY),
];

/// Returns where a key belongs that serde does not know in the table that has it.
fn place(why: &str) -> Option<String> {
    let (key, _) = why.split_once("unknown field `")?.1.split_once('`')?;
    let (name, .., place) = FORMS.iter().find(|(name, ..)| *name == key)?;
    Some(format!("{name} belongs {place}"))
}

/// Returns the form of the value at a place of a plan.
fn form(text: &str, at: usize) -> Option<String> {
    let key = text.get(..at)?.trim_end().strip_suffix('=')?.trim_end();
    let key = key.rsplit(|one: char| !one.is_ascii_alphanumeric() && one != '_').next()?;
    let (name, form, example, _) = FORMS.iter().find(|(name, ..)| *name == key)?;
    Some(format!("{name} must be {form}, such as {name} = {example}"))
}

/// Reads a plan.
fn read(text: &str) -> Result<(LatencyRequest, bool, Vec<Target>), String> {
    let plan: Plan = toml::from_str(text).map_err(|error| {
        let why = error.to_string();
        let is_table = why.contains("missing field `host`") || why.contains("expected a sequence");
        let form = || error.span().and_then(|span| form(text, span.start));
        let hint = place(&why).or_else(form).unwrap_or_default();
        if is_table { format!("{why}a plan has a table [[host]] for each host") } else { why + &hint }
    })?;
    let seconds = checked_seconds(plan.seconds).map_err(|why| format!("seconds {why}"))?;
    if !(1..=16).contains(&plan.parallel) {
        return Err("parallel must be 1 to 16".to_owned());
    }
    if plan.host.is_empty() || plan.host.len() > HOSTS_MAX {
        return Err(format!("a plan has 1 to {HOSTS_MAX} hosts, each in a table [[host]]"));
    }
    if let Some(host) = plan.host.iter().find(|host| host.ssh.is_empty() || host.ssh.starts_with('-')) {
        return Err(format!("ssh = {:?} is not a host: write [USER@]HOST", host.ssh));
    }
    for host in &plan.host {
        check(host, &plan.all).map_err(|why| format!("host {:?}: {why}", host.ssh))?;
    }
    let targets: Vec<Target> = plan.host.into_iter().map(|host| host.target(&plan.all)).collect();
    let is_known = |at: usize| targets[..at].iter().any(|other| other.name == targets[at].name);
    if let Some(at) = (0..targets.len()).find(|at| is_known(*at)) {
        return Err(format!("two hosts are named {}: give each a name = \"...\"", targets[at].name));
    }
    let length = Duration::from_secs_f64(seconds);
    Ok((LatencyRequest { connections: plan.parallel, length }, plan.together, targets))
}

/// Returns what to do with a plan if it is one of hosts, for commands that need another one.
pub(in crate::lab) fn hosts_hint(path: &Path, text: &str) -> Option<String> {
    let plan = toml::from_str::<toml::Table>(text).ok()?;
    let is_hosts = plan.contains_key("host") && !plan.contains_key("question");
    let words = |path: &str| format!("the plan {path} names hosts: run `kiban lab hosts {}`", quoted(path));
    is_hosts.then(|| words(&path.display().to_string()))
}

/// What was measured so far.
#[derive(Clone, Default)]
struct Kept {
    measured: Vec<(String, Latency)>,
    failed: Vec<NotMeasured>,
}

/// The results so far; `None` once they are being reported.
type Results = Arc<Mutex<Option<Kept>>>;

/// Adds a result, unless the results have been taken.
fn keep(results: &Results, add: impl FnOnce(&mut Kept)) {
    if let Some(kept) = lock(results).as_mut() {
        add(kept);
    }
}

impl HostsCommand {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let invalid = |why: String| format!("the plan {}: {why}", self.plan.display());
        let text = std::fs::read_to_string(&self.plan)
            .map_err(|error| format!("cannot read the plan {}: {error}", self.plan.display()))?;
        let (request, at_once, targets) = read(&text).map_err(invalid)?;
        let ssh: Vec<String> = self.ssh.split_whitespace().map(str::to_owned).collect();
        if let Some(name) = &self.host {
            return run_on(&targets, name, &ssh, &self.command);
        }
        let at_once = at_once || self.together;
        if !self.quiet {
            note!("{}", announcement(&request, targets.len(), at_once && targets.len() > 1));
        }
        let bar = super::output::spinner(self.quiet);
        let results = Results::new(Mutex::new(Some(Kept::default())));
        let command = Arc::new(self);
        let names: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
        {
            let (command, results, bar) = (Arc::clone(&command), Arc::clone(&results), bar.clone());
            on_interrupt(move || {
                // While the results are being reported, the program is about to end.
                let mut results = lock(&results);
                if let Some(kept) = results.take() {
                    bar.finish_and_clear();
                    let reported = command.report(&command.interrupted(kept, names, at_once));
                    reported.unwrap_or_else(|error| note!("kiban: {error}"));
                }
                // The servers end with their connections.
                std::process::exit(INTERRUPTED);
            })?;
        }
        let hosts = command.measure_all(&targets, &ssh, &request, at_once, &bar, &results);
        bar.finish_and_clear();
        let mut results = lock(&results);
        *results = None;
        command.report(&hosts)?;
        Ok(crate::lab::output::status(hosts.is_whole()))
    }

    /// Writes the page, and prints the table.
    fn report(&self, hosts: &Hosts) -> Result<(), String> {
        if let Some(page) = &self.html {
            let together = if self.together { " --together" } else { "" };
            let page_path = quoted(&page.display().to_string());
            let command = format!("{}{together} --html {page_path}", self.words());
            write_atomically(page, hosts.html(&command).as_bytes()).map_err(|error| error.to_string())?;
        }
        super::output::put(self.json, hosts)?;
        if let Some(page) = self.html.as_ref().filter(|_| !self.quiet) {
            note!("wrote {}", page.display());
        }
        Ok(())
    }

    /// Returns the command without its options for the output.
    fn words(&self) -> String {
        let ssh = match self.ssh.as_str() {
            "ssh" => String::new(),
            other => format!(" --ssh {}", quoted(other)),
        };
        format!("kiban lab hosts {}{ssh}", quoted(&self.plan.display().to_string()))
    }

    /// Returns the command that runs a subcommand on a host.
    fn words_for(&self, host: &str, rest: &str) -> String {
        format!("{} --host {} -- {rest}", self.words(), quoted(host))
    }

    /// Returns the report on what was measured before the user ended the measurement.
    fn interrupted(&self, kept: Kept, mut names: Vec<String>, at_once: bool) -> Hosts {
        let Kept { measured, failed } = kept;
        names.retain(|name| {
            !measured.iter().any(|(one, _)| one == name) && !failed.iter().any(|one| one.name == *name)
        });
        names.extend(at_once.then(|| "all at once".to_owned()));
        let mut hosts = Hosts::of(measured, failed, &|host, rest| self.words_for(host, rest));
        hosts.interrupt(names);
        hosts
    }

    /// Starts all servers, measures each host, and then all at once.
    fn measure_all(
        &self,
        targets: &[Target],
        ssh: &[String],
        request: &LatencyRequest,
        at_once: bool,
        bar: &ProgressBar,
        results: &Results,
    ) -> Hosts {
        let fail = |target: &Target, why: String| {
            keep(results, |kept| kept.failed.push(NotMeasured { name: target.name.clone(), why }));
        };
        bar.set_message("starting servers over ssh");
        // All are started before the first is waited for.
        let started: Vec<_> = targets.iter().map(|target| target.start(ssh)).collect();
        let mut ready = Vec::new();
        for (target, server) in targets.iter().zip(started) {
            let listening = server.and_then(|mut server| {
                let port = server.port()?;
                Ok((server, port))
            });
            match listening {
                Ok((server, port)) => ready.push((target, server, port)),
                Err(why) => fail(target, why),
            }
        }
        let mut served = Vec::new();
        let all = ready.len();
        for (number, (target, server, port)) in (1..).zip(ready) {
            let result = connect(target, &server, port).and_then(|mut client| {
                let command = |rest: &str| self.words_for(&target.name, rest);
                measure(&mut client, &target.address, request, &command, &|load| {
                    bar.set_message(format!("host {number} of {all}, {}: {}", target.name, load.name()));
                })
            });
            match result {
                Ok(latency) => {
                    keep(results, |kept| kept.measured.push((target.name.clone(), latency)));
                    served.push((target, server, port));
                }
                Err(failure) => fail(target, failure.to_string()),
            }
        }
        let Kept { measured, failed } = lock(results).as_ref().cloned().unwrap_or_default();
        let mut hosts = Hosts::of(measured, failed, &|host, rest| self.words_for(host, rest));
        let left = hosts.hosts.len();
        if at_once && left < 2 {
            let left = ["none", "only one"][left];
            hosts.add_together(Err(format!("it needs two hosts, and {left} could be measured")));
        } else if at_once {
            let clients: Result<Vec<Client>, Failure> =
                served.iter().map(|(target, server, port)| connect(target, server, *port)).collect();
            let alone: Vec<[f64; 2]> = hosts.hosts.iter().map(|host| host.mbps).collect();
            let result = clients.map_err(|failure| failure.to_string()).and_then(|mut clients| {
                together(&mut clients, request, &alone, &|what| bar.set_message(what.to_owned()))
                    .map_err(|(number, failure)| format!("{}: {failure}", served[number].0.name))
            });
            hosts.add_together(result);
        }
        bar.set_message("ending the servers");
        hosts
    }
}

/// Returns what is going to be measured, and how long that takes.
fn announcement(request: &LatencyRequest, hosts: usize, at_once: bool) -> String {
    let alone = request.time() * hosts as u32;
    let (all, pairs) = if at_once {
        (2 * request.length, ", and longer if pairs of hosts have to be compared")
    } else {
        (Duration::ZERO, "")
    };
    let one_by_one = if hosts == 1 { "" } else { " one after the other" };
    let then = if at_once { ", then all at once" } else { "" };
    format!(
        "measuring {}{one_by_one}{then}: takes about {}{pairs}",
        counted(hosts, "host"),
        HumanDuration(alone + all)
    )
}

/// Runs a subcommand of `kiban lab` with the server of a host.
fn run_on(targets: &[Target], name: &str, ssh: &[String], command: &[String]) -> Result<ExitCode, String> {
    let target = targets.iter().find(|target| target.name == name).ok_or_else(|| {
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        format!("the plan has no host named {name}: its hosts are {}", names.join(", "))
    })?;
    let mut server = target.start(ssh)?;
    let host = Host { name: target.address.clone(), port: Some(server.port()?) };
    // Ctrl-C ends the subcommand, and then the server.
    on_interrupt(|| ())?;
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let mut subcommand = Command::new(program);
    subcommand.arg("lab").args(command).arg(host.to_string()).env(TOKEN_VARIABLE, server.token.reveal());
    let status = subcommand.status().map_err(|error| format!("cannot run this program: {error}"))?;
    Ok(ExitCode::from(status.code().unwrap_or(INTERRUPTED) as u8))
}

/// Connects to the server of a host.
fn connect(target: &Target, server: &RemoteServer, port: u16) -> Result<Client, Failure> {
    Client::connect(&TcpStack::Host, &target.address, port, &server.token).map_err(|failure| match failure {
        Failure::Lost(why) => Failure::Lost(format!(
            "{why} (it was started over ssh; if {} is reached at another address, set address = \"...\"; behind a \
             firewall, set port and data_ports)",
            target.name
        )),
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_with_settings_for_all_hosts() {
        let text = "together = true\nseconds = 4\n[all]\nkiban = \"bin/kiban\"\nrate = 100\n\
                    [[host]]\nssh = \"eve@one\"\n[[host]]\nname = \"two\"\nssh = \"ssh://eve@[2001:db8::1]:2222\"\n\
                    data_ports = \"4200-4203\"\nport = 4195\ncopy = true\n";
        let (request, together, targets) = read(text).expect("it is valid");
        assert_eq!((request.length, request.connections, together), (Duration::from_secs(4), 4, true));
        let [one, two] = &targets[..] else { panic!("two hosts") };
        assert_eq!(
            (one.name.as_str(), one.address.as_str(), one.kiban.as_str()),
            ("one", "one", "bin/kiban")
        );
        assert_eq!(one.options, ["--listen", "[::]:0", "--rate", "100"]);
        assert_eq!(
            (two.name.as_str(), two.address.as_str(), two.kiban.as_str()),
            ("two", "2001:db8::1", "bin/kiban")
        );
        assert_eq!(two.options, ["--listen", "[::]:4195", "--data-ports", "4200-4203", "--rate", "100"]);
        assert!(two.copy && !one.copy);
    }

    #[test]
    fn the_time_that_a_measurement_takes_is_announced() {
        let request = |seconds| LatencyRequest { connections: 4, length: Duration::from_secs(seconds) };
        for (seconds, hosts, at_once, expected) in [
            (10, 1, false, "measuring 1 host: takes about 35 seconds"),
            (10, 4, false, "measuring 4 hosts one after the other: takes about 2 minutes"),
            (
                2,
                4,
                true,
                "measuring 4 hosts one after the other, then all at once: takes about 48 seconds, and longer if pairs of \
                 hosts have to be compared",
            ),
        ] {
            assert_eq!(announcement(&request(seconds), hosts, at_once), expected);
        }
    }

    #[test]
    fn mistakes_of_a_plan_are_named() {
        let one = "[[host]]\nssh = \"one\"\n";
        for (text, expected) in [
            (String::new(), "missing field `host`"),
            ("host = []".to_owned(), "a plan has 1 to 100 hosts"),
            ("[host]\nssh = \"a\"".to_owned(), "a plan has a table [[host]] for each host"),
            (format!("{one}data_ports = \"x\""), "data_ports = \"x\": write the first and the last port"),
            (format!("[all]\nrate = 0\n{one}"), "rate must be at least 1"),
            (format!("{one}copy = true\nkiban = \"k\""), "remove one of them"),
            ("[[host]]\nssh = \"ssh://a:xx\"".to_owned(), "write ssh://[USER@]HOST:PORT"),
            ("[[host]]\nname = \"a\"".to_owned(), "missing field `ssh`"),
            ("[[host]]\nssh = \"-oProxyCommand=x\"".to_owned(), "is not a host"),
            (format!("{one}{one}"), "two hosts are named one"),
            (format!("seconds = 1\n{one}"), "seconds must be 2 to 3600"),
            (format!("parallel = 17\n{one}"), "parallel must be 1 to 16"),
            (format!("{one}colour = 1\n"), "unknown field `colour`"),
            (format!("rate = 100\n{one}"), "rate belongs in the table [all], or in a table [[host]]"),
            (format!("{one}seconds = 4\n"), "seconds belongs at the top of the plan, before the first table"),
            (format!("[all]\nssh = \"a\"\n{one}"), "ssh belongs in a table [[host]]"),
            (
                format!("{one}rate = \"5Mbit\"\n"),
                "rate must be a whole number of Mbit/s, without a unit, such as rate = 100",
            ),
            (format!("[all]\nrate=1.5\n{one}"), "such as rate = 100"),
            (format!("{one}port = 70000\n"), "port must be a number, 1 to 65535, such as port = 4195"),
            (
                format!("seconds = \"10s\"\n{one}"),
                "seconds must be a number of seconds, 2 to 3600, such as seconds = 10",
            ),
            (format!("all = {{ copy = 1 }}\n{one}"), "copy must be true or false, such as copy = true"),
            (format!("{one}data_ports = 4200\n"), "such as data_ports = \"4200-4203\""),
            ("[[host]]\nssh = 4\n".to_owned(), "ssh must be [USER@]HOST in quotation marks"),
        ] {
            let Err(why) = read(&text) else { panic!("{text}") };
            assert!(why.contains(expected), "{why}");
        }
    }
}
