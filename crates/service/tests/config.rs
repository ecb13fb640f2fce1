//! Tests of configurations: parsing and error messages.

use kiban_service::Plan;
use kiban_service::config::{Carries, Endpoint, Kind};
use std::time::Duration;

const GOOD: &str = r#"name = "lab"
drain = "5s"

[memory]
transmit = "32MiB"

[tcp]
nagle = "off"
send_buffer_bytes = "512k"

[[port]]
name = "lan"
link = "tap:tap0"
address = ["10.0.0.1/24", "fd00::1/64"]
host_address = "10.0.0.254/24"

[[port]]
name = "atm"
link = "udp-cells:127.0.0.1:7000-127.0.0.1:7001"
address = "10.1.0.1/24"
rate = "149.76Mbit"

[[port.pvc]]
vc = "0.100"
peer = "10.1.0.2"
encapsulation = "vc-mux"
pcr = 10000
scr = 5000
mbs = 32
cdvt = "250us"

[[port.pvc]]
vc = "0.101"

[[route]]
to = "0.0.0.0/0"
via = "10.0.0.254"

[[service]]
kind = "echo"
listen = "10.0.0.1:7"

[[service]]
kind = "http"
listen = "0.0.0.0:80"
root = "/tmp"
list = true

[[service]]
kind = "forward"
listen = "kernel:127.0.0.1:8080"
to = "10.1.0.2:80"

[metrics]
listen = "127.0.0.1:9464"
"#;

#[test]
fn every_setting_reaches_the_plan() {
    let plan = Plan::read(GOOD, "file").expect("a good configuration");
    assert_eq!((plan.name.as_str(), plan.drain), ("lab", Duration::from_secs(5)));
    assert_eq!(plan.board.memory.transmit_bytes, 32 << 20);
    assert_eq!(plan.board.tcp.send_buffer_bytes, 512 << 10);
    // A peer that has lowered its MSS is acknowledged as often as any other.
    assert_eq!(plan.board.tcp.ack_unit, kiban_tcpip::tcp::AckUnit::Largest);
    assert_eq!([plan.ports[0].carries, plan.ports[1].carries], [Carries::Frames, Carries::Cells]);
    assert_eq!((plan.ports[0].mtu_bytes, plan.ports[1].mtu_bytes), (1500, 9180));
    let [fixed, asked] = &plan.ports[1].circuits[..] else { panic!("two circuits") };
    assert_eq!((fixed.peer.map(|peer| peer.to_string()), fixed.llc_snap), (Some("10.1.0.2".into()), false));
    let contract = fixed.contract.expect("a contract");
    assert_eq!(contract.tolerance, Duration::from_micros(250));
    assert_eq!(contract.sustained.map(|sustained| sustained.burst_cells), Some(32));
    assert_eq!((asked.peer, asked.llc_snap), (None, true));
    assert_eq!((plan.routes[0].port, plan.routes[0].source.to_string()), (0, "10.0.0.1".into()));
    assert_eq!(
        plan.services.iter().map(|service| service.name.as_str()).collect::<Vec<_>>(),
        ["echo", "http", "forward"]
    );
    assert!(matches!(plan.services[1].kind, Kind::Http { list: true, .. }));
    assert_eq!(plan.services[2].listen, Endpoint::Kernel("127.0.0.1:8080".parse().expect("an address")));
    // The board is named after its file by default.
    assert_eq!(Plan::read(&GOOD.replacen("name = \"lab\"\n", "", 1), "file").expect("good").name, "file");
}

#[test]
fn an_error_names_the_line_the_key_and_the_remedy() {
    let mut differences = Vec::new();
    for (from, to, expected) in [
        ("drain = \"5s\"", "drian = \"5s\"", "line 2: unknown key `drian`: did you mean `drain`?"),
        (
            "drain = \"5s\"",
            "drain = \"5 parsecs\"",
            "line 2: drain: invalid value `5 parsecs`: write a time such as 500us, 10s or 5min",
        ),
        (
            "name = \"lab\"",
            "name = \"a/b\"",
            "line 1: name: invalid name `a/b`: use 1 to 32 letters, digits, - and _",
        ),
        (
            "transmit = \"32MiB\"",
            "transmit = \"32\"",
            "line 5: transmit: 32 is out of range: must be 1048576 to 68719476736 bytes",
        ),
        (
            "transmit = \"32MiB\"",
            "transmit = \"much\"",
            "line 5: transmit: invalid value `much`: write a size such as 64MiB, 4KiB or 512",
        ),
        (
            "[tcp]",
            "[sandbox]\nenable = false\n[tcp]",
            "line 8: unknown key `enable`: did you mean `enabled`?",
        ),
        (
            "[tcp]",
            "[sandbox]\nwrite = [\"/tmp\", \"/nowhere\"]\n[tcp]",
            "line 8: write: /nowhere is not a directory: create it, or remove it from the list",
        ),
        ("nagle = \"off\"", "nagel = \"off\"", "line 8: TCP has no setting `nagel`: did you mean `nagle`?"),
        (
            "nagle = \"off\"",
            "retries = 3",
            "line 8: the TCP setting `retries` is now called `rto_retries`: write `rto_retries`",
        ),
        (
            "nagle = \"off\"",
            "nagle = \"maybe\"",
            "line 8: nagle: invalid value `maybe`: write off or on or minshall or limit",
        ),
        (
            "[\"10.0.0.1/24\", \"fd00::1/64\"]",
            "\"10.0.0.1\"",
            "line 14: address: `10.0.0.1` is not an address with a prefix length: a prefix is written as ADDRESS/BITS: write it as 10.0.0.1/24",
        ),
        (
            "[\"10.0.0.1/24\", \"fd00::1/64\"]",
            "7",
            "line 14: address: expected a string or a list of strings: [\"…\", \"…\"]",
        ),
        (
            "address = \"10.1.0.1/24\"\n",
            "",
            "line 18: port `atm` has no address: add address = \"10.0.0.1/24\"",
        ),
        (
            "address = \"10.1.0.1/24\"",
            "address = \"fd01::1/64\"",
            "line 20: address: Classical IP over ATM supports only IPv4 (RFC 2225): use an address such as 10.0.0.1/24",
        ),
        (
            "[\"10.0.0.1/24\", \"fd00::1/64\"]",
            "[\"10.0.0.1/24\", \"10.0.0.1/16\"]",
            "line 14: address: duplicate address 10.0.0.1: list each address once",
        ),
        (
            "address = \"10.1.0.1/24\"",
            "address = \"10.0.0.1/24\"",
            "line 20: address: address 10.0.0.1 is also assigned to another port: assign each address to one port",
        ),
        (
            "name = \"atm\"",
            "name = \"lan\"",
            "line 18: name: duplicate port name `lan`: names must be unique",
        ),
        (
            "rate = \"149.76Mbit\"",
            "rate = \"fast\"",
            "line 21: rate: invalid value `fast`: write a rate such as 149.76Mbit, 10Gbit or 64kbit",
        ),
        ("vc = \"0.101\"", "vc = \"0.100\"", "line 33: vc: duplicate circuit 0.100: list each circuit once"),
        (
            "vc = \"0.101\"",
            "vc = \"0.5\"",
            "line 33: vc: 0.5 is not a user circuit: use a VPI up to 255 and a VCI of at least 32 (I.361)",
        ),
        (
            "vc = \"0.101\"",
            "vc = \"0.101\"\nencapsulation = \"vc-mux\"",
            "line 33: vc: circuit 0.101 uses vc-mux and has no peer: set peer: InATMARP does not work with VC multiplexing (RFC 2684 §6)",
        ),
        (
            "vc = \"0.101\"",
            "vc = \"0.101\"\ncategory = \"crb\"",
            "line 34: category: unknown value `crb`: did you mean `cbr`?",
        ),
        (
            "vc = \"0.101\"",
            "vc = \"0.101\"\nweight = 0",
            "line 33: weight 0 is out of range: must be 1 to 1000",
        ),
        ("\"vc-mux\"", "\"vcmux\"", "line 26: encapsulation: unknown value `vcmux`: did you mean `vc-mux`?"),
        (
            "pcr = 10000\n",
            "",
            "line 24: circuit 0.100 has a traffic contract without a peak cell rate: set pcr, in cells/s",
        ),
        (
            "pcr = 10000",
            "pcr = 1e9",
            "line 24: pcr 1000000000 of circuit 0.100 is out of range: must be 1 to 353561 cells/s on this line",
        ),
        ("mbs = 32\n", "", "line 24: circuit 0.100 has only one of scr and mbs: set both or neither"),
        (
            "via = \"10.0.0.254\"",
            "via = \"10.9.0.1\"",
            "line 37: via: 10.9.0.1 is not in the subnet of any port: use a next hop in 10.0.0.0/24 or fd00::/64 or 10.1.0.0/24",
        ),
        (
            "via = \"10.0.0.254\"",
            "via = \"fd00::2\"",
            "line 37: via: fd00::2 and 0.0.0.0/0 have different address families: use a next hop of the same family",
        ),
        ("kind = \"echo\"", "kind = \"ecco\"", "line 40: kind: unknown value `ecco`: did you mean `echo`?"),
        (
            "listen = \"10.0.0.1:7\"",
            "listen = \"10.0.0.9:7\"",
            "line 41: listen: 10.0.0.9 is not an address of this board: listen on 10.0.0.1, or on 0.0.0.0 for all",
        ),
        (
            "listen = \"10.0.0.1:7\"",
            "listen = \"10.0.0.1\"",
            "line 41: listen: `10.0.0.1` is not an address with a port: write it as 10.0.0.1:80 or [fd00::1]:80",
        ),
        (
            "listen = \"10.0.0.1:7\"",
            "listen = \"0.0.0.0:80\"",
            "line 45: listen: `echo` already listens on 0.0.0.0:80: use another port",
        ),
        (
            "listen = \"10.0.0.1:7\"",
            "listen = \"10.0.0.1:7\"\nroot = \"/tmp\"",
            "line 40: service `echo` (kind echo) has no key `root`: remove it",
        ),
        ("root = \"/tmp\"\n", "", "line 44: `http` has no root: add root = \"/srv/www\""),
        (
            "root = \"/tmp\"",
            "root = \"/no/such\"",
            "line 46: root: /no/such is not a directory: create it, or use another",
        ),
        (
            "to = \"10.1.0.2:80\"",
            "to = \"kernel:10.1.0.2:80\"",
            "line 52: to: `forward` has both ends on the same side: prefix either listen or to with kernel:",
        ),
        (
            "kind = \"echo\"\nlisten = \"10.0.0.1:7\"",
            "kind = \"echo\"\nlisten = \"kernel:10.0.0.1:7\"",
            "line 41: listen: only a `forward` service can listen on `kernel:` addresses: listen on an address of the board",
        ),
        (
            "listen = \"127.0.0.1:9464\"",
            "",
            "line 54: `listen` is missing: add it, for example listen = \"127.0.0.1:9464\"",
        ),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let error = Plan::read(&text, "file").expect_err(to).to_string();
        if error != expected {
            differences.push(format!("{to}\n  {error}\n  {expected}"));
        }
    }
    assert!(differences.is_empty(), "told, and expected:\n{}", differences.join("\n"));
    assert_eq!(
        Plan::read("", "file").expect_err("nothing").to_string(),
        "no port configured: add a [[port]] with name, link and address"
    );
    let error = Plan::read("[[port]\n", "file").expect_err("no TOML").to_string();
    assert!(error.starts_with("line 1: "), "{error}");
    let link =
        Plan::read(&GOOD.replacen("tap:tap0", "tpa:tap0", 1), "file").expect_err("no link").to_string();
    assert!(
        link.starts_with("line 13: link: invalid link address `tpa:tap0`: ") && link.contains("tap:NAME"),
        "{link}"
    );
}

#[test]
fn wrong_types_and_missing_keys_are_reported_with_an_example() {
    let line = |part: &str| 1 + GOOD[..GOOD.find(part).expect("part of GOOD")].matches('\n').count();
    let mut differences = Vec::new();
    for (from, to, expected) in [
        (
            "pcr = 10000",
            "pcr = \"10000\"",
            "pcr: `\"10000\"` is a string: write a number without quotes or unit, such as 10000",
        ),
        (
            "mbs = 32",
            "mbs = 1.5",
            "mbs: `1.5` is a number: write a non-negative integer without quotes or unit",
        ),
        (
            "mbs = 32",
            "mbs = -1",
            "mbs: `-1` is a number: write a non-negative integer without quotes or unit",
        ),
        (
            "drain = \"5s\"",
            "drain = 5",
            "drain: `5` is a number: write it in quotes, with its unit if it has one: \"5\"",
        ),
        (
            "kind = \"echo\"",
            "kind = \"source\"\nbytes = 100",
            "bytes: `100` is a number: write it in quotes, with its unit if it has one: \"100\"",
        ),
        (
            "kind = \"echo\"\nlisten = \"10.0.0.1:7\"",
            "tcp = [\"auto\", \"80-90:x\"]\nkind = \"net\"\nguest = [\"10.0.0.2/24\"]",
            "tcp: `80-90:x` forwards no port to another: \
             write ports such as 8080:80, 127.0.0.1:8000-8009 or [::1]:8080:80, or auto, or all",
        ),
        (
            "kind = \"echo\"\nlisten = \"10.0.0.1:7\"",
            "kind = \"net\"\nudp = [\"all\"]",
            "ports are forwarded to no address: add guest = [\"10.0.2.15/24\"]",
        ),
        (
            "kind = \"echo\"\nlisten = \"10.0.0.1:7\"",
            "kind = \"net\"\nguest_tcp = [\"80\"]",
            "ports of the guest are forwarded, but its namespace is not open: `kiban net` opens it",
        ),
        (
            "kind = \"echo\"\nlisten = \"10.0.0.1:7\"",
            "guest_tcp = [\"127.0.0.1:80\", \"0.0.0.0:81\"]\nkind = \"net\"",
            "guest_tcp: `0.0.0.0:81` is open to callers of other hosts, and leads to this one's loopback: \
             write no address, or one of the loopback",
        ),
        ("list = true", "list = \"yes\"", "list: `\"yes\"` is a string: write true or false"),
        ("[[route]]", "[route]", "this is a table: write its name in [[ ]], once for each entry"),
        ("[metrics]", "[[metrics]]", "this is a list: write its name in [ ]"),
        ("[memory]", "[[memory]]", "this is a list: write its name in [ ]"),
        ("via = \"10.0.0.254\"\n", "", "`via` is missing: add it, for example via = \"10.0.0.254\""),
        (
            "via = \"10.0.0.254\"",
            "via = \"10.2.0.1\"",
            "via: 10.2.0.1 is not in the subnet of any port: use a next hop in 10.0.0.0/24 or fd00::/64 or 10.1.0.0/24",
        ),
        (
            "host_address = \"10.0.0.254/24\"",
            "host_address = \"10.3.0.1/24\"",
            "host_address: 10.3.0.1 is not in any subnet of the port, so the board would not answer: \
             give the host an address in 10.0.0.0/24 or fd00::/64",
        ),
        (
            "host_address = \"10.0.0.254/24\"",
            "host = \"tun:h\"",
            "listen: 10.0.0.1 belongs to this host: `host` of port `lan` gives the host all its addresses: \
             listen on 10.1.0.1, or use a program on this host",
        ),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        // If an error in a port also makes a service invalid, the error is reported for the port.
        let at = match (to.starts_with("host = "), to.contains("\nbytes")) {
            (true, _) => line("listen = \"10.0.0.1:7\""),
            (_, true) => line(from) + 1,
            _ => line(from),
        };
        let at = if to.is_empty() { at - 2 } else { at };
        let expected = format!("line {at}: {expected}");
        let told = Plan::read(&text, "file").expect_err(to).to_string();
        if told != expected {
            differences.push(format!("{told}\n{expected}\n"));
        }
    }
    assert!(differences.is_empty(), "told, and expected:\n{}", differences.join("\n"));
    // On an ATM port, only the first address belongs to the host. Any second address belongs to the board.
    let atm = GOOD.replace("10.0.0.1:7", "10.1.0.1:7").replace("rate = ", "host = \"tun:h\"\nrate = ");
    let told = Plan::read(&atm, "file").expect_err("it is the host's").to_string();
    assert!(
        told.contains("10.1.0.1 belongs to this host: `host` of port `atm` gives the host its first address"),
        "{told}"
    );
    let second = atm.replace("\"10.1.0.1/24\"", "[\"10.1.0.9/24\", \"10.1.0.1/24\"]");
    Plan::read(&second, "file").expect("it is the board's own");
    // On Ethernet, the board may autoconfigure IPv6 addresses, so a service may have an address in an unknown
    // prefix.
    let v6 = GOOD
        .replace("[\"10.0.0.1/24\", \"fd00::1/64\"]", "\"10.0.0.1/24\"")
        .replace("10.0.0.254/24", "fd07::1/64");
    Plan::read(&v6, "file").expect("good");
}

#[test]
fn a_change_that_needs_a_restart_is_named() {
    let plan = Plan::read(GOOD, "file").expect("good");
    for (from, to, expected) in [
        ("name = \"lab\"", "name = \"lib\"", Some("name")),
        ("transmit = \"32MiB\"", "transmit = \"16MiB\"", Some("memory")),
        ("nagle = \"off\"", "nagle = \"on\"", Some("tcp.nagle")),
        ("nagle = \"off\"\n", "", Some("tcp.nagle")),
        ("[tcp]", "[sandbox]\nkill = true\n[tcp]", Some("sandbox")),
        ("address = \"10.1.0.1/24\"", "address = \"10.1.0.3/24\"", Some("address of port atm")),
        ("\"fd00::1/64\"]", "\"fd00::2/64\"]", Some("address of port lan")),
        ("vc = \"0.101\"", "vc = \"0.102\"", Some("pvc of port atm")),
        ("tap:tap0", "tap:tap1", None),
        ("via = \"10.0.0.254\"", "via = \"10.0.0.253\"", None),
        ("kind = \"echo\"", "kind = \"discard\"", None),
        ("drain = \"5s\"", "\n\n\ndrain = \"6s\"", None),
        ("drain = \"5s\"", "drain = \"5s\"\nwait = \"poll\"", Some("wait")),
        ("drain = \"5s\"", "drain = \"5s\"\nshards = 1", None),
        ("127.0.0.1:9464", "127.0.0.1:9465", None),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let other = Plan::read(&text, "file").expect(to);
        assert_eq!(plan.needs_new_board(&other).as_deref(), expected, "{to}");
    }
}

/// A port that leases its address, on a link of each kind.
fn leases(link: &str, address: &str, more: &str) -> Result<Plan, String> {
    let pvc = if link.starts_with("udp-cells") { "[[port.pvc]]\nvc = \"0.100\"\n" } else { "" };
    let text = format!("[[port]]\nname = \"lan\"\nlink = \"{link}\"\naddress = {address}\n{pvc}{more}");
    Plan::read(&text, "file").map_err(|error| error.to_string())
}

#[test]
fn an_ethernet_port_can_lease_its_address() {
    for (address, fixed) in [("\"dhcp\"", 0), ("[\"dhcp\", \"fd00::1/64\"]", 1)] {
        let echo = "[[service]]\nkind = \"echo\"\nlisten = \"0.0.0.0:7\"\n";
        let plan = leases("tap:tap0", address, echo).expect(address);
        assert_eq!((plan.ports[0].dhcp, plan.ports[0].addresses.len()), (true, fixed));
    }
    assert!(!Plan::read(GOOD, "file").expect("good").ports[0].dhcp);
    let cells = "udp-cells:127.0.0.1:7000-127.0.0.1:7001";
    for (link, address, more, expected) in [
        (
            cells,
            "\"dhcp\"",
            "",
            "line 4: address: DHCP needs broadcast, which Classical IP over ATM does not have: write an address",
        ),
        (
            "tun:tun0",
            "\"dhcp\"",
            "",
            "line 4: address: DHCP needs a link that carries Ethernet frames: write an address, or use a link such as tap:",
        ),
        (
            "tap:tap0",
            "[\"dhcp\", \"10.0.0.1/24\"]",
            "",
            "line 4: address: a port with `dhcp` has no other IPv4 address: remove one of them; IPv6 addresses may stay",
        ),
        ("tap:tap0", "[\"dhcp\", \"dhcp\"]", "", "line 4: address: `dhcp` is listed twice: list it once"),
        (
            "tap:tap0",
            "\"dhcp\"",
            "host = \"tun:kiban1\"\n",
            "line 4: address: `host` needs an address that is known when the board starts: write the address, or let this host's own DHCP client configure an interface",
        ),
        (
            "tap:tap0",
            "\"dhcp\"",
            "[[service]]\nkind = \"echo\"\nlisten = \"10.0.0.1:7\"\n",
            "line 7: listen: 10.0.0.1 is not an address of this board: the leased address is not known yet: listen on 0.0.0.0",
        ),
    ] {
        assert_eq!(leases(link, address, more).err().as_deref(), Some(expected));
    }
    // A change between a fixed and a leased address requires a new board.
    let fixed = leases("tap:tap0", "\"10.0.0.1/24\"", "").expect("good");
    let leased = leases("tap:tap0", "\"dhcp\"", "").expect("good");
    assert_eq!(fixed.needs_new_board(&leased).as_deref(), Some("address of port lan"));
    assert_eq!(leased.needs_new_board(&leased), None);
}

#[test]
fn an_ethernet_port_can_configure_a_guest() {
    let own = "[\"10.0.0.1/24\", \"10.1.0.1/24\", \"fd00::1/64\"]";
    let link = "unix-frames:listen:vm.sock";
    let read = |more: &str| leases(link, own, more);
    let good = "guest = [\"10.1.0.15/24\", \"fd00::15/64\"]\nguest_dns = [\"10.1.0.1\", \"fd00::53\"]\n";
    let plan = read(good).expect("good");
    let guest = plan.ports[0].guest.as_ref().expect("a guest");
    let (address, _, gateway) = guest.ipv4.expect("an IPv4 address");
    assert_eq!((address.to_string(), gateway.to_string()), ("10.1.0.15".to_owned(), "10.1.0.1".to_owned()));
    assert_eq!(
        (guest.ipv6.map(|(address, _)| address.to_string()), guest.names.len()),
        (Some("fd00::15".into()), 2)
    );
    assert_eq!(read("").expect("good").ports[0].guest, None);
    assert_eq!(plan.needs_new_board(&read("").expect("good")).as_deref(), Some("guest of port lan"));
    for (more, expected) in [
        (
            "guest = \"10.2.0.15/24\"\n",
            "the port has no other address in 10.2.0.0/24: give it one, which is the guest's gateway",
        ),
        (
            "guest = \"10.0.0.1/24\"\n",
            "the port has no other address in 10.0.0.0/24: give it one, which is the guest's gateway",
        ),
        (
            "guest = [\"10.0.0.15/24\", \"10.1.0.15/24\"]\n",
            "the guest has two addresses of a family: list at most one IPv4 and one IPv6 address",
        ),
        ("guest_dns = \"10.0.0.1\"\n", "the port has no guest: add guest = \"10.0.0.15/24\""),
        (
            "guest = \"10.0.0.15/24\"\nguest_dns = \"name\"\n",
            "`name` is not an IP address: write it as 10.0.0.1",
        ),
    ] {
        let error = read(more).err().unwrap_or_default();
        assert!(error.ends_with(expected), "{more}: {error}");
    }
    let error = leases("tun:tun0", "\"10.0.0.1/24\"", "guest = \"10.0.0.15/24\"\n").err().unwrap_or_default();
    assert!(error.contains("only a link that carries Ethernet frames"), "{error}");
    for (link, is_good) in [
        ("packet:eth0", false),
        ("xdp:eth0", false),
        ("udp-frames:127.0.0.1:7000-127.0.0.1:7001", false),
        ("tap:tap0", true),
        ("tap-fd:9", true),
        ("tcp-frames:127.0.0.1:7000", true),
        ("unix-datagrams:a.sock:b.sock", true),
    ] {
        let read = leases(link, "\"10.0.0.1/24\"", "guest = \"10.0.0.15/24\"\n");
        assert_eq!(read.is_ok(), is_good, "{link}: {read:?}");
        if let Err(error) = read {
            assert!(error.contains("may lead to many stations"), "{error}");
        }
    }
}

const BRIDGE: &str = r#"
[[port]]
name = "atm"
link = "udp-cells:127.0.0.1:7000-127.0.0.1:7001"
[[port.pvc]]
vc = "0.100"
encapsulation = "vc-mux"
[[bridge]]
name = "lan"
link = "tap:tap0"
circuits = "atm:0.100"
"#;

#[test]
fn a_bridge_names_its_circuits_and_its_errors_are_reported() {
    let plan = Plan::read(BRIDGE, "file").expect("good");
    let [atm, lan] = &plan.ports[..] else { panic!("a port and the link of a bridge") };
    assert!(atm.addresses.is_empty() && atm.bridge.is_none() && atm.circuits.len() == 1);
    let circuits = lan.bridge.as_ref().expect("it is a bridge's");
    assert_eq!((circuits[0].port, circuits[0].circuit, circuits[0].with_fcs), (0, 0, false));
    for (from, to, expected) in [
        ("atm:0.100", "atm:0.101", "line 3: port `atm` has no address"),
        (
            "\"atm:0.100\"",
            "[\"atm:0.100\", \"lan:0.1\"]",
            "line 11: circuits: `lan:0.1` is not a known circuit",
        ),
        (
            "\"atm:0.100\"",
            "[\"atm:0.100\", \"atm:0.100\"]",
            "line 11: circuits: circuit `atm:0.100` is already bridged",
        ),
        (
            "tap:tap0",
            "tun:tun0",
            "line 10: link: `tun:tun0` carries packets: a bridge needs a link that carries Ethernet frames",
        ),
        ("name = \"lan\"", "name = \"atm\"", "line 9: name: a port or bridge `atm` already exists"),
        (
            "encapsulation",
            "peer = \"10.0.0.1\"\nencapsulation",
            "line 7: peer: circuit 0.100 belongs to a bridge, so it cannot have a peer",
        ),
        ("circuits", "fcs = 1\ncircuits", "line 11: fcs: "),
        ("circuits = \"atm:0.100\"", "", "line 3: port `atm` has no address"),
    ] {
        let error = Plan::read(&BRIDGE.replacen(from, to, 1), "file").expect_err(to).to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
    // While the board is running, a bridge's link may change, but the bridge's circuits may not.
    let read = |text: &str| Plan::read(text, "file").expect("good");
    assert_eq!(plan.needs_new_board(&read(&BRIDGE.replace("tap:tap0", "tap:tap1"))), None);
    let with_fcs = BRIDGE.replace("circuits", "fcs = true\ncircuits");
    assert_eq!(plan.needs_new_board(&read(&with_fcs)), Some("bridge".into()));
    let none = BRIDGE.split("[[bridge]]").next().expect("a prefix").replace("vc-mux\"", "llc\"");
    let none = none.replace("[[port.pvc]]", "address = \"10.0.0.1/24\"\n[[port.pvc]]");
    assert_eq!(read(&none).needs_new_board(&plan), Some("bridge".into()));
}

#[test]
fn services_for_programs_of_this_host_take_no_listen_address() {
    let services = "[[service]]\nkind = \"osi\"\n[[service]]\nkind = \"attach\"\nsessions = 9\n\
        [[service]]\nkind = \"sockets\"\n";
    let text = format!("wait = \"hybrid:50us\"\n{GOOD}{services}");
    let plan = Plan::read(&text, "file").expect("good");
    assert_eq!(plan.wait.to_string(), "hybrid:50us");
    let [.., osi, attach, sockets] = &plan.services[..] else { panic!("three services") };
    let Kind::Osi { path } = &osi.kind else { panic!("an OSI service") };
    assert!(path.ends_with("kiban/lab.osi") && osi.listen == Endpoint::UnixSocket("osi"), "{osi:?}");
    assert_eq!(
        (attach.sessions_max, attach.listen, sockets.listen),
        (9, Endpoint::UnixSocket("attach"), Endpoint::UnixSocket("sockets"))
    );
    let Kind::Attach { path } = &attach.kind else { panic!("an attach service") };
    assert!(path.ends_with("kiban/lab.streams"), "{}", path.display());
    // The NIC is made with its board.
    let with_nic = Plan::read(&format!("{text}[[service]]\nkind = \"rdma\"\n"), "file").expect("good");
    let Kind::Rdma { path } = &with_nic.services[with_nic.services.len() - 1].kind else { panic!("a NIC") };
    assert!(path.ends_with("kiban/lab.rdma"), "{}", path.display());
    assert_eq!(plan.needs_new_board(&with_nic), Some("the service of kind \"rdma\"".into()));
    assert_eq!(with_nic.needs_new_board(&plan), Some("the service of kind \"rdma\"".into()));
    assert_eq!(with_nic.needs_new_board(&with_nic), None);
    let lines = text.lines().count();
    for (more, expected) in [
        (
            "[[service]]\nkind = \"attach\"\nname = \"two\"\n",
            format!("line {}: kind: `attach` already listens on this host: use another port", lines + 2),
        ),
        (
            "[[service]]\nkind = \"osi\"\nlisten = \"10.0.0.1:102\"\n",
            format!("line {}: service `osi` (kind osi) has no key `listen`: remove it", lines + 2),
        ),
        (
            "[[service]]\nkind = \"sockets\"\nlisten = \"10.0.0.1:1\"\n",
            format!("line {}: service `sockets` (kind sockets) has no key `listen`: remove it", lines + 2),
        ),
        (
            "[[service]]\nkind = \"echo\"\n",
            format!("line {}: `echo` has no listen: add listen = \"10.9.0.2:80\"", lines + 2),
        ),
    ] {
        let error = Plan::read(&format!("{text}{more}"), "file").expect_err(more).to_string();
        assert_eq!(error, expected);
    }
    let error =
        Plan::read(&text.replacen("hybrid:50us", "hybrid", 1), "file").expect_err("no way").to_string();
    assert!(
        error.starts_with("line 1: wait: invalid value `hybrid`: not a wait policy: write poll,"),
        "{error}"
    );
}

/// A board of four shards.
const SHARDS: &str = r#"shards = 4

[memory]
transmit = "8MiB"

[[port]]
name = "lan"
link = "tun:tun0"
address = "10.0.0.1/24"
"#;

#[test]
fn shards_are_refused_with_everything_that_needs_one_thread() {
    assert_eq!(Plan::read(SHARDS, "file").expect("good").shards, 4);
    let one = SHARDS.replace("shards = 4\n", "");
    assert_eq!(Plan::read(&one, "file").expect("good").shards, 1);
    for (from, to, expected) in [
        (
            "shards = 4",
            "shards = 0",
            "line 1: shards: 0 shards are out of range: use 1 to 64; more than one per core does not help",
        ),
        (
            "8MiB",
            "2MiB",
            "line 1: shards: 4 shards would have less than 1 MiB of packet memory each: \
             set transmit and receive in [memory] to 4MiB or more",
        ),
        (
            "transmit = \"8MiB\"",
            "transmit = \"8MiB\"\npdus = 1023",
            "line 1: shards: 4 shards would have less than 256 PDUs each: \
             set pdus in [memory] to 1024 or more",
        ),
        (
            "tun:tun0",
            "udp-packets:127.0.0.1:7000-127.0.0.1:7001",
            "line 8: link: the link of port `lan` has one queue, not one for each shard: \
             use tun:, tap:, packet: or xdp:, or a link of cells, or remove `shards`",
        ),
        (
            "tun:tun0",
            "tun:tun0,loss=1%",
            "line 8: link: the link of port `lan` cannot have several queues: impairments and `record` work on \
             one queue: remove these options, or remove `shards`",
        ),
        (
            "address = \"10.0.0.1/24\"",
            "address = \"10.0.0.1/24\"\nhost = \"tun:tun1\"",
            "line 10: host: `host` of port `lan` needs a board of one shard: \
             remove `shards`, or give the host an address with `host_address`",
        ),
    ] {
        let text = SHARDS.replacen(from, to, 1);
        assert_ne!(text, SHARDS, "{from}");
        let error = Plan::read(&text, "file").expect_err(to);
        assert_eq!(error.to_string(), expected);
    }
    let plan = Plan::read(SHARDS, "file").expect("good");
    let other = Plan::read(&SHARDS.replace("shards = 4", "shards = 3"), "file").expect("good");
    assert_eq!(plan.needs_new_board(&other).as_deref(), Some("shards"));
}

#[test]
fn a_link_that_distributes_circuits_cannot_become_one_that_does_not() {
    let atm = |shards: usize, link: &str| {
        let text = SHARDS.replace("tun:tun0", link).replace("shards = 4", &format!("shards = {shards}"));
        Plan::read(&format!("{text}[[port.pvc]]\nvc = \"0.100\"\n"), "file").expect("good")
    };
    let udp = "udp-cells:127.0.0.1:7000-127.0.0.1:7001";
    for (link, expected) in [
        ("udp-cells:127.0.0.1:7000-127.0.0.1:7002,packed", None),
        ("udp-cells:127.0.0.1:7000-127.0.0.1:7001,loss=1%", Some("link of port lan")),
        ("tcp-cells:listen:127.0.0.1:7000", Some("link of port lan")),
    ] {
        assert_eq!(atm(4, udp).needs_new_board(&atm(4, link)).as_deref(), expected, "{link}");
        assert_eq!(atm(4, link).needs_new_board(&atm(4, udp)).as_deref(), expected, "{link}");
        assert_eq!(atm(1, udp).needs_new_board(&atm(1, link)), None, "{link}");
    }
}

#[test]
fn the_page_size_follows_the_memory_of_a_shard_unless_it_is_configured() {
    let page = |shards: usize, memory: &str| {
        let text = format!(
            "shards = {shards}\n[memory]\n{memory}\n[[port]]\nname = \"lan\"\nlink = \"tap:tap0\"\n\
             address = \"10.0.0.1/24\"\n"
        );
        let plan = Plan::read(&text, "board").unwrap();
        assert_eq!(
            plan.board.tcp.session_overhead_bytes as usize,
            2 * plan.board.memory.page_bytes,
            "{text}"
        );
        plan.board.memory.page_bytes
    };
    let rows = [
        (1, "", 16 << 10),
        (2, "", 8 << 10),
        (2, "transmit = \"128MiB\"\nreceive = \"256MiB\"", 16 << 10),
        (1, "transmit = \"32MiB\"", 8 << 10),
        (1, "transmit = \"1GiB\"\nreceive = \"1MiB\"", 4 << 10),
        (8, "page = \"2KiB\"", 2 << 10),
    ];
    for (shards, memory, expected) in rows {
        assert_eq!(page(shards, memory), expected, "{shards} shards, {memory}");
    }
}
