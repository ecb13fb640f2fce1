//! The name servers of this host (resolv.conf(5)).

use std::net::{SocketAddr, SocketAddrV6, UdpSocket};

/// The port of name servers.
const DOMAIN: u16 = 53;
/// The number of servers that count, as in glibc.
const SERVERS_MAX: usize = 3;

/// Returns the name servers that the text of a resolv.conf lists.
pub fn name_servers(text: &str) -> Vec<SocketAddr> {
    let words = text.lines().filter_map(|line| line.strip_prefix("nameserver")?.split_whitespace().next());
    words.filter_map(name_server).take(SERVERS_MAX).collect()
}

/// Reads an address, perhaps with its interface, as in `fe80::1%eth0`.
fn name_server(word: &str) -> Option<SocketAddr> {
    let Some((address, interface)) = word.split_once('%') else {
        return Some(SocketAddr::new(word.parse().ok()?, DOMAIN));
    };
    let index = || {
        let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
        rustix::net::netdevice::name_to_index(socket, interface).ok()
    };
    let scope = interface.parse().ok().or_else(index)?;
    Some(SocketAddrV6::new(address.parse().ok()?, DOMAIN, 0, scope).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_name_servers_count() {
        let text = "# nameserver 1.1.1.1\nsearch x\nnameserver\t192.0.2.1 # router\nnameserver x\nnameserver \
            127.0.0.53\nnameserver fe80::1%lo\nnameserver 192.0.2.2\n";
        let found: Vec<String> = name_servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.1:53", "127.0.0.53:53", "[fe80::1%1]:53"]);
        assert_eq!(name_servers("search x\nnameserver fe80::1%nowhere\n"), []);
    }
}
