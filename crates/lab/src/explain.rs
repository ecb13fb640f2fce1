//! The page of `kiban lab explain`: the verdicts on the connections of a capture, each with its evidence.
//!
//! RoCEv2    connections are pairs of queue pairs; their times are shorter, so figures have more digits.
//! Limits    the page shows the first `CONNECTIONS_MAX` connections in full; the table lists all of them.

use crate::report::picture::{Arrow, Direction, Line, Lines, Scale, Sequence};
use crate::report::{Badge, Block, Cell, Document, Grid, Section, Tone};
use kiban_explain::{Cause, Explained, Finding, Report};

/// The maximum number of connections that are shown in full.
const CONNECTIONS_MAX: usize = 50;
/// The names of the ends.
const ENDS: [&str; 2] = ["client", "server"];

/// Returns the HTML page of the connections of `file`; `command` is the command that creates the page.
pub fn html(report: &Report, file: &str, command: &str) -> String {
    let connections = &report.connections;
    let slow = connections.iter().filter(|one| one.is_slow()).count();
    let lead = match (&connections[..], slow) {
        ([], _) => format!("No TCP or RoCEv2 connections: {}.", report.contents()),
        ([one], _) => match &one.verdict {
            Some(finding) => format!("{}: {}", finding.cause.words(), finding.because),
            None => format!("1 connection: {}.", one.words()),
        },
        (all, 0) => format!("{} connections: no cause of slowness was found.", all.len()),
        (all, _) => format!("{slow} of {} connections are slow or ended with an error.", all.len()),
    };
    let mut blocks = notes(report);
    if !connections.is_empty() {
        blocks.push(Block::Grid(table(connections)));
    }
    if report.roce.sum() > 0 {
        let badge = Badge::new(Tone::Plain, "note");
        blocks.push(Block::Badges(vec![(badge, report.roce.to_string())]));
    }
    let sections = connections.iter().take(CONNECTIONS_MAX).map(section).collect();
    let foot = vec![Document::version_line(), format!("Made by: {command}.")];
    let title = format!("Connections in {file}");
    let has_contents = !connections.is_empty();
    Document { title, lead, has_contents, blocks, sections, foot, ..Document::default() }.html()
}

/// Returns what of the file was not read.
fn notes(report: &Report) -> Vec<Block> {
    let unread = report.unread.as_ref().map(|why| format!("The end of the file was not read: {why}."));
    let skipped = (report.skipped > 0).then(|| {
        format!(
            "{} packets were skipped: malformed, or cut off inside their headers (capture at least 128 bytes: \
             tcpdump -s 128).",
            report.skipped
        )
    });
    let link = report
        .unsupported_link_type
        .map(|link_type| format!("Packets of link type {link_type} were skipped: it is not supported."));
    let copies = (report.duplicates > 0).then(|| {
        format!(
            "{} copies of packets were left out: the file has packets twice, as after tcpdump -i any on a bridge.",
            report.duplicates
        )
    });
    let notes = [unread, skipped, link, copies].into_iter().flatten();
    notes.map(note).collect()
}

fn note(text: String) -> Block {
    Block::Badges(vec![(Badge::new(Tone::Doubt, "note"), text)])
}

fn badge(one: &Explained) -> Badge {
    let tone = match (&one.verdict, &one.limits[..]) {
        (Some(_), _) if one.is_slow() => Tone::Bad,
        (Some(_), _) | (None, []) => Tone::Good,
        (None, _) => Tone::Doubt,
    };
    Badge::new(tone, one.words())
}

fn table(connections: &[Explained]) -> Grid {
    let heads =
        ["verdict", "client > server", "#time lost, ms", "data from", "#bytes", "#Mbit/s", "#RTT, ms"];
    let mut grid = Grid::new("Verdicts", &heads);
    for one in connections {
        let main = &one.directions[one.main_sender()];
        let name = Cell::from(format!("{}: {} > {}", one.number, one.ends[0], one.ends[1]));
        let costly = one.verdict.as_ref().filter(|finding| finding.lost_ms > 0.0);
        let lost = costly.map_or(String::new(), |finding| milliseconds(finding.lost_ms, 0));
        grid.row([
            badge(one).into(),
            // Plain text if the connection is not shown in full.
            name.to(heading(one)),
            lost.into(),
            ENDS[one.main_sender()].into(),
            main.bytes.to_string().into(),
            format!("{:.2}", main.bits_per_second * 1e-6).into(),
            one.rtt_ms.map_or(String::new(), |ms| milliseconds(ms, 1)).into(),
        ]);
    }
    grid
}

/// Returns milliseconds with `digits` after the point, or more if there are few.
fn milliseconds(ms: f64, digits: usize) -> String {
    let digits = if ms < 1.0 { 3 } else { digits.max(usize::from(ms < 10.0)) };
    format!("{ms:.digits$}")
}

fn heading(one: &Explained) -> String {
    format!("Connection {}: {}", one.number, one.words())
}

fn section(one: &Explained) -> Section {
    let mut blocks: Vec<Block> =
        one.limits.iter().map(|limit| note(format!("This connection {}.", limit.words()))).collect();
    blocks.extend(one.sharing().map(|sharing| note(format!("This connection {sharing}."))));
    for finding in one.verdict.iter().chain(&one.also) {
        blocks.push(Block::Paragraph(format!("{}: {}", finding.cause.words(), finding.because)));
        blocks.push(Block::Grid(evidence(finding, one.digits())));
        blocks.push(Block::Paragraph(format!("What to do: {}", finding.advice)));
    }
    blocks.push(Block::Figure(sequence(one).picture(), String::new()));
    let graph = graph(one);
    if !graph.lines.is_empty() {
        blocks.push(Block::Figure(graph.picture(), String::new()));
    }
    let mut waits = Grid::new("What the sender waited for", &["sender", "waited", "#ms"]);
    for (name, direction) in ENDS.iter().zip(&one.directions) {
        for (waited, ms) in &direction.waited_ms {
            waits.row([(*name).into(), waited.words().into(), milliseconds(*ms, 0).into()]);
        }
    }
    blocks.push(Block::Collapsed("What the sender waited for".to_owned(), vec![Block::Grid(waits)]));
    Section { heading: heading(one), blocks }
}

fn evidence(finding: &Finding, digits: usize) -> Grid {
    let mut grid = Grid::new("Evidence", &["packets", "#at, s", "what they show"]);
    for piece in &finding.evidence {
        let packets: Vec<String> = piece.packets.iter().map(u32::to_string).collect();
        grid.row([
            packets.join(", ").into(),
            format!("{:.digits$}", piece.at_s).into(),
            piece.what.clone().into(),
        ]);
    }
    grid
}

fn sequence(one: &Explained) -> Sequence {
    let arrows = one.steps.iter().map(|step| Arrow {
        after_ms: step.after_ms,
        direction: if step.from == 0 { Direction::Right } else { Direction::Left },
        what: format!("{}: {}", step.packet, step.what),
        wait: step.wait.clone(),
    });
    Sequence {
        name: format!("packets-{}", one.number),
        title: if one.verdict.is_some() { "The packets that show it" } else { "The first packets" }
            .to_owned(),
        description: format!("Packets of connection {}, with the time between them", one.number),
        ends: ENDS.map(str::to_owned),
        arrows: arrows.collect(),
    }
}

fn graph(one: &Explained) -> Lines {
    let curve = |series, name: &str, points: &[(f64, f64)]| Line {
        name: name.to_owned(),
        series,
        points: points.iter().map(|(x, y)| (*x, Some(y * 1e-3))).collect(),
        dashed: name == "window",
    };
    // If the window is the limit, bytes sent, acknowledged and the window are one line in a time-sequence
    // graph.
    let is_window = one.verdict.as_ref().is_some_and(|finding| {
        use Cause::{LostWindowScaling, ReceiverLimited, SillyWindow, SlowReader};
        matches!(finding.cause, ReceiverLimited | SlowReader | SillyWindow | LostWindowScaling)
    });
    let curves = &one.curves;
    let (title, what, lines) = match is_window {
        true => (
            "Bytes in flight and the window",
            "Bytes in flight, and the window",
            vec![("window", &curves.window_size), ("in flight", &curves.in_flight)],
        ),
        false => (
            "Time-sequence graph",
            "Bytes sent and acknowledged, and the window",
            vec![("window", &curves.window), ("sent", &curves.sent), ("acknowledged", &curves.acknowledged)],
        ),
    };
    Lines {
        name: format!("sequence-{}", one.number),
        title: title.to_owned(),
        description: format!("{what}, of connection {}", one.number),
        x: ("seconds".to_owned(), Scale::Linear),
        y: ("kB".to_owned(), Scale::Linear),
        lines: lines
            .iter()
            .enumerate()
            .filter(|(_, (_, points))| !points.is_empty())
            .map(|(series, (name, points))| curve(series, name, points))
            .collect(),
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_explain::Evidence;

    const HOSTILE: &str = "</script></style></svg>\"'&<img src=x onerror=alert(1)>";

    /// Returns the report on a connection that waits for delayed acknowledgements.
    fn report() -> Report {
        kiban_explain::explain(include_bytes!("../../explain/tests/data/nagle.pcapng")).expect("a capture")
    }

    #[test]
    fn the_page_shows_the_verdict_first_and_loads_nothing() {
        let page = html(&report(), "nagle.pcapng", "kiban lab explain nagle.pcapng");
        let [lead, table, figure] = ["<p class=\"lead\">Nagle and delayed ACKs: ", "<table", "<figure"]
            .map(|part| page.find(part).expect("it is part of the page"));
        assert!(lead < table && table < figure);
        assert_eq!(page.matches("<figure").count(), 2, "a sequence of packets and a time-sequence graph");
        for request in ["http://", "https://", " src=", "@import", "url(", "<link"] {
            assert!(!page.contains(request), "{request}");
        }
    }

    #[test]
    fn texts_from_elsewhere_are_escaped() {
        let mut report = report();
        let hostile = || HOSTILE.to_owned();
        report.unread = Some(hostile());
        let one = &mut report.connections[0];
        one.ends = [hostile(), hostile()];
        let finding = one.verdict.as_mut().expect("it is slow");
        finding.because = hostile();
        finding.evidence = vec![Evidence { packets: vec![1], at_s: 0.0, lost_ms: 1.0, what: hostile() }];
        for step in &mut one.steps {
            (step.what, step.wait) = (hostile(), Some(hostile()));
        }
        let page = html(&report, HOSTILE, HOSTILE);
        let count = |what: &str| page.matches(what).count();
        assert_eq!((count("<img"), count("</script>"), count("</style>"), count("</svg>")), (0, 1, 1, 2));
        // The title twice, the lead, the note, the table, the reason, the evidence, and the packets.
        assert!(count("&lt;img src=x onerror=alert(1)&gt;") > 10);
    }

    #[test]
    fn a_roce_connection_has_the_same_page() {
        let file = include_bytes!("../../explain/tests/data/roce-loss.pcap");
        let report = kiban_explain::explain(file).expect("a capture");
        let page = html(&report, "roce-loss.pcap", "c");
        for part in ["packet loss (go-back-N)", "QP 0x", "NAK (sequence error)", "<figure"] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(page.matches("<figure").count(), 4, "two for the queue pairs, two for the program's TCP");
    }

    #[test]
    fn a_healthy_connection_has_no_evidence_and_one_that_cannot_be_judged_is_not_healthy() {
        let file = include_bytes!("../../explain/tests/data/healthy.pcap");
        let mut report = kiban_explain::explain(file).expect("a capture");
        let page = html(&report, "healthy.pcap", "c");
        assert!(page.contains("1 connection: healthy.") && page.contains("The first packets"));
        assert!(!page.contains("The packets that show it") && !page.contains("a pause"));
        report.connections[0].limits.push(kiban_explain::Limit::Handshake);
        let page = html(&report, "healthy.pcap", "c");
        assert!(page.contains("1 connection: no cause found.") && !page.contains("healthy<"));
        assert!(page.contains("This connection begins without its handshake"));
    }

    #[test]
    fn what_was_skipped_is_on_the_page() {
        let report = Report { skipped: 855, duplicates: 12, ..Report::default() };
        let page = html(&report, "short.pcap", "c");
        assert!(page.contains("855 packets were skipped") && page.contains("12 copies of packets"));
    }

    #[test]
    fn a_full_path_is_not_shown_as_slow() {
        let mut report = report();
        report.connections[0].verdict.as_mut().expect("it is slow").cause = Cause::PathFull;
        let page = html(&report, "full.pcap", "c");
        assert!(page.contains("<span class=\"badge good\">path full</span>"), "{page}");
    }

    #[test]
    fn figures_in_json_have_few_digits() {
        fn check(value: &serde_json::Value) {
            match value {
                serde_json::Value::Number(number) => {
                    let text = number.to_string();
                    let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
                    assert!(digits <= 9, "{text}");
                }
                serde_json::Value::Array(all) => all.iter().for_each(check),
                serde_json::Value::Object(all) => all.values().for_each(check),
                _ => {}
            }
        }
        let roce = kiban_explain::explain(include_bytes!("../../explain/tests/data/roce-loss.pcap"));
        for report in [report(), roce.expect("a capture")] {
            check(&serde_json::to_value(&report).expect("plain values"));
        }
    }

    #[test]
    fn a_file_without_connections_and_one_of_a_lone_packet_have_a_page() {
        let page = html(&Report::default(), "empty.pcap", "c");
        assert!(
            page.contains("No TCP or RoCEv2 connections: 0 packets in the file.") && !page.contains("<table"),
            "{page}"
        );
        assert!(!page.contains("<nav"), "an empty bar: {page}");
        let mut report = report();
        report.connections[0].steps.truncate(1);
        report.connections[0].curves = kiban_explain::Curves::default();
        assert_eq!(html(&report, "lone.pcap", "c").matches("<figure").count(), 1);
    }
}
