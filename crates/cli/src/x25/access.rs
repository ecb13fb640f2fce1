//! How a command reaches X.25: a line of this host, or an XOT router.

use crate::osi::peer::{Host, cannot_listen};
use crate::output::note;
use clap::{Args, ValueEnum};
use kiban_osi::lapb;
use kiban_osi::wire::x25::FACILITIES_BYTES_MAX;
use kiban_osi::wire::xot;
use kiban_osi::x25::{Address, AddressBlock, Both, Call, Config, Facilities, FastSelect, Modulo, Role};
use kiban_osi_runtime::relay::Called;
use kiban_osi_runtime::socket;
use kiban_osi_runtime::x25::{
    BoxedStream, Handle, LineAddress, LineSettings, Node, NodeEvent, NodeSettings, Origin, SwitchRoute,
    Target,
};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The role of this end of a line.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Side {
    /// The terminal.
    Dte,
    /// The network, or the other end of a line between two terminals.
    Dce,
}

/// Settings of a line.
#[derive(Args, Clone)]
pub(super) struct LineArgs {
    /// Role of this end of the line: dte, or dce if the other end is a terminal.
    #[arg(long, value_enum, default_value = "dte")]
    pub(super) role: Side,
    /// Two-way logical channels of the line, as FIRST-LAST.
    #[arg(long, default_value = "1-255", value_name = "FIRST-LAST", value_parser = channels)]
    pub(super) channels: Channels,
    /// k: number of unacknowledged frames on the line: up to 7, or 127 with modulo 128.
    #[arg(long, default_value_t = 7, value_name = "FRAMES", value_parser = clap::value_parser!(u8).range(1..=127))]
    pub(super) link_window: u8,
    /// Sequence numbering of the line's frames: 8 or 128.
    #[arg(long, default_value = "8", value_parser = modulo)]
    pub(super) link_modulo: Modulo,
    /// T1: how long to wait for the answer to a frame, in milliseconds.
    #[arg(long, default_value_t = 3000, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub(super) t1: u64,
    /// N2: how often to send a frame before the link is reset.
    #[arg(long, default_value_t = 10, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) n2: u32,
}

/// Sizes of calls and lines.
#[derive(Args, Clone)]
pub(super) struct SizeArgs {
    /// Packet size in octets: a power of two from 16 to 4096.
    #[arg(long, default_value_t = 128, value_parser = packet_bytes)]
    pub(super) packet_bytes: u16,
    /// Window in packets: up to 7, or 127 with modulo 128.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=127))]
    pub(super) window: u8,
    /// Sequence numbering of packets: 8 or 128.
    #[arg(long, default_value = "8", value_parser = modulo)]
    pub(super) modulo: Modulo,
}

/// The first and the last logical channel.
pub(super) type Channels = RangeInclusive<u16>;

pub(super) fn channels(text: &str) -> Result<Channels, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first @ 1..=4095), Ok(last @ 1..=4095)) if first <= last => Ok(first..=last),
        _ => Err("write FIRST-LAST, from 1 to 4095".into()),
    }
}

pub(super) fn modulo(text: &str) -> Result<Modulo, String> {
    match text {
        "8" => Ok(Modulo::Eight),
        "128" => Ok(Modulo::OneTwentyEight),
        _ => Err("write 8 or 128".into()),
    }
}

pub(super) fn packet_bytes(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(bytes @ 16..=4096) if u16::is_power_of_two(bytes) => Ok(bytes),
        _ => Err("must be 16, 32, 64, 128, 256, 512, 1024, 2048 or 4096".into()),
    }
}

/// Returns LAPB's modulo for a number of packets.
pub(super) fn link_modulo(of: Modulo) -> lapb::Modulo {
    match of {
        Modulo::Eight => lapb::Modulo::Eight,
        Modulo::OneTwentyEight => lapb::Modulo::OneTwentyEight,
    }
}

/// Checks windows against their modulo.
pub(super) fn check_windows(line: &LineSettings) -> Result<(), String> {
    if line.window > line.modulo.mask() {
        return Err(format!("a window of {} packets needs modulo 128", line.window));
    }
    if line.link_window > line.link_modulo.mask() {
        return Err(format!("a link window of {} frames needs a link modulo of 128", line.link_window));
    }
    Ok(())
}

/// Where calls go, or come from.
#[derive(Args, Clone)]
#[group(id = "access", required = true, multiple = false)]
pub(super) struct Place {
    /// Use this line: `serial:DEVICE[,SPEED]`, `tcp:HOST:PORT`, `tcp-listen:ADDRESS:PORT`,
    /// `ether:INTERFACE[,MAC]`, `hdlc:INTERFACE` or `x25:INTERFACE`.
    #[arg(long, value_name = "LINE")]
    line: Option<LineAddress>,
    /// Use XOT: the router or `kiban x25 switch` to call; for `listen`, the address at which to accept calls.
    #[arg(long, value_name = "HOST[:PORT]")]
    xot: Option<Host>,
}

/// How to reach X.25.
#[derive(Args, Clone)]
pub(super) struct Access {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    sizes: SizeArgs,
    #[command(flatten)]
    line_args: LineArgs,
    /// Timeout in seconds for the line, and for each state of a call.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
}

/// Parameters of a call.
#[derive(Args, Clone)]
pub(super) struct CallArgs {
    /// Calling address.
    #[arg(long, value_name = "DIGITS")]
    calling: Option<Address>,
    /// Call user data, in hexadecimal, such as 01000000 for a PAD's calls.
    #[arg(long, value_name = "HEX", value_parser = user_data)]
    user_data: Option<UserData>,
    /// Request reverse charging.
    #[arg(long)]
    reverse_charging: bool,
    /// Further facilities, in hexadecimal as X.25 encodes them: 0312 for closed user group 12, 02BB for the
    /// throughput class of 19200 bit/s, C6 with a length and a text for a network user.
    #[arg(long, value_name = "HEX", value_parser = facilities)]
    facilities: Option<Facilities>,
}

/// Call user data, as octets.
type UserData = std::sync::Arc<[u8]>;

fn user_data(text: &str) -> Result<UserData, String> {
    match crate::osi::peer::octets(text) {
        Some(octets) if octets.len() <= 128 => Ok(octets.into()),
        _ => Err("write up to 128 octets in pairs of hexadecimal digits".into()),
    }
}

fn facilities(text: &str) -> Result<Facilities, String> {
    let octets = crate::osi::peer::octets(text).filter(|octets| octets.len() <= FACILITIES_BYTES_MAX);
    let octets = octets
        .ok_or_else(|| format!("write up to {FACILITIES_BYTES_MAX} octets in pairs of hexadecimal digits"))?;
    Facilities::read(&octets)
        .map_err(|_| "the last facility is incomplete: a code is followed by its value".into())
}

impl CallArgs {
    /// Returns the call; user data longer than 16 octets needs fast select.
    pub(super) fn call(&self, called: Address) -> Call {
        let addresses = AddressBlock { called, calling: self.calling.unwrap_or(Address::NONE) };
        let user_data = self.user_data.as_deref().unwrap_or_default().to_vec();
        let mut facilities = self.facilities.clone().unwrap_or_default();
        if user_data.len() > 16 && facilities.fast_select == FastSelect::No {
            facilities.fast_select = FastSelect::Unrestricted;
        }
        facilities.reverse_charging |= self.reverse_charging;
        Call { addresses, facilities, user_data }
    }
}

/// The line of a command, which is taken down at the command's end.
pub(super) struct Line(Option<Handle>);

impl Line {
    /// Takes the link down. A peer that does not answer is given up after a while.
    pub(super) async fn close(&self) {
        if let Some(handle) = &self.0 {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, handle.close()).await;
        }
    }
}

/// How long a command waits at its end for the peer of its line.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

impl Access {
    /// Returns the packet layer's configuration on this command's circuits.
    pub(super) fn config(&self) -> Config {
        let mut config = Config::new(Role::Dte);
        config.modulo = self.sizes.modulo;
        config.window_max = self.sizes.modulo.mask();
        config.unit_bytes_max = 64 << 10;
        config.outgoing_bytes_max = 128 << 10;
        config.timers.clear = self.patience();
        config.timers.call = self.patience();
        config
    }

    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }

    /// Adds sizes to a call, unless they are X.25's defaults, and checks them.
    pub(super) fn with_sizes(&self, mut call: Call) -> Result<Call, String> {
        if self.sizes.window > self.sizes.modulo.mask() {
            return Err(format!("a window of {} packets needs --modulo 128", self.sizes.window));
        }
        let SizeArgs { packet_bytes, window, .. } = self.sizes;
        let (bytes, packets) = (&mut call.facilities.packet_bytes, &mut call.facilities.window);
        *bytes = (packet_bytes != 128).then_some(Both::same(packet_bytes)).or(*bytes);
        *packets = (window != 2).then_some(Both::same(window)).or(*packets);
        Ok(call)
    }

    fn line_settings(&self, address: &LineAddress) -> Result<LineSettings, String> {
        let LineArgs { role, channels, link_window, link_modulo: of, t1, n2 } = &self.line_args;
        let role = match role {
            Side::Dte => Role::Dte,
            Side::Dce => Role::Dce,
        };
        let line = LineSettings {
            modulo: self.sizes.modulo,
            packet_bytes: self.sizes.packet_bytes,
            window: self.sizes.window,
            channels: channels.clone(),
            link_modulo: link_modulo(*of),
            link_window: *link_window,
            reply_timeout: Duration::from_millis(*t1),
            attempts: *n2,
            state_timeout: Some(self.patience()),
            ..LineSettings::new(address.clone(), role)
        };
        check_windows(&line)?;
        Ok(line)
    }

    /// Opens a stream for a call: to the router, or into a node with the line, when the line is up.
    pub(super) async fn open(&self) -> Result<(BoxedStream, Line), String> {
        if let Some(Host { name, port }) = &self.place.xot {
            let port = port.unwrap_or(xot::PORT);
            let connects = tokio::net::TcpStream::connect((name.as_str(), port));
            let stream = tokio::time::timeout(self.patience(), connects).await;
            let stream = stream.map_err(|_| format!("{name}:{port} does not answer"))?;
            let stream = stream.map_err(|error| format!("cannot connect to {name}:{port}: {error}"))?;
            // Packets are short, and must not wait for each other.
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            return Ok((Box::new(stream), Line(None)));
        }
        let (node, mut state) = self.node(None, Target::Line(LINE.into()), Origin::Local)?;
        let handle = node.handle();
        tokio::spawn(node.run());
        let wait = async {
            let mut is_told = false;
            while !matches!(*state.borrow_and_update(), LineState::Up) {
                if let (false, LineState::Down(why)) = (is_told, &*state.borrow()) {
                    note!("the line is down: {why}; waiting for it");
                    is_told = true;
                }
                state.changed().await?;
            }
            Ok::<(), watch::error::RecvError>(())
        };
        let is_up = tokio::time::timeout(self.patience(), wait).await.is_ok_and(|up| up.is_ok());
        if !is_up {
            let why = match &*state.borrow() {
                LineState::Down(why) => why.clone(),
                LineState::Up | LineState::New => "the peer does not answer".to_owned(),
            };
            return Err(format!("the line did not come up within {} s: {why}", self.patience));
        }
        let stream = handle.open().await.map_err(|error| error.to_string())?;
        Ok((stream, Line(Some(handle))))
    }

    /// Accepts calls: on XOT connections to this address, or on the line. If `shown`, reports where, and the
    /// state of the line.
    pub(super) async fn listen(&self, shown: bool) -> Result<(mpsc::Receiver<BoxedStream>, Line), String> {
        let say = |at: &str| {
            if shown {
                note!("accepting calls on {at}; press ctrl-c to stop");
            }
        };
        let (tell, calls) = mpsc::channel(1);
        if let Some(Host { name, port }) = &self.place.xot {
            let port = port.unwrap_or(xot::PORT);
            let mut found = tokio::net::lookup_host((name.as_str(), port))
                .await
                .map_err(|error| format!("cannot listen on {name}: {error}"))?;
            let at: SocketAddr = found.next().ok_or_else(|| format!("{name} has no address"))?;
            let failed = |error| cannot_listen(at, &error);
            let listener = socket::listen(at).map_err(failed)?;
            let at = listener.local_addr().map_err(failed)?.to_string();
            let settings = NodeSettings {
                routes: vec![SwitchRoute {
                    called: Called::Any,
                    from: None,
                    to: Target::Local,
                    called_as: None,
                }],
                ..self.settings()
            };
            let node = Node::new(settings, Some(tell), |_| {})?;
            node.listen(listener);
            say(&at);
            tokio::spawn(node.run());
            return Ok((calls, Line(None)));
        }
        let (node, mut state) = self.node(Some(tell), Target::Local, Origin::Line(LINE.into()))?;
        say(&self.place.line.as_ref().map_or_else(String::new, LineAddress::to_string));
        let handle = node.handle();
        tokio::spawn(node.run());
        tokio::spawn(async move {
            while shown && state.changed().await.is_ok() {
                match &*state.borrow() {
                    LineState::Up => note!("the line is up"),
                    LineState::Down(why) => note!("the line is down: {why}"),
                    LineState::New => {}
                }
            }
        });
        Ok((calls, Line(Some(handle))))
    }

    fn settings(&self) -> NodeSettings {
        NodeSettings { state_timeout: self.patience(), ..NodeSettings::default() }
    }

    fn node(
        &self,
        local: Option<mpsc::Sender<BoxedStream>>,
        to: Target,
        from: Origin,
    ) -> Result<(Node, watch::Receiver<LineState>), String> {
        let address = self.place.line.as_ref().ok_or("give --line or --xot")?;
        let settings = NodeSettings {
            lines: vec![(LINE.into(), self.line_settings(address)?)],
            routes: vec![SwitchRoute { called: Called::Any, from: Some(from), to, called_as: None }],
            ..self.settings()
        };
        let (tell, state) = watch::channel(LineState::New);
        let node = Node::new(settings, local, move |event| match event {
            NodeEvent::Up { .. } => drop(tell.send_replace(LineState::Up)),
            NodeEvent::Down { why, .. } => drop(tell.send_replace(LineState::Down(why))),
            _ => {}
        })?;
        Ok((node, state))
    }
}

/// The name of the line in the command's node.
const LINE: &str = "line";

/// The state of the line.
#[derive(Clone, PartialEq, Eq)]
enum LineState {
    New,
    Up,
    Down(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facilities_are_added_to_those_of_other_options() {
        let facilities = Some(facilities("0312420808").expect("whole facilities"));
        let args = CallArgs { calling: None, user_data: None, reverse_charging: true, facilities };
        let call = args.call("45".parse().expect("digits"));
        let Facilities { packet_bytes, reverse_charging, others, .. } = call.facilities;
        assert_eq!((packet_bytes, reverse_charging), (Some(Both::same(256)), true));
        assert_eq!(others, [3, 0x12]);
        assert!(super::facilities("C605ab").is_err_and(|error| error.contains("incomplete")));
    }
}
