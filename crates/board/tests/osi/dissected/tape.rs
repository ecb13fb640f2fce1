//! A capture, and its dissection by tshark.

use kiban_capture as capture;
use kiban_osi::wire::ftam::Kind;
use std::path::{Path, PathBuf};

const SYN: u8 = 0x02;
const PUSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Frames of one kind, in order.
pub(crate) struct Tape {
    link_type: u32,
    frames: Vec<Vec<u8>>,
    tcp: Option<Tcp>,
}

/// A TCP connection.
struct Tcp {
    ports: [u16; 2],
    /// The last octet of the initiator's IP address.
    host: u8,
    /// The next sequence number of each side.
    numbers: [u32; 2],
}

impl Tape {
    /// Records the bytes of a TCP connection to a port, in IP packets without checksums.
    pub(crate) fn tcp(port: u16) -> Tape {
        let mut tape = Tape {
            link_type: capture::LINK_TYPE_RAW,
            frames: Vec::new(),
            tcp: Some(Tcp { ports: [40_000, port], host: 0, numbers: [0; 2] }),
        };
        tape.connect_again();
        tape
    }

    /// Records LAPB frames in Ethernet frames, as Linux's lapbether does: tshark then knows their direction.
    pub(crate) fn lapb() -> Tape {
        Tape { link_type: capture::LINK_TYPE_ETHERNET, frames: Vec::new(), tcp: None }
    }

    /// Starts another connection, from another host. tshark reassembles X.25 units without looking at ports.
    /// So if the host were the same, it would continue a connection that was cut.
    pub(crate) fn connect_again(&mut self) {
        if let Some(Tcp { host, numbers, .. }) = &mut self.tcp {
            (*host, *numbers) = (*host + 1, [1000, 2000]);
            for (direction, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
                self.say_in_tcp(direction, flags, &[]);
            }
        }
    }

    /// Records what one side sends.
    pub(crate) fn say(&mut self, direction: usize, bytes: &[u8]) {
        if self.tcp.is_some() {
            self.say_in_tcp(direction, PUSH | ACK, bytes);
        } else {
            // The length field has its low octet first. The frame's EtherType is 0x6000.
            let mut frame =
                vec![2, 0, 0, 0, 0, 2 - direction as u8, 2, 0, 0, 0, 0, direction as u8 + 1, 0x60, 0x00];
            frame.extend((bytes.len() as u16).to_le_bytes());
            frame.extend(bytes);
            self.frames.push(frame);
        }
    }

    fn say_in_tcp(&mut self, direction: usize, flags: u8, payload: &[u8]) {
        let Some(Tcp { ports, host, numbers }) = &mut self.tcp else { return };
        let acknowledged = if flags == SYN { 0 } else { numbers[1 - direction] };
        let mut packet = vec![0x45, 0];
        packet.extend((40 + payload.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        let hosts = [[192, 0, 2, *host], [198, 51, 100, 1]];
        packet.extend(hosts[direction]);
        packet.extend(hosts[1 - direction]);
        packet.extend(ports[direction].to_be_bytes());
        packet.extend(ports[1 - direction].to_be_bytes());
        packet.extend(numbers[direction].to_be_bytes());
        packet.extend(acknowledged.to_be_bytes());
        packet.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(payload);
        numbers[direction] += payload.len() as u32 + u32::from(flags & SYN != 0);
        self.frames.push(packet);
    }

    /// Returns the number of frames.
    pub(crate) fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Dissects the capture with tshark.
    #[expect(clippy::disallowed_methods, reason = "the other decoder is a program that reads files")]
    pub(crate) fn dissect(&self, name: &str) -> Dissected {
        let (header, mut file) = (capture::FileHeader::new(self.link_type), Vec::new());
        header.write(&mut file);
        for (number, frame) in self.frames.iter().enumerate() {
            let (length, nanoseconds) = (frame.len() as u32, 1_000_000 * (number as u64 + 1));
            capture::RecordHeader { nanoseconds, captured_bytes: length, original_bytes: length }
                .write(&header, &mut file);
            file.extend(frame);
        }
        let name = format!("{name}-{}.pcap", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, &file).expect("a capture can be written");
        let dissected = Dissected::of(&path);
        std::fs::remove_file(&path).expect("it was written");
        dissected
    }
}

/// A frame as tshark sees it.
#[derive(Debug)]
pub(crate) struct Frame {
    protocols: Vec<String>,
    /// The number of errors that tshark reports in the frame.
    errors: usize,
    /// The messages of tshark's expert: errors, warnings and others.
    messages: String,
    /// FPDUs in it.
    fpdus: Vec<Kind>,
    /// Presentation contexts of its values.
    contexts: Vec<i64>,
}

impl Frame {
    fn read(line: &str) -> Frame {
        const ERROR: u32 = 0x0080_0000;
        let fields: Vec<&str> = line.split('\t').collect();
        let [protocols, severities, messages, contexts, fpdus @ ..] = &fields[..] else { panic!("{line}") };
        let severity = |severity: &str| severity.parse::<u32>().expect("a number");
        Frame {
            protocols: protocols.split(':').map(str::to_owned).collect(),
            errors: items(severities).filter(|text| severity(text) >= ERROR).count(),
            messages: (*messages).into(),
            fpdus: fpdus.iter().flat_map(|field| items(field)).map(kind).collect(),
            contexts: items(contexts).map(|context| context.parse().expect("a number")).collect(),
        }
    }

    fn has(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|name| name == protocol)
    }

    /// Returns whether the frame is malformed or has an error.
    pub(crate) fn is_wrong(&self) -> bool {
        self.errors > 0 || self.has("_ws.malformed")
    }

    /// Returns whether the error is tshark's own: it mistakes the entries of a directory, which are values in
    /// this context, for FPDUs.
    pub(crate) fn is_a_listing(&self, context: i64) -> bool {
        let only_that = self.errors == 1 && !self.has("_ws.malformed");
        only_that
            && self.messages.contains("Internal error, zero-byte FTAM PDU")
            && self.contexts.contains(&context)
    }

    /// Returns whether the frame has a value in this presentation context.
    pub(crate) fn is_in(&self, context: i64) -> bool {
        // While an association is being established, contexts are only proposed.
        !self.has("acse") && self.contexts.contains(&context)
    }
}

/// Maps tshark's number for an FPDU (its tag) to the FPDU's kind.
fn kind(number: &str) -> Kind {
    Kind::ALL[number.parse::<usize>().expect("a number")]
}

/// Splits a field with several values.
fn items(field: &str) -> impl Iterator<Item = &str> {
    field.split(',').filter(|item| !item.is_empty())
}

/// The dissection of a capture by tshark.
pub(crate) struct Dissected {
    pub(crate) frames: Vec<Frame>,
}

impl Dissected {
    /// Dissects a file.
    #[expect(clippy::disallowed_types, reason = "the other decoder is a program")]
    pub(crate) fn of(path: &Path) -> Dissected {
        let fields = [
            "frame.protocols",
            "_ws.expert.severity",
            "_ws.expert.message",
            "pres.presentation_context_identifier",
            "ftam.fTAM_Regime_PDU",
            "ftam.file_PDU",
            "ftam.bulk_Data_PDU",
        ];
        let output = std::process::Command::new("tshark")
            .args(["-T", "fields"])
            .args(fields.iter().flat_map(|field| ["-e", field]))
            .arg("-r")
            .arg(path)
            .output()
            .expect("tshark reads the captures: apt-get install tshark, or run make test");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        Dissected { frames: text.lines().map(Frame::read).collect() }
    }

    /// Returns the number of frames that contain a protocol.
    pub(crate) fn with(&self, protocol: &str) -> usize {
        self.frames.iter().filter(|frame| frame.has(protocol)).count()
    }

    /// Returns every FPDU.
    pub(crate) fn fpdus(&self) -> impl Iterator<Item = Kind> {
        self.frames.iter().flat_map(|frame| &frame.fpdus).copied()
    }
}
