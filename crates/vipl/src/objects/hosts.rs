//! The contents of a hosts file.

use crate::naming::device::host_named;
use kiban_vi_runtime::HostAddress;

/// Hosts and their names.
#[derive(Default, Debug)]
pub(crate) struct Hosts {
    pub(crate) lines: Vec<(HostAddress, Vec<String>)>,
}

impl Hosts {
    pub(crate) fn of(text: &str, own: &HostAddress) -> Hosts {
        let line = |line: &str| {
            let mut words = line.split('#').next()?.split_whitespace();
            let host = host_named(words.next()?, own)?;
            Some((host, words.map(String::from).collect()))
        };
        Hosts { lines: text.lines().filter_map(line).collect() }
    }

    pub(crate) fn of_name(&self, name: &str) -> impl Iterator<Item = HostAddress> {
        let is_so_called = |names: &[String]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
        self.lines.iter().filter(move |(_, names)| is_so_called(names)).map(|(host, _)| host.clone())
    }

    pub(crate) fn of_host(&self, host: &HostAddress) -> Option<&str> {
        self.lines
            .iter()
            .find(|(known, _)| known == host)
            .and_then(|(_, names)| names.first())
            .map(|name| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_file_is_read_line_by_line() {
        let own = HostAddress::Name(b"me".to_vec());
        let text = "# comment\nserver  one uno # the first\n\nother two\n192.0.2.1:7 three\nserver again\n";
        let hosts = Hosts::of(text, &own);
        let name = |name: &str| HostAddress::Name(name.as_bytes().to_vec());
        assert_eq!(hosts.of_name("UNO").collect::<Vec<_>>(), [name("server")]);
        assert_eq!(hosts.of_name("three").count(), 0, "an address of another device");
        assert_eq!(hosts.of_host(&name("server")), Some("one"));
        assert_eq!(hosts.of_host(&name("nobody")), None);
        let udp = HostAddress::Udp(([127, 0, 0, 1], 1).into());
        assert_eq!(Hosts::of(text, &udp).of_name("three").count(), 1);
    }
}
