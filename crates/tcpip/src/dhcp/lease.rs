//! A lease, and whether what a server offers is plausible.

use crate::ip::Prefix;
use crate::wire::dhcp::{Header, Options, option};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use kiban_base::{Instant, SecureRng};

/// Shortest lease accepted. A shorter one would be renewed every few seconds.
const LEASE_MIN: Duration = Duration::from_secs(30);
/// Shortest T1 and T2 accepted.
const RENEW_MIN: Duration = Duration::from_secs(10);
/// Shortest subnet mask accepted, bits. A shorter one would make most of the Internet a neighbour.
const MASK_BITS_MIN: u8 = 8;
/// Smallest MTU accepted, bytes: every host accepts packets of this size (RFC 791 §3.1), and a smaller value
/// would only slow connections down.
const MTU_BYTES_MIN: usize = 576;
/// Maximum number of name servers kept; libc's resolver uses as many (resolv.conf(5)).
const NAME_SERVERS_MAX: usize = 3;

/// A lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Our address.
    pub address: Ipv4Addr,
    /// The subnet.
    pub prefix: Prefix,
    /// The server.
    pub server: Ipv4Addr,
    /// The default router.
    pub router: Option<Ipv4Addr>,
    /// The name servers, in order of preference.
    pub name_servers: Vec<Ipv4Addr>,
    /// The MTU, bytes; not more than the link's.
    pub mtu_bytes: usize,
    /// T1: when the lease is renewed.
    pub renew_at: Instant,
    /// T2: when the lease is rebound.
    pub rebind_at: Instant,
    /// When the lease expires.
    pub expires_at: Instant,
}

/// Returns whether a host may have an address.
fn is_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    // 240/4 is reserved; its last address is the limited broadcast.
    first != 0 && first < 240 && !address.is_loopback() && !address.is_multicast()
}

/// Returns whether an address is the net's own or its broadcast address; nets of one or two addresses have
/// none (RFC 3021).
fn is_end(address: Ipv4Addr, bits: u8) -> bool {
    let host = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
    bits < 31 && (address.to_bits() & host == 0 || address.to_bits() & host == host)
}

/// Returns the length of a mask, or `None` if it is not contiguous or too short.
fn bits_of(mask: Ipv4Addr) -> Option<u8> {
    let bits = mask.to_bits().leading_ones() as u8;
    let is_contiguous = mask.to_bits().count_ones() == bits.into();
    (is_contiguous && bits >= MASK_BITS_MIN).then_some(bits)
}

/// The length of the mask by the class of the address, if the server names none (RFC 950 §2.1).
fn class_bits(address: Ipv4Addr) -> u8 {
    match address.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        _ => 24,
    }
}

fn overlap(one: Prefix, other: Prefix) -> bool {
    one.contains(other.address()) || other.contains(one.address())
}

impl Lease {
    /// Returns what `server` offers in a message, if it is plausible, and the number of options that were
    /// ignored. The times count from `from`. `others` are the nets of other ports, which the lease must not
    /// overlap.
    pub(super) fn of(
        header: &Header,
        options: &Options<'_>,
        (server, from, link_mtu): (Ipv4Addr, Instant, usize),
        others: &[Prefix],
        rng: &mut SecureRng,
    ) -> Option<(Lease, u64)> {
        let address = header.yours;
        let bits = match options.get(option::MASK) {
            Some(_) => bits_of(options.address(option::MASK)?)?,
            None => class_bits(address),
        };
        let prefix = Prefix::new(address.into(), bits);
        if !is_host(address) || is_end(address, bits) || !is_host(server) {
            return None;
        }
        if others.iter().any(|other| overlap(*other, prefix)) {
            return None;
        }
        let seconds = options.seconds(option::LEASE)?;
        let span = Duration::from_secs(seconds.into());
        if span < LEASE_MIN {
            return None;
        }
        let mut ignored = 0;
        // A router outside the subnet cannot be reached, except in a subnet of one address, where every
        // neighbour is outside.
        let is_router = |router: &Ipv4Addr| {
            let is_near = bits == 32 || (prefix.contains(IpAddr::V4(*router)) && !is_end(*router, bits));
            is_near && is_host(*router) && *router != address
        };
        let routers = options.addresses(option::ROUTERS);
        let router = routers.first().copied().filter(is_router);
        ignored += u64::from(router.is_none() && !routers.is_empty());
        let mut name_servers = options.addresses(option::NAME_SERVERS);
        let named = name_servers.len();
        name_servers.retain(|server| is_host(*server));
        ignored += (named - name_servers.len()) as u64;
        name_servers.truncate(NAME_SERVERS_MAX);
        let mtu = options.get(option::MTU).map(|bytes| <[u8; 2]>::try_from(bytes).map(u16::from_be_bytes));
        let mtu_bytes = match mtu {
            None => link_mtu,
            Some(Ok(mtu)) if usize::from(mtu) >= MTU_BYTES_MIN => link_mtu.min(mtu.into()),
            Some(_) => {
                ignored += 1;
                link_mtu
            }
        };
        let (renew_at, rebind_at, expires_at) = if seconds == u32::MAX {
            (Instant::NEVER, Instant::NEVER, Instant::NEVER)
        } else {
            let time = |code| options.seconds(code).map(|seconds| Duration::from_secs(seconds.into()));
            // RFC 2131 §4.4.5: half and seven eighths of the lease, unless the server gives other times.
            let is_time = |time: &Duration, until| (RENEW_MIN..until).contains(time);
            let rebind = time(option::REBINDING).filter(|time| is_time(time, span)).unwrap_or(span * 7 / 8);
            let renew = time(option::RENEWAL).filter(|time| is_time(time, rebind));
            let renew = renew.unwrap_or((span / 2).min(rebind * 4 / 7));
            // Clients that started together must not renew together.
            let renew = renew.mul_f64(1.0 - 0.05 * rng.unit());
            (from + renew, from + rebind, from + span)
        };
        let lease = Lease {
            address,
            prefix,
            server,
            router,
            name_servers,
            mtu_bytes,
            renew_at,
            rebind_at,
            expires_at,
        };
        Some((lease, ignored))
    }

    /// Returns whether another lease configures the port in the same way.
    pub(super) fn is_like(&self, other: &Lease) -> bool {
        let part = |lease: &Lease| (lease.address, lease.prefix, lease.router, lease.mtu_bytes);
        part(self) == part(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dhcp::{HEADER_BYTES, end, push_option};
    use kiban_base::RngKey;
    use kiban_base::ethernet::Mac;

    fn offer(address: &str, fill: &[(u8, &[u8])], others: &[&str]) -> Option<(Lease, u64)> {
        let header = Header {
            is_reply: true,
            xid: 1,
            seconds: 0,
            broadcast: false,
            client: Ipv4Addr::UNSPECIFIED,
            yours: address.parse().unwrap(),
            next_server: Ipv4Addr::UNSPECIFIED,
            relay: Ipv4Addr::UNSPECIFIED,
            mac: Mac::default(),
        };
        let mut bytes = alloc::vec![0; HEADER_BYTES];
        header.write(&mut bytes);
        fill.iter().for_each(|(code, data)| push_option(&mut bytes, *code, data));
        end(&mut bytes);
        let others: Vec<Prefix> = others.iter().map(|other| other.parse().unwrap()).collect();
        let options = Options::read(&bytes).unwrap();
        let server = ([10, 0, 0, 1].into(), Instant::ZERO, 1500);
        Lease::of(&header, &options, server, &others, &mut SecureRng::new(RngKey::for_simulation(1)))
    }

    const HOUR: (u8, &[u8]) = (option::LEASE, &[0, 0, 14, 16]);
    const MASK: (u8, &[u8]) = (option::MASK, &[255, 255, 255, 0]);

    #[test]
    fn a_lease_with_an_implausible_address_mask_or_time_is_rejected() {
        for bad in ["0.0.0.0", "0.1.2.3", "127.0.0.5", "224.0.0.1", "240.0.0.1", "255.255.255.255"] {
            assert_eq!(offer(bad, &[HOUR, MASK], &[]), None, "{bad}");
        }
        for bad in ["10.0.0.0", "10.0.0.255"] {
            assert_eq!(offer(bad, &[HOUR, MASK], &[]), None, "{bad} is not a host of its net");
        }
        let good = "10.0.0.5";
        for mask in [&[0, 0, 0, 0][..], &[254, 0, 0, 0], &[255, 0, 255, 0], &[255, 255, 255]] {
            assert_eq!(offer(good, &[HOUR, (option::MASK, mask)], &[]), None, "{mask:?}");
        }
        assert_eq!(offer(good, &[MASK], &[]), None, "no time");
        assert_eq!(offer(good, &[MASK, (option::LEASE, &[0, 0, 0, 29])], &[]), None, "too short");
        for other in ["10.0.0.9/24", "10.0.0.1/32", "10.9.9.9/8"] {
            assert_eq!(offer(good, &[HOUR, MASK], &[other]), None, "{other} is the net of another port");
        }
        assert!(offer(good, &[HOUR, MASK], &["10.0.1.1/24"]).is_some());
    }

    #[test]
    fn implausible_parameters_are_ignored() {
        type Row<'a> = (&'a [u8], u8, &'a [u8], Option<[u8; 4]>, usize, usize, u64);
        let (router, mtu, names) = (option::ROUTERS, option::MTU, option::NAME_SERVERS);
        let (net, one) = (&[255, 255, 255, 0][..], &[255, 255, 255, 255][..]);
        let rows: &[Row<'_>] = &[
            (net, router, &[10, 0, 0, 1], Some([10, 0, 0, 1]), 1500, 0, 0),
            (net, router, &[10, 0, 1, 1], None, 1500, 0, 1),
            (net, router, &[10, 0, 0, 255], None, 1500, 0, 1),
            (net, router, &[10, 0, 0, 5], None, 1500, 0, 1),
            (one, router, &[192, 0, 2, 1], Some([192, 0, 2, 1]), 1500, 0, 0),
            (one, router, &[127, 0, 0, 1], None, 1500, 0, 1),
            (net, mtu, &[5, 0], None, 1280, 0, 0),
            (net, mtu, &[0x23, 0x28], None, 1500, 0, 0),
            (net, mtu, &[2, 0], None, 1500, 0, 1),
            (net, mtu, &[5], None, 1500, 0, 1),
            (net, names, &[9, 9, 9, 9, 0, 0, 0, 0, 127, 0, 0, 1, 8, 8, 8, 8], None, 1500, 2, 2),
        ];
        for (mask, code, data, router, mtu, names, ignored) in rows {
            let (lease, its) = offer("10.0.0.5", &[HOUR, (option::MASK, mask), (*code, data)], &[]).unwrap();
            let got = (lease.router.map(|router| router.octets()), lease.mtu_bytes, lease.name_servers.len());
            assert_eq!((got, its), ((*router, *mtu, *names), *ignored), "{code} {data:?}");
        }
    }

    #[test]
    fn renewal_precedes_rebinding_precedes_expiry_whatever_the_server_says() {
        let seconds = |value: u32| value.to_be_bytes();
        let never = Instant::NEVER;
        for (t1, t2) in [(0, 0), (9000, 1), (1, 9000), (3600, 3600), (u32::MAX, u32::MAX), (100, 200)] {
            let (t1, t2) = (seconds(t1), seconds(t2));
            let fill = [HOUR, MASK, (option::RENEWAL, &t1[..]), (option::REBINDING, &t2[..])];
            let (lease, _) = offer("10.0.0.5", &fill, &[]).unwrap();
            assert!(lease.renew_at <= lease.rebind_at && lease.rebind_at < lease.expires_at, "{lease:?}");
            assert!(lease.renew_at >= Instant::ZERO + RENEW_MIN / 2, "{lease:?}");
            assert_eq!(lease.expires_at, Instant::ZERO + Duration::from_secs(3600));
        }
        let (lease, _) = offer("10.0.0.5", &[MASK, (option::LEASE, &[255; 4])], &[]).unwrap();
        assert_eq!((lease.renew_at, lease.rebind_at, lease.expires_at), (never, never, never));
        // Without a mask, the class decides.
        for (address, bits) in [("10.0.0.5", 8), ("172.16.0.5", 16), ("192.168.0.5", 24)] {
            assert_eq!(offer(address, &[HOUR], &[]).unwrap().0.prefix.bits(), bits);
        }
    }
}
