//! Settings of a stack.

use kiban_board::{BoardConfig, IpPortConfig, MemoryConfig, PortAddress, PortConfig};
use kiban_link::{LinkTraits, SEGMENT_BYTES};
use kiban_tcpip::ip::Prefix;
use kiban_tcpip::tcp;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Maximum number of packets that wait for the device.
const PACKETS_MAX: usize = 256;
/// The shortest MTU: every IPv4 host can receive packets of this length (RFC 1122 §3.3.2).
const MTU_BYTES_MIN: usize = 576;
/// Addresses of a stack that has no others. They appear only in ICMP errors (RFC 7600 §4.8; the discard
/// prefix of RFC 6666).
const DUMMY4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8));
const DUMMY6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1));

/// Settings of a stack.
///
/// The defaults suit a proxy on a TUN device: 64 MiB of packet memory, and buffers of 1 MiB per direction of
/// each stream, which shrink to shares of the memory if there are many streams.
#[derive(Clone, Debug)]
pub struct Config {
    /// The stack's addresses. A stack without addresses can only intercept.
    pub addresses: Vec<IpAddr>,
    /// Packet memory, which is allocated when the stack starts. If it runs out, writers wait, and received
    /// packets stay in the device.
    pub memory: MemoryConfig,
    /// Settings of TCP. The stack derives `mss`, `segment_bytes_max` and `segmentation_offload` from the
    /// device.
    pub tcp: tcp::Config,
    /// Maximum number of intercepted UDP flows; datagrams of further ones are dropped. Also the maximum
    /// number of UDP sockets.
    pub flows_max: usize,
    /// Maximum number of received datagrams that wait in a socket or a flow; later ones are dropped.
    pub datagrams_max: usize,
    /// How long the task continues, at most, after everything of the stack has been dropped while connections
    /// have not ended.
    pub linger: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            addresses: Vec::new(),
            // The larger the pages, the fewer pieces a TUN device has to gather and scatter.
            memory: MemoryConfig {
                page_bytes: 16 << 10,
                transmit_bytes: 32 << 20,
                receive_bytes: 32 << 20,
                pdus: 16_384,
            },
            tcp: tcp::Config {
                send_buffer_bytes: 1 << 20,
                receive_buffer_bytes: 1 << 20,
                // The peers of a proxy are mostly behind one address.
                fairness: tcp::Fairness::Flow,
                // Requests of an interceptor wait here for its decision.
                backlog: 4096,
                ..tcp::Config::default()
            },
            flows_max: 1024,
            datagrams_max: 64,
            linger: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// Returns the default settings, with addresses.
    pub fn at(addresses: impl IntoIterator<Item = IpAddr>) -> Config {
        Config { addresses: addresses.into_iter().collect(), ..Config::default() }
    }

    /// Returns the settings of a board on one device.
    ///
    /// # Errors
    /// `InvalidInput`: the MTU is out of range.
    pub(crate) fn board(&self, device: LinkTraits) -> io::Result<BoardConfig> {
        let LinkTraits { mtu_bytes, whole_segments } = device;
        if !(MTU_BYTES_MIN..=usize::from(u16::MAX)).contains(&mtu_bytes) {
            let why = format!("the device's MTU is {mtu_bytes}; it must be {MTU_BYTES_MIN} to 65535");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let of = |is_ours: fn(&IpAddr) -> bool, dummy: IpAddr| {
            let mut own: Vec<IpAddr> = self.addresses.iter().copied().filter(is_ours).collect();
            if own.is_empty() {
                own.push(dummy);
            }
            own
        };
        let (four, six) = (of(IpAddr::is_ipv4, DUMMY4), of(IpAddr::is_ipv6, DUMMY6));
        // Packets to everywhere have the first address of their family as source, unless a socket has
        // another.
        let on_port = |address: IpAddr, prefix: Prefix| PortAddress { port: 0, address, prefix };
        let others = four[1..].iter().chain(&six[1..]).map(|own| on_port(*own, Prefix::new(*own, 128)));
        let mut tcp = self.tcp.clone();
        tcp.mss = (mtu_bytes - 40) as u16;
        tcp.segment_bytes_max = SEGMENT_BYTES;
        tcp.segmentation_offload = !whole_segments;
        Ok(BoardConfig {
            memory: self.memory,
            tcp,
            udp_sockets_max: self.flows_max,
            datagrams_max: self.datagrams_max,
            ports: vec![PortConfig::Ip(IpPortConfig {
                address: four[0],
                prefix: everything(four[0]),
                mtu_bytes,
                packets_max: PACKETS_MAX,
                cuts: !whole_segments,
                merges: !whole_segments,
                believe_sums: true,
            })],
            addresses: std::iter::once(on_port(six[0], everything(six[0]))).chain(others).collect(),
            ..BoardConfig::default()
        })
    }
}

/// Returns the prefix of all addresses of a family: a stack has one device.
fn everything(like: IpAddr) -> Prefix {
    let none = match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    Prefix::new(none, 0)
}
