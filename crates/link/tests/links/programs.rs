//! Links to other programs: a peer that speaks atmtcp's protocol, Wireshark as a reader, QEMU as a peer.

use super::*;
use std::io::Read;

#[test]
fn atmtcp_carries_cells_of_circuits_without_frames() {
    if !net::enter() {
        return;
    }
    let mut end = End::with("atmtcp:listen:127.0.0.1:7060");
    let mut peer = TcpStream::connect("127.0.0.1:7060").expect("it listens");
    peer.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let message = |vpi: u8, vci: u16, data: &[u8]| {
        let mut bytes = vec![0, vpi];
        bytes.extend(vci.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    };
    let cells = |end: &mut End, count: usize| {
        let mut into = VecDeque::new();
        let until = end.clock.now() + Duration::from_secs(10);
        while into.len() < count {
            let lent = &mut LinkContext { now: Instant::ZERO, memory: &mut end.memory };
            let AnyLink::Cells(link) = &mut end.link else { panic!("it carries cells") };
            link.receive(lent, &mut into).expect("the link is up");
            assert!(end.clock.now() < until, "{into:?}");
        }
        into
    };
    // The input: an AAL0 cell as sent by Linux on x86 (VCI 42, PTI 3), a cell that is too short, unknown
    // text, an empty frame, and a frame.
    let raw = [&[0xa6, 0x02, 0, 0][..], &[5; 48]].concat();
    let says = [
        message(0, 0, b"O 0.42 0.0.42 ubr,aal0:max_sdu=52"),
        message(0, 42, &raw),
        message(0, 42, &raw[..51]),
        message(0, 0, b"what?"),
        message(0, 100, &[]),
        message(0, 100, &[8; 40]),
    ];
    peer.write_all(&says.concat()).expect("sent");
    let came = cells(&mut end, 2);
    assert_eq!(came[0], TimedCell::new(Instant::ZERO, 0x2a6, [5; 48]));
    assert_eq!((came[1].header, &came[1].payload[..40]), (0x642, &[8; 40][..]));
    assert_eq!((end.counters().malformed, came.len()), (2, 2));
    // In the other direction, the AAL0 circuit sends the cell itself, in this machine's byte order, and the
    // other circuit sends a frame. A management cell cannot be carried.
    end.cells.push_back(TimedCell::new(Instant::ZERO, 0x2a6, [6; 48]));
    end.cells.push_back(TimedCell::new(Instant::ZERO, 0x64a, [7; 48]));
    end.send(&[9; 33]).expect("the link is up");
    let wanted =
        [message(0, 42, &[&0x2a6u32.to_ne_bytes()[..], &[6; 48]].concat()), message(0, 100, &[9; 33])]
            .concat();
    let mut room = vec![0; wanted.len()];
    peer.read_exact(&mut room).expect("it comes");
    assert_eq!(room, wanted);
    assert_eq!(end.counters().send_errors, 1);
    // The circuit is opened again with AAL5, so 52 bytes are now a frame.
    peer.write_all(&[message(0, 0, b"O 0.42 0.0.42 ubr,aal5:max_sdu=9188"), message(0, 42, &raw)].concat())
        .expect("sent");
    assert_eq!(cells(&mut end, 2).len(), 2);
}

/// A process that is killed when the test ends.
struct Ends(std::process::Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn wireshark_reads_a_pseudowire() {
    if !net::enter() {
        return;
    }
    for (options, dissector, words) in [("", "mplspwatmn1nocw", 0), (",control-word", "mplspwatmn1cw", 4)] {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("wire-{}.pcap", std::process::id()));
        // A packet socket on the loopback interface captures the traffic.
        let mut tap = End::with(&format!("packet:lo,record={}", path.display()));
        let mut first = End::with(&format!("pseudowire:127.0.0.1-127.0.0.2,label=1000,cells=9{options}"));
        let mut second = End::with(&format!("pseudowire:127.0.0.2-127.0.0.1,label=1000,cells=9{options}"));
        // The first frame has one cell. The second has ten, which are sent in packets of nine cells and one
        // cell.
        for frame in [&[7; 40][..], &[8; 472]] {
            first.send(frame).expect("the link is up");
            second.take_until(|end| !end.came.is_empty()).expect("the link is up");
            assert_eq!(second.came.remove(0), frame);
        }
        tap.take_until(|end| end.came.len() == 3).expect("the link is up");
        let lengths: Vec<usize> = tap.came.iter().map(Vec::len).collect();
        assert_eq!(lengths, [1, 9, 1].map(|cells| 14 + 20 + 8 + 4 + words + cells * 52));
        drop(tap);
        let read = |more: &[&str]| {
            let output = Command::new("tshark")
                .args(["-r", &path.display().to_string(), "-d", &format!("mpls.label==1000,{dissector}")])
                .args(more)
                .output()
                .expect("tshark reads the captures: apt-get install tshark, or run make test");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        assert_eq!(read(&["-Y", "_ws.malformed || _ws.expert.severity >= 6291456"]), "");
        let told = read(&["-V"]);
        let lines = |what: &str| told.lines().filter(|line| line.contains(what)).count();
        assert_eq!(lines("MPLS PW ATM Cell Header"), 11, "{told}");
        assert_eq!(
            (lines("VPI:0000  VCI:00100  PTI:0"), lines("VPI:0000  VCI:00100  PTI:1")),
            (9, 2),
            "{told}"
        );
        assert_eq!(lines("Sequence number: "), if words > 0 { 3 } else { 0 }, "{told}");
        std::fs::remove_file(path).expect("it was recorded");
    }
}

#[test]
fn qemu_relays_frames_between_tcp_and_udp() {
    if !net::enter() {
        return;
    }
    // Start QEMU with two network backends on one hub, and without a virtual machine.
    let emulator = Command::new("qemu-system-x86_64")
        .args(["-machine", "none", "-display", "none", "-monitor", "none", "-serial", "none"])
        .args([
            "-netdev",
            "socket,id=one,listen=127.0.0.1:7070",
            "-netdev",
            "hubport,id=first,hubid=0,netdev=one",
        ])
        .args(["-netdev", "socket,id=two,udp=127.0.0.1:7071,localaddr=127.0.0.1:7072"])
        .args(["-netdev", "hubport,id=second,hubid=0,netdev=two"])
        .stdin(std::process::Stdio::null())
        .spawn();
    let Ok(emulator) = emulator else {
        println!("skipped: qemu-system-x86_64 is not there");
        return;
    };
    let mut emulator = Ends(emulator);
    let until = Clock::new();
    let mut first = loop {
        if let Ok(end) = End::open("tcp-frames:127.0.0.1:7070") {
            break end;
        }
        let ended = emulator.0.try_wait().expect("it was started");
        assert!(
            ended.is_none() && until.now() < Instant::ZERO + Duration::from_secs(20),
            "it does not listen: {ended:?}"
        );
        std::thread::yield_now();
    };
    let mut second = End::with("udp-frames:127.0.0.1:7071-127.0.0.1:7072");
    is_through(&mut first, &mut second);
    for (number, length) in [60, 61, 1000, 1514, 9014].into_iter().enumerate() {
        for reversed in [false, true] {
            let (from, to) = if reversed { (&mut second, &mut first) } else { (&mut first, &mut second) };
            let sent = item(from, length, number);
            from.send(&sent).expect("the link is up");
            to.take_until(|to| to.came.iter().any(|came| to.is_item(came))).expect("the link is up");
            assert!(to.items() == [sent], "{length} bytes");
        }
    }
    drop(emulator);
    assert!(first.end().contains("the peer closed the connection"));
}
