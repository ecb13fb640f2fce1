//! Tests that Wireshark decodes the LAPB, X.25 and XOT that this crate sends: every frame, none of them
//! malformed.
//!
//! Limits    the limits are those of tshark 4.0. It has no link type for LAPB alone, so frames are captured
//!           as user type 147. It guesses from the addresses which frames are commands. It does not decode
//!           LAPB with modulo 128 (X.25's modulo 128 is covered over XOT). It reports a call accepted packet
//!           that ends early, and an interrupt of one octet, as malformed.

use crate::station::{Quality, World};
use kiban_base::{Instant, Rope};
use kiban_capture as capture;
use kiban_osi::lapb;
use kiban_osi::pad::PROTOCOL;
use kiban_osi::wire::lapb::Modulo;
use kiban_osi::wire::lapb_framing::{ETHER_TYPE_LAPB, read_lapbether, write_lapbether};
use kiban_osi::wire::x29::{Error, Fault, Message};
use kiban_osi::wire::xot;
use kiban_osi::x25::xot::{CHANNEL, Pvc, Xot};
use kiban_osi::x25::{
    AddressBlock, Both, Call, Cause, Config, Facilities, FastSelect, Indication, Interface, Request, Role,
    Sizes,
};
use std::path::PathBuf;
use std::time::Duration;

/// A display filter for errors, which must match none of our frames.
const BAD: &str = "_ws.malformed || _ws.expert.severity == error || _ws.expert.severity == warning";

/// Runs tshark on frames and returns its output lines.
#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the other decoder is a program that reads files"
)]
fn tshark(name: &str, link_type: u32, frames: &[Vec<u8>], arguments: &[&str]) -> Vec<String> {
    let (header, mut file) = (capture::FileHeader::new(link_type), Vec::new());
    header.write(&mut file);
    for (number, frame) in frames.iter().enumerate() {
        let length = frame.len() as u32;
        let nanoseconds = 1_000_000 * (number as u64 + 1);
        capture::RecordHeader { nanoseconds, captured_bytes: length, original_bytes: length }
            .write(&header, &mut file);
        file.extend_from_slice(frame);
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.pcap", std::process::id()));
    std::fs::write(&path, &file).expect("a capture can be written");
    let output = std::process::Command::new("tshark")
        .args(["-o", "uat:user_dlts:\"User 0 (DLT=147)\",\"lapb\",\"0\",\"\",\"0\",\"\"", "-r"])
        .arg(&path)
        .args(arguments)
        .output()
        .expect("tshark reads the captures: apt-get install tshark, or run make test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(&path).expect("it was written");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn count_of(lines: &[String], what: &str) -> usize {
    lines.iter().filter(|line| line.contains(what)).count()
}

/// Returns a call with all parameters.
fn call() -> Call {
    let addresses = AddressBlock {
        called: "731100".parse().expect("digits"),
        calling: "26245737411".parse().expect("digits"),
    };
    let facilities = Facilities {
        packet_bytes: Some(Both { called: 256, calling: 512 }),
        window: Some(Both { called: 3, calling: 4 }),
        throughput: Some(Both::same(11)),
        fast_select: FastSelect::Unrestricted,
        reverse_charging: true,
        transit_delay: Some(300),
        expedited: Some(true),
        called_extension: Some(vec![0x47, 0, 5, 0x80]),
        calling_extension: Some(vec![0x49, 1, 2]),
        ..Facilities::default()
    };
    Call { addresses, facilities, user_data: vec![3, 1, 1, 0] }
}

/// Returns requests that suit any kind of circuit, each with the index of the end that makes it.
fn requests(channel: u16) -> [(usize, Request); 7] {
    let data = |bytes: usize, qualifier, delivery| Request::Data {
        channel,
        // Octets that Wireshark does not recognise as any higher-layer protocol.
        data: vec![0x55; bytes].into(),
        qualifier,
        delivery,
    };
    [
        (0, data(2000, false, false)),
        (1, data(300, true, true)),
        (0, Request::Interrupt { channel, data: vec![1, 2, 3] }),
        (1, Request::Receive { channel, ready: false }),
        (1, Request::Receive { channel, ready: true }),
        (0, Request::Reset { channel, cause: Cause { cause: 0, diagnostic: Some(250) } }),
        (1, data(10, false, false)),
    ]
}

#[test]
fn wireshark_decodes_lapb_and_x25_of_a_line() {
    let quality = Quality { bits_per_second: 64_000, delay: Duration::from_millis(1), impairment: 0 };
    let mut world = World::new(Modulo::Eight, Sizes::same(128, 2), quality, 1);
    world.tape = Some(Vec::new());
    let settle = |world: &mut World| {
        let run = |world: &mut World| {
            let end = world.now + Duration::from_secs(2);
            while world.now < end {
                world.step();
            }
        };
        run(world);
        let received = world
            .stations
            .each_mut()
            .map(|station| core::iter::from_fn(|| station.layer.poll_up()).collect::<Vec<Indication>>());
        run(world);
        received
    };
    settle(&mut world);
    let request = Request::Call { channel: 16, call: call() };
    world.stations[0].layer.request(request, world.now).expect("free");
    settle(&mut world);
    let answer =
        Request::Accept { channel: 16, call: Call { user_data: b"yes".to_vec(), ..Call::default() } };
    world.stations[1].layer.request(answer, world.now).expect("a call is pending");
    settle(&mut world);
    for (number, request) in requests(16) {
        world.stations[number].layer.request(request, world.now).expect("a circuit");
        settle(&mut world);
    }
    let cause = Cause { cause: 0, diagnostic: Some(241) };
    let clear = Request::Clear { channel: 16, cause, user_data: b"bye".to_vec() };
    world.stations[0].layer.request(clear, world.now).expect("a circuit");
    settle(&mut world);
    let frames: Vec<Vec<u8>> =
        world.tape.take().expect("taped").into_iter().map(|(_, frame)| frame).collect();
    let lines = tshark("lapb", 147, &frames, &[]);
    let show = || lines.join("\n");
    assert_eq!(lines.len(), frames.len());
    assert!(lines[0].contains("U P, func=SABM") && lines[1].contains("U P, func=UA"), "{}", show());
    for (kind, count) in
        [(0xfb, 2), (0x0b, 1), (0x0f, 1), (0x23, 1), (0x27, 1), (0x1b, 1), (0x1f, 1), (0x13, 1), (0x17, 1)]
    {
        let filter = format!("x25.type == {kind}");
        assert_eq!(tshark("kind", 147, &frames, &["-Y", &filter]).len(), count, "{kind:02x}: {}", show());
    }
    assert_eq!(tshark("bad", 147, &frames, &["-Y", BAD]), [""; 0], "{}", show());
}

/// Records the bytes of a TCP connection as Ethernet frames, one segment each, without checksums.
struct Tape {
    frames: Vec<Vec<u8>>,
    said: [u32; 2],
}

impl Tape {
    fn say(&mut self, way: usize, flags: u8, payload: &[u8]) {
        let port = [40_000_u16, xot::PORT];
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
        frame.extend_from_slice(&(40 + payload.len() as u16).to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
        for side in [way, 1 - way] {
            frame.extend_from_slice(&[192, 0, 2, side as u8 + 1]);
        }
        frame.extend_from_slice(&port[way].to_be_bytes());
        frame.extend_from_slice(&port[1 - way].to_be_bytes());
        frame.extend_from_slice(&self.said[way].to_be_bytes());
        frame.extend_from_slice(&self.said[1 - way].to_be_bytes());
        frame.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend_from_slice(payload);
        self.said[way] = self.said[way].wrapping_add(payload.len() as u32 + u32::from(flags & 2 != 0));
        self.frames.push(frame);
    }

    fn new() -> Tape {
        let mut tape = Tape { frames: Vec::new(), said: [100, 200] };
        tape.say(0, 0x02, &[]);
        tape.say(1, 0x12, &[]);
        tape.say(0, 0x10, &[]);
        tape
    }

    /// Records everything that the two ends send to each other.
    fn run(&mut self, ends: &mut [Xot; 2]) {
        loop {
            let mut moved = false;
            for way in 0..2 {
                while let Some(packet) = ends[way].poll_down() {
                    self.say(way, 0x18, &packet.to_vec());
                    ends[1 - way].arrive(packet, Instant::ZERO);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }
}

fn listen(ends: &mut [Xot; 2]) {
    for end in ends {
        while end.poll_up().is_some() {}
    }
}

#[test]
fn wireshark_decodes_xot() {
    let at = Instant::ZERO;
    for modulo in [Modulo::Eight, Modulo::OneTwentyEight] {
        let config = || Config { modulo, ..Config::new(Role::Dte) };
        let mut ends = [Xot::calling(config()), Xot::called(config())];
        let mut tape = Tape::new();
        ends[0].request(Request::Call { channel: CHANNEL, call: call() }, at).expect("free");
        tape.run(&mut ends);
        listen(&mut ends);
        let answer = Call { user_data: b"yes".to_vec(), ..Call::default() };
        ends[1].request(Request::Accept { channel: CHANNEL, call: answer }, at).expect("a call is pending");
        for (number, request) in requests(CHANNEL) {
            tape.run(&mut ends);
            listen(&mut ends);
            ends[number].request(request, at).expect("a circuit");
            tape.run(&mut ends);
            listen(&mut ends);
        }
        tape.run(&mut ends);
        let cause = Cause { cause: 0, diagnostic: Some(241) };
        ends[1]
            .request(Request::Clear { channel: CHANNEL, cause, user_data: Vec::new() }, at)
            .expect("a circuit");
        tape.run(&mut ends);
        let packets = tshark("xot", capture::LINK_TYPE_ETHERNET, &tape.frames, &["-Y", "xot"]);
        assert!(packets.len() > 20, "{}", packets.join("\n"));
        let bad = tshark("xot-bad", capture::LINK_TYPE_ETHERNET, &tape.frames, &["-Y", BAD]);
        assert_eq!(bad, [""; 0], "{}", packets.join("\n"));
    }
    // The set-up of a permanent virtual circuit.
    let pvc = Pvc {
        initiator: (b"Serial0".to_vec(), 7),
        responder: (b"Serial1".to_vec(), 9),
        sizes: Sizes::same(128, 2),
        modulo: Modulo::Eight,
    };
    let end = |initiates| Xot::permanent(Config::new(Role::Dte), pvc.clone(), initiates);
    let (mut ends, mut tape) = ([end(true), end(false)], Tape::new());
    tape.run(&mut ends);
    let lines = tshark("pvc", capture::LINK_TYPE_ETHERNET, &tape.frames, &["-V"]);
    assert_eq!(count_of(&lines, "Serial1"), 2, "{}", lines.join("\n"));
    assert_eq!(tshark("pvc-bad", capture::LINK_TYPE_ETHERNET, &tape.frames, &["-Y", BAD]), [""; 0]);
}

#[test]
fn wireshark_decodes_a_pads_call_on_an_ethernet() {
    let interface = |role| {
        let layer = Config { default: Sizes::same(128, 2), ..Config::new(role) };
        Interface::new(lapb::Config::new(role), layer)
    };
    let mut ends = [interface(Role::Dte), interface(Role::Dce)];
    let (mut now, mut frames) = (Instant::ZERO, Vec::new());
    let run = |ends: &mut [Interface; 2], now: &mut Instant, frames: &mut Vec<Vec<u8>>| {
        // Long enough for the acknowledgements that wait for data.
        for _ in 0..10 {
            for way in 0..2 {
                while let Some(frame) = ends[way].poll_frame(*now) {
                    let mut sent = frame.clone();
                    write_lapbether(&mut sent);
                    let station = |number: usize| [2, 0, 0, 0, 0, number as u8];
                    let header = [&[0xff; 6][..], &station(way), &ETHER_TYPE_LAPB.to_be_bytes()].concat();
                    let mut whole = [&header[..], &sent.to_vec()].concat();
                    // The shortest frame of an Ethernet, without its FCS.
                    whole.resize(whole.len().max(60), 0);
                    let received = read_lapbether(&whole[14..]).expect("it was written");
                    ends[1 - way].arrive(Rope::copied(received), *now);
                    frames.push(whole);
                }
            }
            for end in &mut *ends {
                while end.layer_mut().poll_up().is_some() {}
                end.settle(*now);
            }
            *now += Duration::from_millis(10);
        }
    };
    ends[0].start();
    run(&mut ends, &mut now, &mut frames);
    let addresses =
        AddressBlock { called: "45678901".parse().expect("digits"), calling: "12".parse().expect("digits") };
    let call = Call { addresses, user_data: PROTOCOL.to_vec(), ..Call::default() };
    let channel = ends[0].layer().free_channel().expect("one is free");
    let data =
        |data: Vec<u8>, qualifier| Request::Data { channel, data: data.into(), qualifier, delivery: false };
    let indicated = vec![(2, Ok(0)), (11, Err(Fault::ReadOnly))];
    let answer = Request::Accept { channel, call: Call::default() };
    let requests = [
        (0, Request::Call { channel, call }),
        (1, answer),
        (1, data(Message::Set(vec![(2, 0), (3, 2)]).write(), true)),
        (1, data(Message::SetAndRead(vec![(2, 0), (11, 1)]).write(), true)),
        (0, data(Message::Indication(indicated).write(), true)),
        (1, data(Message::Read(vec![1]).write(), true)),
        (0, data(b"hello\r".to_vec(), false)),
        (0, data(Message::Break(true).write(), true)),
        (0, data(Message::Error(Error::Code(9)).write(), true)),
        (1, data(Message::InvitationToClear.write(), true)),
    ];
    for (end, request) in requests {
        ends[end].layer_mut().request(request, now).expect("the state allows it");
        run(&mut ends, &mut now, &mut frames);
    }
    let dissect = |name, arguments: &[&str]| tshark(name, capture::LINK_TYPE_ETHERNET, &frames, arguments);
    let lines = dissect("lapbether", &[]);
    let show = || lines.join("\n");
    assert!(lines[0].contains("SABM") && lines[1].contains("UA"), "{}", show());
    for (filter, count) in
        [("lapb", frames.len()), ("x25.type == 0x0b", 1), ("x25.q == 1 && x25.p_s", 7), ("x29", 8)]
    {
        assert_eq!(dissect("filtered", &["-Y", filter]).len(), count, "{filter}: {}", show());
    }
    assert_eq!(dissect("lapbether-bad", &["-Y", BAD]), [""; 0], "{}", show());
}
