//! `kiban x25 switch`: switches calls between lines, XOT routers and TPKT, by a configuration file.

use super::access::{check_windows, link_modulo};
use crate::osi::peer::{Host, cannot_listen, runtime};
use crate::output::note;
use clap::Args;
use kiban_osi::wire::{tpkt, xot};
use kiban_osi::x25::{Address, AddressBlock, Call, Modulo, Role};
use kiban_osi_runtime::socket;
use kiban_osi_runtime::x25::{LineSettings, Node, NodeEvent, NodeSettings, Origin, SwitchRoute, Target};
use serde::Deserialize;
use serde_json::json;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use toml::Spanned;

/// Maximum length of the configuration file.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of events that wait for the output.
const EVENTS_WAITING_MAX: usize = 1024;

/// Switch calls between lines, XOT routers and systems that speak TPKT.
///
/// The configuration file lists the lines and the routes; the first route that matches a call is used.
#[derive(Args)]
#[command(after_help = "Example of a configuration file:\
        \n  [xot]\
        \n  listen = \"192.0.2.1:1998\"                # accept calls from XOT routers\
        \n\
        \n  [[line]]\
        \n  name = \"exchange\"\
        \n  address = \"serial:/dev/ttyS0,19200\"      # tcp:, tcp-listen:, ether:, hdlc:, x25:\
        \n  role = \"dce\"\
        \n\
        \n  [[route]]\
        \n  called = \"4567*\"                         # *, nsap:HEX, user-data:HEX\
        \n  to = \"exchange\"                          # a line, xot:HOST[:PORT] or tpkt:HOST[:PORT]\
        \n\
        \n  [[route]]\
        \n  called = \"*\"\
        \n  from = \"exchange\"                        # a line, or xot\
        \n  to = \"tpkt:192.0.2.7\"\
        \n\
        \n  [[place]]                                # a call for each TCP connection with TPKTs\
        \n  listen = \"127.0.0.1:1102\"\
        \n  called = \"45678901\"\
        \n\nExit status: 1 if the configuration is invalid or it cannot listen.")]
pub(super) struct SwitchCommand {
    /// Check the configuration file and exit.
    #[arg(long)]
    check: bool,
    /// Print events on standard output, as one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Do not report lines and calls.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// The configuration file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    xot: Option<XotTable>,
    #[serde(default)]
    line: Vec<LineTable>,
    #[serde(default)]
    route: Vec<RouteTable>,
    #[serde(default)]
    place: Vec<PlaceTable>,
    #[serde(default = "circuits_default")]
    circuits: Spanned<u32>,
    #[serde(default = "timeout_default")]
    timeout: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct XotTable {
    listen: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LineTable {
    name: Spanned<String>,
    address: Spanned<String>,
    role: Option<Spanned<String>>,
    channels: Option<Spanned<String>>,
    packet_bytes: Option<Spanned<u16>>,
    window: Option<Spanned<u8>>,
    modulo: Option<Spanned<u8>>,
    link_window: Option<Spanned<u8>>,
    link_modulo: Option<Spanned<u8>>,
    t1_ms: Option<Spanned<u64>>,
    n2: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RouteTable {
    called: Spanned<String>,
    from: Option<Spanned<String>>,
    to: Spanned<String>,
    called_as: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlaceTable {
    listen: Spanned<String>,
    called: Spanned<String>,
    calling: Option<Spanned<String>>,
}

fn circuits_default() -> Spanned<u32> {
    Spanned::new(0..0, 256)
}

fn timeout_default() -> Spanned<u64> {
    Spanned::new(0..0, 30)
}

/// A configuration file.
struct File {
    settings: NodeSettings,
    listen: Option<SocketAddr>,
    places: Vec<(SocketAddr, Call)>,
}

/// A wrong value: its place in the text, and what is wrong.
type Wrong = (usize, String);

/// Parses a value, or names its place.
fn parsed<T: FromStr<Err: Display>>(value: &Spanned<String>) -> Result<T, Wrong> {
    let text = value.get_ref();
    text.parse().map_err(|error| (value.span().start, format!("'{text}': {error}")))
}

/// Checks a value, or names its place.
fn checked<T: Copy, U>(value: &Spanned<T>, check: impl Fn(T) -> Option<U>, wanted: &str) -> Result<U, Wrong> {
    check(*value.get_ref()).ok_or_else(|| (value.span().start, format!("must be {wanted}")))
}

fn modulo(value: &Option<Spanned<u8>>) -> Result<Modulo, Wrong> {
    let modulo = |value| match value {
        8 => Some(Modulo::Eight),
        128 => Some(Modulo::OneTwentyEight),
        _ => None,
    };
    value.as_ref().map_or(Ok(Modulo::Eight), |value| checked(value, modulo, "8 or 128"))
}

impl LineTable {
    fn settings(&self) -> Result<LineSettings, Wrong> {
        let role = match self.role.as_ref().map(|role| (role.get_ref().as_str(), role.span().start)) {
            None | Some(("dte", _)) => Role::Dte,
            Some(("dce", _)) => Role::Dce,
            Some((_, at)) => return Err((at, "must be \"dte\" or \"dce\"".into())),
        };
        let mut line = LineSettings::new(parsed(&self.address)?, role);
        line.modulo = modulo(&self.modulo)?;
        line.link_modulo = link_modulo(modulo(&self.link_modulo)?);
        if let Some(channels) = &self.channels {
            let wrong = |error| (channels.span().start, error);
            line.channels = super::access::channels(channels.get_ref()).map_err(wrong)?;
        }
        if let Some(bytes) = &self.packet_bytes {
            let is_size =
                |bytes: u16| (bytes.is_power_of_two() && (16..=4096).contains(&bytes)).then_some(bytes);
            line.packet_bytes = checked(bytes, is_size, "a power of two from 16 to 4096")?;
        }
        let is_window = |window: u8| (1..=127).contains(&window).then_some(window);
        if let Some(window) = &self.window {
            line.window = checked(window, is_window, "1 to 127")?;
        }
        if let Some(window) = &self.link_window {
            line.link_window = checked(window, is_window, "1 to 127")?;
        }
        if let Some(t1) = &self.t1_ms {
            let is_time = |ms| (10..=600_000).contains(&ms).then_some(Duration::from_millis(ms));
            line.reply_timeout = checked(t1, is_time, "10 to 600000 milliseconds")?;
        }
        if let Some(n2) = &self.n2 {
            line.attempts = checked(n2, |times| (1..=1000).contains(&times).then_some(times), "1 to 1000")?;
        }
        check_windows(&line).map_err(|error| (self.name.span().start, error))?;
        Ok(line)
    }
}

impl RouteTable {
    fn route(&self) -> Result<SwitchRoute, Wrong> {
        let from = self.from.as_ref().map(|from| match from.get_ref().as_str() {
            "xot" => Origin::Xot,
            name => Origin::Line(name.to_owned()),
        });
        let host = |text: &str, usual: u16| -> Result<(String, u16), Wrong> {
            let wrong = |error| (self.to.span().start, error);
            let Host { name, port } = text.parse().map_err(wrong)?;
            Ok((name, port.unwrap_or(usual)))
        };
        let to = match self.to.get_ref().split_once(':') {
            None => Target::Line(self.to.get_ref().clone()),
            Some(("xot", rest)) => {
                let (host, port) = host(rest, xot::PORT)?;
                Target::Xot { host, port }
            }
            Some(("tpkt", rest)) => {
                let (host, port) = host(rest, tpkt::PORT)?;
                Target::Tpkt { host, port }
            }
            Some(_) => {
                let wanted = "must be the name of a line, xot:HOST[:PORT] or tpkt:HOST[:PORT]";
                return Err((self.to.span().start, wanted.into()));
            }
        };
        let called_as = self.called_as.as_ref().map(parsed).transpose()?;
        Ok(SwitchRoute { called: parsed(&self.called)?, from, to, called_as })
    }
}

impl PlaceTable {
    fn place(&self) -> Result<(SocketAddr, Call), Wrong> {
        let calling = self.calling.as_ref().map(parsed).transpose()?.unwrap_or(Address::NONE);
        let addresses = AddressBlock { called: parsed(&self.called)?, calling };
        Ok((parsed(&self.listen)?, Call { addresses, ..Call::default() }))
    }
}

impl File {
    fn read(path: &Path) -> Result<File, String> {
        let read =
            kiban_os::regular::open(path).and_then(|file| kiban_os::regular::text(file, FILE_BYTES_MAX));
        let text = read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        File::parse(&text).map_err(|(at, wrong)| {
            let line =
                text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
            format!("{}:{line}: {wrong}", path.display())
        })
    }

    fn parse(text: &str) -> Result<File, Wrong> {
        let file: FileTable = toml::from_str(text).map_err(|error| {
            (error.span().map_or(0, |span| span.start), error.message().replace('\n', " "))
        })?;
        let circuits = |count| (1..=10_000).contains(&count).then_some(count as usize);
        let seconds = |seconds| (1..=3600).contains(&seconds).then_some(Duration::from_secs(seconds));
        let mut settings = NodeSettings {
            circuits_max: checked(&file.circuits, circuits, "1 to 10000")?,
            state_timeout: checked(&file.timeout, seconds, "1 to 3600 seconds")?,
            ..NodeSettings::default()
        };
        for line in &file.line {
            let name = line.name.get_ref();
            if name == "xot" || name.is_empty() || name.contains(':') {
                let wrong = "a line's name must not be empty, contain ':' or be \"xot\"";
                return Err((line.name.span().start, wrong.into()));
            }
            settings.lines.push((name.clone(), line.settings()?));
        }
        for route in &file.route {
            settings.routes.push(route.route()?);
            let is_line = |name: &str| file.line.iter().any(|line| line.name.get_ref() == name);
            let names = [Some(&route.to).filter(|to| !to.get_ref().contains(':')), route.from.as_ref()];
            for name in names.into_iter().flatten() {
                if name.get_ref() != "xot" && !is_line(name.get_ref()) {
                    return Err((name.span().start, format!("there is no line '{}'", name.get_ref())));
                }
            }
        }
        Ok(File {
            settings,
            listen: file.xot.as_ref().map(|xot| parsed(&xot.listen)).transpose()?,
            places: file.place.iter().map(PlaceTable::place).collect::<Result<_, _>>()?,
        })
    }
}

impl SwitchCommand {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let File { settings, listen, places } = File::read(&self.file)?;
        if self.check {
            return Ok(ExitCode::SUCCESS);
        }
        let (json, quiet) = (self.json, self.quiet);
        runtime(true)?.block_on(async {
            let (tell, events) = sync_channel(EVENTS_WAITING_MAX);
            std::thread::spawn(move || {
                for event in events {
                    if json {
                        // The switch continues even if the reader has closed standard output.
                        let _ = crate::output::print(&format!("{}\n", json!(event)));
                    } else if !quiet {
                        note!("{}", line(&event));
                    }
                }
            });
            // A reader that does not read loses events; the switch does not wait for it.
            let node = Node::new(settings, None, move |event| drop(tell.try_send(event)))?;
            if let Some(at) = listen {
                node.listen(open("accepting calls", at, quiet)?);
            }
            for (at, call) in places {
                node.place(open("accepting TCP connections", at, quiet)?, call);
            }
            if !quiet && listen.is_none() {
                note!("switching calls; press ctrl-c to stop");
            }
            node.run().await;
            Ok(ExitCode::SUCCESS)
        })
    }
}

fn open(what: &str, at: SocketAddr, quiet: bool) -> Result<tokio::net::TcpListener, String> {
    let failed = |error| cannot_listen(at, &error);
    let listener = socket::listen(at).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    if !quiet {
        note!("{what} on {at}; press ctrl-c to stop");
    }
    Ok(listener)
}

/// Formats an event as one line.
fn line(event: &NodeEvent) -> String {
    let address =
        |address: &str| if address.is_empty() { "no address".to_owned() } else { address.to_owned() };
    match event {
        NodeEvent::Up { line } => format!("line {line}: up"),
        NodeEvent::Down { line, why } => format!("line {line}: down: {why}"),
        NodeEvent::Open { circuit, from, calling, called, to } => {
            let (calling, called) = (address(calling), address(called));
            format!("circuit {circuit}: {calling} on {from} calls {called}, connected to {to}")
        }
        NodeEvent::Refused { circuit, from, calling, called, why } => {
            let (calling, called) = (address(calling), address(called));
            format!("circuit {circuit}: {calling} on {from} calls {called}, refused: {why}")
        }
        NodeEvent::Closed { circuit, bytes_to_called, bytes_to_calling, cause, diagnostic } => format!(
            "circuit {circuit}: ended, {bytes_to_called} bytes to the called side, {bytes_to_calling} bytes to \
             the calling side: cause 0x{cause:02x}, diagnostic {diagnostic}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_file_is_read() {
        let text = r#"
            circuits = 40
            [xot]
            listen = "127.0.0.1:1998"
            [[line]]
            name = "exchange"
            address = "serial:/dev/ttyS0,9600"
            role = "dce"
            channels = "1-32"
            packet-bytes = 256
            window = 4
            t1-ms = 5000
            [[route]]
            called = "4567*"
            from = "xot"
            to = "exchange"
            called-as = "12"
            [[route]]
            called = "*"
            to = "tpkt:192.0.2.7"
            [[place]]
            listen = "127.0.0.1:1102"
            called = "45678901"
        "#;
        let file = File::parse(text).map_err(|(_, wrong)| wrong).expect("it is valid");
        let (name, line) = &file.settings.lines[0];
        assert_eq!(
            (name.as_str(), line.role, line.packet_bytes, line.window),
            ("exchange", Role::Dce, 256, 4)
        );
        assert_eq!((line.channels.clone(), line.reply_timeout), (1..=32, Duration::from_secs(5)));
        let [first, second] = &file.settings.routes[..] else { panic!("two routes") };
        assert_eq!((&first.from, &first.to), (&Some(Origin::Xot), &Target::Line("exchange".into())));
        assert_eq!(first.called_as, Some("12".parse().expect("digits")));
        assert_eq!(second.to, Target::Tpkt { host: "192.0.2.7".into(), port: 102 });
        assert_eq!((file.settings.circuits_max, file.places.len()), (40, 1));
        assert!(file.listen.is_some());
    }

    #[test]
    fn errors_name_the_line_and_what_is_wanted() {
        for (text, at, words) in [
            ("[[line]]\nname = \"a\"\naddress = \"modem:1\"", 3, "serial:"),
            ("[[line]]\nname = \"a\"\naddress = \"ether:e\"\nwindow = 8", 2, "modulo 128"),
            ("[[line]]\nname = \"a\"\naddress = \"ether:e\"\npacket-bytes = 100", 4, "power of two"),
            ("[[line]]\nname = \"a\"\naddress = \"ether:e\"\nrole = \"x\"", 4, "dte"),
            ("[[line]]\nname = \"xot\"\naddress = \"ether:e\"", 2, "name"),
            ("[[route]]\ncalled = \"*\"\nto = \"a\"", 3, "no line 'a'"),
            ("[[route]]\ncalled = \"4x\"\nto = \"xot:h\"", 2, "an X.121 address"),
            ("[[route]]\ncalled = \"*\"\nto = \"udp:h\"", 3, "tpkt:HOST"),
            ("[[place]]\nlisten = \"1102\"\ncalled = \"4\"", 2, "1102"),
            ("speed = 1", 1, "unknown field"),
            ("circuits = 0", 1, "1 to 10000"),
        ] {
            let (place, wrong) = File::parse(text).map(drop).expect_err(text);
            let line = text.as_bytes()[..place].iter().filter(|byte| **byte == b'\n').count() + 1;
            assert!((line, wrong.contains(words)) == (at, true), "{text:?}: line {line}: {wrong}");
        }
    }
}
