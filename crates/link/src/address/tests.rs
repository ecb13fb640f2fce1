//! Tests of parsing and formatting.

use super::*;

#[test]
fn addresses_are_formatted_as_they_are_parsed() {
    for (text, back) in [
        ("tun:kiban0", None),
        ("tap:kiban0,offload=off", None),
        ("xdp:eth1,queue=2,loss=1%", None),
        ("packet:eth1,promiscuous", Some("packet:eth1,promiscuous=on")),
        ("udp-cells:0.0.0.0:7000-192.0.2.1:7000", None),
        (
            "udp-cells:0.0.0.0:7000-192.0.2.1:7000,packed",
            Some("udp-cells:0.0.0.0:7000-192.0.2.1:7000,packed=27"),
        ),
        ("udp-frames:[::]:7000-[2001:db8::1]:7001,mtu=1400", None),
        ("udp-packets:127.0.0.1:0-some-host.example:7000", None),
        ("tcp-frames:listen:0.0.0.0:7000", None),
        ("unix-frames:/run/vm.sock", None),
        ("unix-frames:listen:a%3Ab%2C.sock,mtu=9000", None),
        ("unix-datagrams:/run/board.sock:/run/vm%3A1.sock", None),
        ("tcp-packets:some-host:7000", None),
        ("tcp-cells:[::1]:7000", None),
        ("atmtcp:listen:0.0.0.0", Some("atmtcp:listen:0.0.0.0:2812")),
        ("atmtcp:192.0.2.1:8401,aal0=0.42+0.43", None),
        (
            "pseudowire:0.0.0.0-192.0.2.1,label=1000",
            Some("pseudowire:0.0.0.0:6635-192.0.2.1:6635,label=1000"),
        ),
        (
            "pseudowire:[::]-[2001:db8::1]:6636?label=16&label-in=17&control-word&sequence=off&cells=5",
            Some(
                "pseudowire:[::]:6635-[2001:db8::1]:6636,label=16,label-in=17,control-word=on,sequence=off,cells=5",
            ),
        ),
        ("pcap:captures/a%2Cb.pcap,take=all,speed=fast", None),
        (
            "tun:kiban0?loss=1%&delay=5ms&jitter=0.5ms&rate=10Mbit",
            Some("tun:kiban0,loss=1%,delay=5ms,jitter=500us,rate=10Mbit"),
        ),
        (
            "tun:k,record=/tmp/100%25.pcap,loss=0.03%,corrupt=0.00001%,duplicate=100%,reorder=7%,hold=2s,queue=5,seed=9",
            None,
        ),
        ("tun:k,loss=0.25,rate=149.76Mbit", Some("tun:k,loss=25%,rate=149760kbit")),
    ] {
        let address: Address = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(address.to_string(), back.unwrap_or(text));
        assert_eq!(address.to_string().parse(), Ok(address));
    }
}

#[test]
fn errors_show_a_correct_address() {
    for (text, says) in [
        ("", "unknown kind ''"),
        ("kiban0", "write one of tun:NAME, tap:NAME"),
        ("xdp:eth0,queue=-1", "write a number from 0 to 4095"),
        ("xdp:eth0,offload=off", "xdp has no option 'offload'; it has queue, promiscuous, record"),
        ("udp:0.0.0.0:1-192.0.2.1:2", "add what it carries: -packets, -frames or -cells"),
        ("tun:", "write tun:NAME"),
        ("tun:a-name-that-is-too-long", "1 to 15 bytes"),
        (
            "udp-cells:192.0.2.1:7000",
            "names only one endpoint; write both ends, this host's first: 0.0.0.0:7000-192.0.2.1:7000",
        ),
        ("udp-cells:my-host:7000-192.0.2.1:7000", "write both ends"),
        ("udp-cells:0.0.0.0:7000-192.0.2.1", "write 192.0.2.1:7000"),
        ("udp-cells:0.0.0.0:70000-192.0.2.1:7000", "'70000' is not a port; write 0 to 65535"),
        ("udp-cells:::1:7000-::2:7000", "[2001:db8::1]:7000"),
        ("pseudowire:0.0.0.0-192.0.2.1", "label=1000"),
        ("pseudowire:0.0.0.0-192.0.2.1,label=3", "16 to 1048575"),
        ("tun:k,los=1%", "tun has no option 'los'; it has offload, record, loss"),
        ("tun:k,packed", "tun has no option 'packed'"),
        ("tun:k,loss=1%,loss=2%", "duplicate option 'loss'"),
        ("tun:k,loss=101%", "write loss=0.5%"),
        ("tun:k,loss", "option 'loss' has no value; write loss=0.5%"),
        ("tun:k,delay=5", "write delay=5ms (or s, us, ns)"),
        ("tun:k,delay=-5ms", "write delay=5ms"),
        ("tun:k,rate=0Mbit", "write rate=10Mbit"),
        ("tun:k,rate=10Mbps", "write rate=10Mbit (or bit, kbit, Gbit)"),
        ("tun:k,offload=yes", "write offload=on or offload=off"),
        ("tun:k,offload=on,loss=1%", "remove offload=on"),
        ("pcap:a%b.pcap", "write %25 for a percent sign"),
        ("pcap:a.pcap,speed=slow", "write speed=fast (or times)"),
        ("tcp-cells:listen:7000", "write 192.0.2.1:7000"),
    ] {
        let error = text.parse::<Address>().expect_err(text).to_string();
        assert!(error.contains(says), "{error}");
        assert!(error.starts_with(&format!("link address '{text}': ")), "{error}");
    }
}
